#include <algorithm>

#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/process.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

// nullptr when the device states no such capacity.
const json::object* CapacityOf(const std::vector<json::object>& devices, const std::string& physical, const std::string& name) {
  for (const json::object& device : devices) {
    if (TextOf(device, "name") != physical) continue;
    const json::value* capacities = device.if_contains("capacities");
    const json::value* one = capacities == nullptr ? nullptr : capacities->as_object().if_contains(name);
    return one == nullptr ? nullptr : &one->as_object();
  }
  return nullptr;
}

void JudgeMissing(Reporter& reporter, const std::string& name, const json::object& capacity) {
  const std::string level(TextOf(capacity, "enforcement"));
  if (level.empty() || level == "none") return;
  const bool counts = TextOf(capacity, "unit").empty() || TextOf(capacity, "unit") == "count";
  if (counts && name == "shares") return;  // the host itself gives out no more of them
  reporter.Fail(counts ? "TB-079" : "TB-056", name + " is enforced (" + level + ") and the share states no limit for it");
}

void JudgeLimits(Reporter& reporter, const std::vector<json::object>& devices, const Wanted& wanted, const SeenShare& share) {
  for (const auto& [name, amount] : wanted.consumed) {
    bool found = false;
    for (const auto& [place, in_force] : share.limits) {
      if (place.first != name) continue;
      found = true;
      if (!IsInForce(amount, in_force)) reporter.Fail("TB-056", name + ": " + std::to_string(in_force) + " is in force instead of " + std::to_string(amount));
      if (share.requested.at(place) != amount)
        reporter.Fail("TB-078",
                      "prepare says that " + std::to_string(share.requested.at(place)) + " of " + name + " was requested, it was " + std::to_string(amount));
    }
    if (const json::object* capacity = CapacityOf(devices, wanted.physical, name); !found && capacity != nullptr) JudgeMissing(reporter, name, *capacity);
  }
  // Of a whole device no amount was asked: what the backend says was must be what it does.
  for (const auto& [place, in_force] : share.limits) {
    const std::int64_t requested = share.requested.at(place);
    if (wanted.consumed.contains(place.first) || IsInForce(requested, in_force)) continue;
    reporter.Fail("TB-078",
                  "prepare says that " + std::to_string(requested) + " of " + place.first + " was requested, and " + std::to_string(in_force) + " is in force");
  }
}

// What a later look says was asked: the same as prepare, or what it finds in force.
void JudgeRequested(Reporter& reporter, const std::string& function, const SeenShare& prepared, const SeenShare& seen) {
  for (const auto& [place, requested] : seen.requested) {
    const auto asked = prepared.requested.find(place);
    if (requested == seen.limits.at(place) || (asked != prepared.requested.end() && requested == asked->second)) continue;
    reporter.Fail("TB-078", function + " says that " + std::to_string(requested) + " of " + place.first + " was requested; say what was, or what is in force");
  }
}

// Through the life of one share. True when prepare and unprepare do their work.
bool OneShare(Reporter& reporter, Session& session, const std::vector<json::object>& devices, Wanted wanted) {
  const Reply prepared = session.Prepare({wanted});
  if (!JudgePrepared(reporter, prepared, {wanted})) return false;
  const SeenShare& share = *prepared.Find(wanted.text);
  wanted.state = share.state;
  JudgeLimits(reporter, devices, wanted, share);

  const Reply again = session.Prepare({wanted});
  if (!again.dropped) {
    const SeenShare* same = again.Find(wanted.text);
    if (!again.ok() || !again.Ok(wanted.text) || same == nullptr) {
      reporter.Fail("TB-057", "a second prepare of the same key fails: " + FirstMessage(again));
    } else if (same->limits != share.limits) {
      reporter.Fail("TB-057", "a second prepare of the same key states other limits");
    }
  }
  const Reply listed = session.ListPrepared();
  JudgeListed(reporter, listed, wanted, share, "TB-058");
  if (const SeenShare* seen = listed.Find(wanted.text)) JudgeRequested(reporter, "list_prepared", share, *seen);
  if (session.table().verify != nullptr) {
    const Reply verified = session.Verify(wanted);
    const SeenShare* seen = verified.Find(wanted.text);
    if (seen != nullptr) JudgeRequested(reporter, "verify", share, *seen);
    if (!verified.dropped && (!verified.ok() || verified.shares.size() != 1 || seen == nullptr)) {
      reporter.Fail("TB-058", "verify does not answer for the key: " + verified.message);
    } else if (seen != nullptr && seen->limits != share.limits) {
      reporter.Fail("TB-058", "verify states other limits than prepare");
    }
  }
  return JudgeUnprepare(reporter, session, wanted);
}

}  // namespace

void ShareCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load()) return;
  const ProcessState before = ReadProcess();
  if (!session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  bool any = false, works = true;
  for (const std::string_view mode : {"share", "whole", "partition"}) {
    for (const json::object& device : devices) {
      const std::optional<Wanted> wanted = Want(device, mode);
      if (!wanted.has_value()) continue;
      any = true;
      works = OneShare(reporter, session, devices, *wanted) && works;
      break;
    }
  }
  session.Destroy();
  JudgeProcess(reporter, before, "after destroy");
  if (!any) return;
  if (works) reporter.Note("works", "yes");
  for (const std::string_view rule : {"TB-054", "TB-055", "TB-056", "TB-057", "TB-058", "TB-062", "TB-063", "TB-078", "TB-079"}) reporter.Pass(rule);
}

void ListCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load() || !session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < devices.size() && i < 16; ++i) {
    if (auto one = WantAny({devices[i]})) wanted.push_back(*one);
    auto second = Want(devices[i], "share");
    if (second.has_value() && wanted.back().mode == "share") wanted.push_back(*second);
  }
  if (wanted.empty()) return;
  const Reply prepared = session.Prepare(wanted);
  bool all = prepared.ok();
  for (const Wanted& one : wanted) all = all && prepared.Ok(one.text);
  if (all) {
    reporter.Pass("TB-061");
  } else if (!prepared.dropped) {
    reporter.Fail("TB-061", "a list of " + std::to_string(wanted.size()) + " shares fails: " + FirstMessage(prepared));
  }
  // A failing key among good ones, an unknown key, a list without keys.
  std::vector<Wanted> mixed(2, *WantAny(devices));
  mixed[1].physical = "no-such-device";
  mixed[1].key.device = "no-such-device";
  mixed[1].key.claim_uid += "-x";
  mixed[1].text = KeyText(mixed[1].key);
  if (!all) return session.Destroy();
  const Reply partly = session.Prepare(mixed);
  const Reply listed = session.ListPrepared();
  if (const SeenShare* share = partly.Find(mixed[0].text)) mixed[0].state = mixed[1].state = share->state;
  if (partly.Ok(mixed[1].text)) reporter.Fail("TB-059", "a share of an unknown device is OK");
  if (!partly.dropped && !partly.Ok(mixed[0].text)) reporter.Fail("TB-059", "the good key fails with the bad one: " + FirstMessage(partly));
  if (listed.Find(mixed[1].text) != nullptr) reporter.Fail("TB-059", "the failed key is listed as prepared");
  reporter.Pass("TB-059");
  const Reply unknown = session.Unprepare({mixed[1]});
  if (!unknown.ok() || !unknown.Ok(mixed[1].text)) {
    reporter.Fail("TB-064", "unprepare of an unknown key: " + FirstMessage(unknown));
  } else {
    reporter.Pass("TB-064");
  }
  session.Unprepare({mixed[0]});
  for (Wanted& one : wanted) one.state.clear();  // as when the host's record is damaged
  const Reply released = session.Unprepare(wanted);
  const Reply after = session.ListPrepared();
  const bool said = released.ok() && std::all_of(wanted.begin(), wanted.end(), [&](const Wanted& one) { return released.Ok(one.text); });
  const bool gone = std::all_of(wanted.begin(), wanted.end(), [&](const Wanted& one) { return after.Find(one.text) == nullptr; });
  if (said && gone) {
    reporter.Pass("TB-065");
  } else {
    reporter.Fail("TB-065", "unprepare with an empty state: " + (said ? "returned OK, but the key is still listed" : FirstMessage(released)));
  }
  session.Destroy();
}

}  // namespace tranche::conform
