#include <set>

#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/session.h"
#include "conformance/text.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

void JudgeHealth(Reporter& reporter, Session& session, const std::vector<json::object>& devices) {
  if (session.table().check_health == nullptr) return reporter.NotApplicable("TB-070", "check_health is not provided");
  std::map<std::string, std::int64_t> last;
  for (int round = 0; round < 2; ++round) {
    session.host().TakeVerdicts();
    if (const Reply reply = session.CheckHealth(); !reply.ok()) return reporter.Fail("TB-070", "check_health fails: " + FirstMessage(reply));
    std::multiset<std::string> seen;
    for (const std::string& text : session.host().TakeVerdicts()) {
      const json::object verdict = json::parse(text).as_object();
      seen.insert(std::string(TextOf(verdict, "device")));
      const std::string order = std::string(TextOf(verdict, "source")) + " of " + std::string(TextOf(verdict, "device"));
      const std::int64_t sequence = verdict.at("sequence").to_number<std::int64_t>();
      if (last.contains(order) && sequence <= last[order])
        reporter.Fail("TB-070", "sequence " + std::to_string(sequence) + " of source " + order + " does not rise");
      last[order] = sequence;
    }
    for (const json::object& device : devices) {
      const std::string name(TextOf(device, "name"));
      if (seen.count(name) == 0) reporter.Fail("TB-070", "no verdict about device " + name);
    }
  }
  reporter.Pass("TB-070");
}

void JudgeRelease(Reporter& reporter, Session& session, const std::vector<json::object>& devices) {
  if (session.table().release_handles == nullptr) return reporter.NotApplicable("TB-072", "release_handles is not provided");
  const std::optional<Wanted> wanted = WantAny(devices);
  if (!wanted.has_value() || !session.Prepare({*wanted}).Ok(wanted->text)) return;
  const Reply released = session.ReleaseHandles();
  const Reply listed = session.ListPrepared();
  if (!released.ok()) reporter.Fail("TB-072", "release_handles fails: " + FirstMessage(released));
  if (!listed.dropped && listed.Find(wanted->text) == nullptr) reporter.Fail("TB-072", "the prepared share is not listed after release_handles");
  session.Unprepare({*wanted});
  reporter.Pass("TB-072");
}

void JudgeSweep(Reporter& reporter, Session& session, const std::vector<json::object>& devices) {
  if (session.table().sweep == nullptr) return reporter.NotApplicable("TB-076", "sweep is not provided");
  const std::optional<Wanted> wanted = WantAny(devices);
  if (!wanted.has_value() || !session.Prepare({*wanted}).Ok(wanted->text)) return;
  for (int round = 0; round < 2; ++round) {
    if (const Reply reply = session.Sweep(); !reply.ok()) reporter.Fail("TB-076", "sweep fails: " + FirstMessage(reply));
  }
  const Reply listed = session.ListPrepared();
  if (!listed.dropped && listed.Find(wanted->text) == nullptr) reporter.Fail("TB-076", "the prepared share is not listed after sweep");
  session.Unprepare({*wanted});
  reporter.Pass("TB-076");
}

}  // namespace

void OptionalCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load() || !session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  JudgeHealth(reporter, session, devices);
  if (session.table().recover == nullptr) {
    reporter.NotApplicable("TB-071", "recover is not provided");
  } else if (session.Recover("no-such-device").ok()) {
    reporter.Fail("TB-071", "recover of an unknown device is OK");
  } else {
    reporter.Pass("TB-071");
  }
  JudgeRelease(reporter, session, devices);
  JudgeSweep(reporter, session, devices);
  if (session.table().self_test == nullptr) {
    reporter.NotApplicable("TB-073", "self_test is not provided");
  } else if (const Reply reply = session.SelfTest(); !reply.ok()) {
    reporter.Fail("TB-073", "self_test fails: " + FirstMessage(reply));
  } else {
    reporter.Pass("TB-073");
  }
  std::optional<Wanted> unknown = WantAny(devices);
  if (session.table().verify == nullptr) {
    reporter.NotApplicable("TB-074", "verify is not provided");
  } else if (unknown.has_value()) {
    const Reply reply = session.Verify(*unknown);
    if (reply.code == TRANCHE_NOT_FOUND) {
      reporter.Pass("TB-074");
    } else if (!reply.threw) {
      reporter.Fail("TB-074", "verify of an unknown key returns " + CodeName(reply.code));
    }
  }
  session.Destroy();
}

}  // namespace tranche::conform
