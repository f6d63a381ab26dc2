// Judgements that several cases share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/session.h"

namespace tranche::conform {

// The first failing result's text, else the call's own, for messages.
std::string FirstMessage(const Reply& reply);
// Whether a limit holds what was asked of it: from 2 % below to 0.1 % above.
bool IsInForce(std::int64_t requested, std::int64_t in_force);
// Rules TB-054 and TB-055. True when every key is OK with its share.
bool JudgePrepared(Reporter& reporter, const Reply& reply, const std::vector<Wanted>& wanted);
// `rule`: the key is listed once, with the limits of `share`.
void JudgeListed(Reporter& reporter, const Reply& listed, const Wanted& wanted, const SeenShare& share, std::string_view rule);
// Unprepares twice: rules TB-062 and TB-063. True when it is gone.
bool JudgeUnprepare(Reporter& reporter, Session& session, const Wanted& wanted);

}  // namespace tranche::conform
