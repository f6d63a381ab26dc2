// Calls as hosts may make them: inputs in awkward memory, unknown members, deadlines that have passed, overlapping and repeated calls.
#include <dlfcn.h>

#include <algorithm>
#include <thread>

#include "conformance/cases.h"
#include "conformance/judge.h"
#include "conformance/process.h"
#include "conformance/session.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

// Every function once; "" when all is well.
std::string Round(Session& session) {
  const std::vector<json::object> devices = session.Discover().devices;
  std::optional<Wanted> wanted = WantAny(devices);
  if (!wanted.has_value()) return "discover finds no device";
  const Reply prepared = session.Prepare({*wanted});
  if (!prepared.dropped && !prepared.Ok(wanted->text)) return "prepare fails: " + FirstMessage(prepared);
  if (const SeenShare* share = prepared.Find(wanted->text)) wanted->state = share->state;
  if (session.table().verify != nullptr) {
    const Reply verified = session.Verify(*wanted);
    if (!verified.ok()) return "verify fails: " + FirstMessage(verified);
  }
  if (session.table().recover != nullptr) session.Recover(wanted->physical);
  session.Prepare({*wanted});
  const Reply listed = session.ListPrepared();
  if (!listed.dropped && listed.Find(wanted->text) == nullptr) return "the share is not listed";
  const Reply released = session.Unprepare({*wanted});
  if (!released.Ok(wanted->text)) return "unprepare fails: " + FirstMessage(released);
  return "";
}

template <class Arrange>
void RoundCase(Reporter& reporter, const CaseInput& input, std::string_view rule, const Arrange& arrange) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load()) return;
  arrange(session);
  std::string why = session.Create() ? Round(session) : "create fails: " + session.last_create().message;
  session.Destroy();
  if (why.empty()) {
    reporter.Pass(rule);
  } else {
    reporter.Fail(rule, why);
  }
}

std::size_t Descriptors() { return ReadProcess().descriptors.size(); }

}  // namespace

void GuardedCase(Reporter& reporter, const CaseInput& input) {
  RoundCase(reporter, input, "TB-042", [](Session& session) { session.Use(Inputs::kGuarded); });
}
void UnmappedCase(Reporter& reporter, const CaseInput& input) {
  RoundCase(reporter, input, "TB-043", [](Session& session) { session.Use(Inputs::kUnmapped); });
}
void UnknownCase(Reporter& reporter, const CaseInput& input) {
  RoundCase(reporter, input, "TB-044", [](Session& session) { session.AddUnknownMembers(); });
}

void ExpiredCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load() || !session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  bool half = false;
  for (const auto deadline : {std::chrono::milliseconds(0), std::chrono::milliseconds(50)}) {
    std::optional<Wanted> wanted = WantAny(devices);
    if (!wanted.has_value()) return;
    session.SetDeadline(deadline);
    const bool done = session.Prepare({*wanted}).Ok(wanted->text);
    session.Discover();
    session.ListPrepared();
    if (session.table().verify != nullptr) session.Verify(*wanted);
    session.SetDeadline(input.options.deadline);
    const Reply listed = session.ListPrepared();
    const SeenShare* share = listed.Find(wanted->text);
    if (!listed.dropped && done != (share != nullptr)) {
      half = true;
      reporter.Fail("TB-060", done ? "prepare said OK and the share is not listed" : "prepare failed at its deadline and the share is listed");
    }
    if (share != nullptr && TextOf(share->value, "applied") == "partial") reporter.Fail("TB-060", "the share is listed as partial");
    session.SetDeadline(deadline);
    session.Unprepare({*wanted});
    session.SetDeadline(input.options.deadline);
    session.Unprepare({*wanted});
  }
  session.Destroy();
  reporter.Pass("TB-039");
  if (!half) reporter.Pass("TB-060");
}

void ThreadsCase(Reporter& reporter, const CaseInput& input) {
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load()) return;
  if ((session.table().flags & TRANCHE_FLAG_CONCURRENT) == 0) return reporter.NotApplicable("TB-069", "TRANCHE_FLAG_CONCURRENT is not set");
  if (!session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  // One share per thread: as many on each device as fit sixteen times, else one device each.
  constexpr std::size_t kThreads = 8;
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < kThreads && !devices.empty(); ++i) {
    std::optional<Wanted> one = Want(devices[i % devices.size()], "share");
    if (!one.has_value() && i < devices.size()) one = WantAny({devices[i]});
    if (one.has_value()) wanted.push_back(*one);
  }
  if (wanted.size() < 2) {
    session.Destroy();
    return reporter.NotApplicable("TB-069", "the configuration has room for one share only");
  }
  std::vector<std::string> why(wanted.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5 && why[i].empty(); ++round) {
        const Reply prepared = session.Prepare({wanted[i]});
        if (!prepared.Ok(wanted[i].text)) why[i] = "prepare: " + FirstMessage(prepared);
        if (const SeenShare* share = prepared.Find(wanted[i].text)) wanted[i].state = share->state;
        if (session.table().verify != nullptr && !session.Verify(wanted[i]).ok()) why[i] += " verify fails";
        session.Discover();
        if (session.ListPrepared().Find(wanted[i].text) == nullptr) why[i] += " not listed";
        if (const Reply reply = session.Unprepare({wanted[i]}); !reply.Ok(wanted[i].text)) why[i] += " unprepare: " + FirstMessage(reply);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : why) {
    if (!one.empty()) reporter.Fail("TB-069", "with overlapping calls " + one);
  }
  session.Destroy();
  reporter.Pass("TB-069");
}

void CyclesCase(Reporter& reporter, const CaseInput& input) {
  const bool sanitized = ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;
  Session session(reporter, input.options, input.subject.library_path);
  if (!session.Load() || !session.Create()) return;
  const std::vector<json::object> devices = session.Discover().devices;
  std::size_t descriptors = 0;
  int threads = 0;
  long resident = 0;
  const int cycles = std::max(input.options.cycles, 4);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    std::optional<Wanted> wanted = WantAny(devices);
    if (!wanted.has_value()) return;
    const Reply prepared = session.Prepare({*wanted});
    if (const SeenShare* share = prepared.Find(wanted->text)) wanted->state = share->state;
    if (!prepared.dropped && !prepared.Ok(wanted->text))
      reporter.Fail("TB-075", "prepare fails in cycle " + std::to_string(cycle) + ": " + FirstMessage(prepared));
    session.Unprepare({*wanted});
    if (session.ListPrepared().Find(wanted->text) != nullptr) break;  // TB-062
    if (cycle != 2) continue;
    descriptors = Descriptors();
    threads = ReadProcess().threads;
    resident = ResidentKilobytes();
  }
  const std::size_t more = Descriptors();
  if (more > descriptors) reporter.Fail("TB-075", std::to_string(more - descriptors) + " descriptors more after " + std::to_string(cycles - 3) + " cycles");
  if (ReadProcess().threads > threads)
    reporter.Fail("TB-075", std::to_string(ReadProcess().threads - threads) + " threads more after " + std::to_string(cycles - 3) + " cycles");
  const long growth = ResidentKilobytes() - resident;
  session.Destroy();
  reporter.Pass("TB-075");
  if (sanitized) return reporter.NotApplicable("TB-038", "a sanitizer is in the process");
  if (PeakKilobytes() > 512 * 1024) reporter.Fail("TB-038", "the process held " + std::to_string(PeakKilobytes() / 1024) + " MiB");
  if (growth > 16 * 1024) reporter.Fail("TB-038", std::to_string(growth / 1024) + " MiB more after " + std::to_string(cycles - 3) + " cycles");
  reporter.Pass("TB-038");
}

}  // namespace tranche::conform
