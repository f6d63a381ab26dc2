#include "conformance/judge.h"

#include <algorithm>

#include "conformance/text.h"

namespace tranche::conform {

std::string FirstMessage(const Reply& reply) {
  for (const auto& [key, result] : reply.results) {
    if (result.code != TRANCHE_OK) return CodeName(result.code) + ": " + result.message;
  }
  if (reply.code != TRANCHE_OK) return CodeName(reply.code) + ": " + reply.message;
  return reply.results.empty() ? "no result" : "not as asked";
}

bool IsInForce(std::int64_t requested, std::int64_t in_force) {
  const double ratio = static_cast<double>(in_force) / static_cast<double>(requested);
  return requested > 0 ? ratio <= 1.001 && ratio >= 0.98 : requested == in_force;
}

bool JudgePrepared(Reporter& reporter, const Reply& reply, const std::vector<Wanted>& wanted) {
  bool good = reply.ok();
  for (const Wanted& one : wanted) {
    const auto results = reply.results.count(one.text);
    if (results != 1 && reply.ok() && !reply.dropped) reporter.Fail("TB-054", std::to_string(results) + " results for a key");
    const auto shares = std::count_if(reply.shares.begin(), reply.shares.end(), [&](const SeenShare& share) { return share.key == one.text; });
    const bool ok = reply.Ok(one.text);
    if (!reply.dropped && ok && shares != 1) reporter.Fail("TB-055", "OK with " + std::to_string(shares) + " shares of the key");
    if (results == 1 && !ok && shares != 0) reporter.Fail("TB-055", "a failure has a share");
    if (results == 1 && !ok) reporter.Fail("TB-061", "prepare of a " + one.mode + " of " + one.physical + " fails: " + FirstMessage(reply));
    good = good && ok && shares == 1;
  }
  for (const auto& [key, result] : reply.results) {
    const bool asked = std::any_of(wanted.begin(), wanted.end(), [&](const Wanted& one) { return one.text == key; });
    if (!asked) reporter.Fail("TB-054", "a result for a key that was not asked");
  }
  if (!reply.ok() && !reply.threw) reporter.Fail("TB-061", "prepare fails: " + FirstMessage(reply));
  return good;
}

void JudgeListed(Reporter& reporter, const Reply& listed, const Wanted& wanted, const SeenShare& share, std::string_view rule) {
  if (listed.dropped) return;
  const auto count = std::count_if(listed.shares.begin(), listed.shares.end(), [&](const SeenShare& one) { return one.key == wanted.text; });
  if (!listed.ok()) return reporter.Fail(rule, "list_prepared fails: " + FirstMessage(listed));
  if (count != 1) return reporter.Fail(count > 1 ? "TB-057" : rule, "the prepared key is listed " + std::to_string(count) + " times");
  if (listed.Find(wanted.text)->limits != share.limits) reporter.Fail(rule, "list_prepared states other limits than prepare");
}

bool JudgeUnprepare(Reporter& reporter, Session& session, const Wanted& wanted) {
  const Reply released = session.Unprepare({wanted});
  if (released.ok() && released.results.count(wanted.text) != 1)
    reporter.Fail("TB-054", "unprepare gives " + std::to_string(released.results.count(wanted.text)) + " results for a key");
  const Reply listed = session.ListPrepared();
  const bool gone = released.Ok(wanted.text) && listed.Find(wanted.text) == nullptr;
  if (!released.threw && released.results.count(wanted.text) != 0 && !gone) {
    reporter.Fail("TB-062", released.Ok(wanted.text) ? "the key is listed after unprepare" : "unprepare fails: " + FirstMessage(released));
  }
  if (!gone) return false;
  if (session.table().verify != nullptr) {
    const Reply verified = session.Verify(wanted);
    if (verified.ok()) reporter.Fail("TB-062", "verify after unprepare is OK instead of NOT_FOUND");
  }
  const Reply again = session.Unprepare({wanted});
  if (!again.threw && (!again.ok() || !again.Ok(wanted.text))) reporter.Fail("TB-063", "a second unprepare: " + FirstMessage(again));
  return true;
}

}  // namespace tranche::conform
