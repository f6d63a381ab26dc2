#include <thread>

#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/process.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

std::map<std::string, std::string> Identities(Reporter& reporter, const Reply& reply) {
  std::map<std::string, std::string> names;  // identity → name
  std::map<std::string, int> seen;
  for (const json::object& device : reply.devices) {
    const std::string name(TextOf(device, "name"));
    if (++seen[name] == 2) reporter.Fail("TB-051", "device " + name + " was pushed twice");
    // Order of members is no difference.
    std::map<std::string, std::string> identity;
    for (const auto& [kind, value] : device.at("identity").as_object()) identity[std::string(kind)] = json::serialize(value);
    std::string text;
    for (const auto& [kind, value] : identity) text += kind + " " + value + " ";
    const auto [place, added] = names.emplace(text, name);
    if (!added && place->second != name) reporter.Fail("TB-052", "devices " + place->second + " and " + name + " have the same identity");
  }
  return names;
}

bool Enforces(const json::object& device) {
  const json::value* capacities = device.if_contains("capacities");
  if (capacities == nullptr) return false;
  for (const auto& [name, capacity] : capacities->as_object()) {
    const std::string_view level = TextOf(capacity.as_object(), "enforcement");
    if (!level.empty() && level != "none") return true;
  }
  return false;
}

void JudgeVerify(Reporter& reporter, const Session& session, const Reply& discovered) {
  bool enforced = false;
  for (const json::object& device : discovered.devices) enforced = enforced || Enforces(device);
  if (!enforced) return reporter.NotApplicable("TB-026", "no capacity of a device is enforced");
  if (session.table().verify == nullptr) return reporter.Fail("TB-026", "a capacity is enforced and verify is null");
  reporter.Pass("TB-026");
}

}  // namespace

void LifeCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load()) return;
  Session other(reporter, input.options, input.subject.library_path);
  other.Load();
  const ProcessState before = ReadProcess();
  if (!session.Create()) {
    if (session.last_create().ok() || session.last_create().threw) return;
    return reporter.Fail("TB-027", "create fails: " + FirstMessage(session.last_create()));
  }
  reporter.Pass("TB-027");
  const Reply first = session.Discover();
  if (!first.ok() || (first.devices.empty() && !first.dropped)) {
    reporter.Fail("TB-053", first.ok() ? "discover found no device; name existing hardware in --config" : "discover fails: " + FirstMessage(first));
  } else if (!first.devices.empty()) {
    reporter.Pass("TB-053");
  }
  JudgeVerify(reporter, session, first);
  const std::map<std::string, std::string> identities = Identities(reporter, first);
  const bool again = Identities(reporter, session.Discover()) == identities;
  if (!again) reporter.Fail("TB-052", "a second discover gives other identities or names");

  const bool second = other.Create();
  if (!second) reporter.Fail("TB-030", "a second instance cannot be created: " + FirstMessage(other.last_create()));
  if (second && Identities(reporter, other.Discover()) != identities) reporter.Fail("TB-052", "a second instance discovers other identities or names");
  other.Destroy();
  // What a discover that never worked says about instances is nothing: TB-053 is its name.
  if (first.ok()) {
    if (const Reply after = session.Discover(); second && !after.ok()) {
      reporter.Fail("TB-030", "discover worked, and fails after another instance was destroyed: " + FirstMessage(after));
    }
    for (const std::string_view rule : {"TB-030", "TB-051", "TB-052"}) reporter.Pass(rule);
  }
  session.Destroy();
  JudgeProcess(reporter, before, "after destroy");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  session.Flush();
  other.Flush();
  session.PassCallRules();
  if (!first.devices.empty() && first.ok()) reporter.Note("usable", "yes");
}

void EnvelopeCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load()) return;
  const ProcessState before = ReadProcess();
  if (session.Create("{\"schemaVersion\": 1, \"config\": {")) {
    session.Destroy();
    return reporter.Fail("TB-028", "create accepts truncated JSON");
  }
  if (session.last_create().ok()) return;  // OK without an instance: TB-027
  JudgeProcess(reporter, before, "after a failed create");
  reporter.Pass("TB-028");
}

void SweepCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load() || !session.Create()) return;
  std::vector<Wanted> left;
  for (const SeenShare& share : session.ListPrepared().shares) {
    const sdk::Key key = sdk::KeyFrom(share.value.at("key"));
    if (key.driver == "conform.tranche.dev") left.push_back({key, share.key, "", "", share.state, {}});
  }
  if (!left.empty()) session.Unprepare(left);
  session.Destroy();
}

}  // namespace tranche::conform
