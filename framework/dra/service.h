// The DRAPlugin service in its two versions over one implementation. v1beta1 is v1 without the share id.
//
// A call is checked, handed to the executor and answered from there. Every requested UID gets an entry; what concerns one claim is said in that
// entry's `error`, never in the status of the call. The status of the call is RESOURCE_EXHAUSTED (executor full), CANCELLED or DEADLINE_EXCEEDED
// (before the work began) or INVALID_ARGUMENT (more than kMaxClaims).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "claims/claims.h"
#include "dra/executor.h"

namespace grpc {
class Service;
}

namespace tranche::dra {

// What the service calls: claims::Claims, or a test's own functions. Called from executor threads, several at once. Each reference has
// a different UID. A UID without an answer is reported as an error of that claim.
struct Handler {
  std::function<claims::PrepareAnswers(const std::string& driver, const std::vector<ClaimReference>&, Deadline, const claims::GivenUp&)> prepare;
  std::function<claims::UnprepareAnswers(const std::string& driver, const std::vector<ClaimReference>&, Deadline, const claims::GivenUp&)> unprepare;
};

// Below the kubelet's 45 s, so that an answer still reaches it.
inline constexpr std::chrono::milliseconds kMaxCallTime = std::chrono::seconds(40);
inline constexpr int kMaxClaims = 4096;  // one request is one pod's claims, or a drain of the local player
inline constexpr std::size_t kMaxErrorBytes = 4096;

// Services to register with a server; `executor` must outlive the server.
std::vector<std::unique_ptr<grpc::Service>> MakeDraPluginServices(const std::string& driver, const Handler& handler, BoundedExecutor& executor);

}  // namespace tranche::dra
