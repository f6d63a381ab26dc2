#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/process.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

// How strongly an amount is limited; a count of things is, by giving out no more of them.
std::string LevelOf(const std::vector<json::object>& devices, const std::string& physical, const std::string& capacity) {
  for (const json::object& device : devices) {
    if (TextOf(device, "name") != physical) continue;
    const json::value* capacities = device.if_contains("capacities");
    const json::value* one = capacities == nullptr ? nullptr : capacities->as_object().if_contains(capacity);
    if (one == nullptr || TextOf(one->as_object(), "unit") == "count" || TextOf(one->as_object(), "unit").empty()) return "none";
    return std::string(TextOf(one->as_object(), "enforcement"));
  }
  return "none";
}

void JudgeLimits(Reporter& reporter, const std::vector<json::object>& devices, const Wanted& wanted, const SeenShare& share) {
  if (wanted.mode != "share") return;
  for (const auto& [capacity, amount] : wanted.consumed) {
    const std::string level = LevelOf(devices, wanted.physical, capacity);
    bool found = false;
    for (const auto& [place, in_force] : share.limits) {
      if (place.first != capacity) continue;
      found = true;
      const double ratio = static_cast<double>(in_force) / static_cast<double>(amount);
      if (ratio > 1.001 || ratio < 0.98)
        reporter.Fail("TB-056", capacity + ": " + std::to_string(in_force) + " is in force instead of " + std::to_string(amount));
    }
    if (!found && !level.empty() && level != "none") reporter.Fail("TB-056", capacity + " is enforced (" + level + ") and the share states no limit for it");
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
  if (session.table().verify != nullptr) {
    const Reply verified = session.Verify(wanted);
    const SeenShare* seen = verified.Find(wanted.text);
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
  for (const std::string_view rule : {"TB-054", "TB-055", "TB-056", "TB-057", "TB-058", "TB-062", "TB-063"}) reporter.Pass(rule);
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
  bool gone = released.ok();
  for (const Wanted& one : wanted) gone = gone && released.Ok(one.text) && after.Find(one.text) == nullptr;
  if (gone) {
    reporter.Pass("TB-065");
  } else {
    reporter.Fail("TB-065", "unprepare with an empty state: " + FirstMessage(released));
  }
  session.Destroy();
}

}  // namespace tranche::conform
