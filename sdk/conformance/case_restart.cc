// What is in force outlives the process: after destroy, and after a crash.
#include <signal.h>

#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/payloads.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

std::string Remember(const Wanted& wanted, const SeenShare& share) {
  json::object consumed;
  for (const auto& [name, value] : wanted.consumed) consumed[name] = value;
  return json::serialize(json::object{{"key", sdk::ToJson(wanted.key)},
                                      {"physical", wanted.physical},
                                      {"mode", wanted.mode},
                                      {"consumed", std::move(consumed)},
                                      {"share", share.value},
                                      {"state", share.state}});
}

struct Remembered {
  Wanted wanted;
  SeenShare share;
};

// Prepares one share and leaves it in force.
bool Leave(Reporter& reporter, Session& session) {
  if (!session.Load() || !session.Create()) return false;
  const std::optional<Wanted> wanted = WantAny(session.Discover().devices);
  if (!wanted.has_value()) return false;
  const Reply prepared = session.Prepare({*wanted});
  const SeenShare* share = prepared.Find(wanted->text);
  if (!prepared.Ok(wanted->text) || share == nullptr) return false;
  reporter.Note("memory", Remember(*wanted, *share));
  return true;
}

std::optional<Remembered> Recall(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  if (error) return std::nullopt;
  Remembered remembered;
  remembered.wanted.key = sdk::KeyFrom(value.at("key"));
  remembered.wanted.text = KeyText(remembered.wanted.key);
  remembered.wanted.physical = std::string(TextOf(value.as_object(), "physical"));
  remembered.wanted.mode = std::string(TextOf(value.as_object(), "mode"));
  remembered.wanted.state = std::string(TextOf(value.as_object(), "state"));
  for (const auto& [name, amount] : value.at("consumed").as_object()) remembered.wanted.consumed[std::string(name)] = amount.to_number<std::int64_t>();
  remembered.share = ParseShare(json::serialize(value.at("share")));
  return remembered;
}

}  // namespace

void LeaveCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  Leave(reporter, session);
  session.Destroy();
}

void CrashCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!Leave(reporter, session)) return;
  reporter.Done();
  ::raise(SIGKILL);
}

void AfterDestroyCase(Reporter& reporter, const CaseInput& input) {
  const std::optional<Remembered> before = Recall(input.memory);
  Session session(reporter, input.options, input.subject.library_path);
  if (!before.has_value() || !session.Load() || !session.Create()) return;
  JudgeListed(reporter, session.ListPrepared(), before->wanted, before->share, "TB-029");
  session.Unprepare({before->wanted});
  session.Destroy();
  reporter.Pass("TB-029");
}

void AfterCrashCase(Reporter& reporter, const CaseInput& input) {
  const std::optional<Remembered> before = Recall(input.memory);
  Session session(reporter, input.options, input.subject.library_path);
  if (!before.has_value() || !session.Load()) return;
  if (!session.Create()) return reporter.Fail("TB-066", "create fails after a crash: " + session.last_create().message);
  JudgeListed(reporter, session.ListPrepared(), before->wanted, before->share, "TB-066");
  reporter.Pass("TB-066");
  const Reply prepared = session.Prepare({before->wanted});
  const SeenShare* share = prepared.Find(before->wanted.text);
  if (!prepared.dropped && (!prepared.Ok(before->wanted.text) || share == nullptr)) {
    reporter.Fail("TB-067", "prepare after a crash: " + FirstMessage(prepared));
  } else if (share != nullptr && share->limits != before->share.limits) {
    reporter.Fail("TB-067", "prepare after a crash states other limits");
  }
  reporter.Pass("TB-067");
  const Reply released = session.Unprepare({before->wanted});
  if (!released.Ok(before->wanted.text)) {
    reporter.Fail("TB-068", "unprepare after a crash: " + FirstMessage(released));
  } else if (session.ListPrepared().Find(before->wanted.text) != nullptr) {
    reporter.Fail("TB-068", "the share is listed after unprepare");
  }
  session.Destroy();
  reporter.Pass("TB-068");
}

}  // namespace tranche::conform
