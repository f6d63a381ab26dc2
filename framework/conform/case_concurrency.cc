#include <chrono>
#include <thread>

#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostClaims = 8, kCallers = 4;

std::string ApiProblem(const absl::Status& status) { return Cat("no claim could be made: ", View(status.message())); }

// Calls of several threads, and their replies in order.
template <typename Call>
std::vector<Reply> AtOnce(std::size_t count, const Call& call) {
  std::vector<Reply> replies(count);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { replies[i] = call(i); });
  threads.clear();
  return replies;
}

void ExamineMixedCall(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> good = claims.Make({session.Wants(1)});
  if (!good.ok()) return session.Skip({"D-15"}, ApiProblem(good.status()));
  const Reply reply = session.Prepare({*good, session.Absent()});
  session.report.Judge("D-15", NotGranted(reply, *good));
  if (reply.Ok(good->uid)) claims.Granted(*good, reply.Devices(good->uid));
}

void ExamineSameClaim(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1)});
  if (!claim.ok()) return session.Skip({"D-16"}, ApiProblem(claim.status()));
  const std::vector<Reply> replies = AtOnce(kCallers, [&](std::size_t) { return session.Prepare({*claim}); });
  const Reply last = claims.Prepare(*claim);
  std::string problem = NotGranted(last, *claim);
  for (const Reply& reply : replies) {
    const Said said = WhatWasSaid(reply, claim->uid);
    if (said == Said::kNothing) problem = reply.Why(claim->uid);
    const bool differs = said == Said::kGranted && !SameDevices(reply.Devices(claim->uid), last.Devices(claim->uid));
    if (differs && problem.empty()) problem = Cat(Describe(reply.Devices(claim->uid)), "; afterwards ", Describe(last.Devices(claim->uid)));
  }
  session.report.Judge("D-16", problem);
}

void ExamineDifferentClaims(Session& session) {
  Claims claims(session);
  std::vector<ClaimReference> made;
  for (const Want& want : session.Wants(kMostClaims)) {
    const absl::StatusOr<ClaimReference> claim = claims.Make({{want}});
    if (!claim.ok()) return session.Skip({"D-17"}, ApiProblem(claim.status()));
    made.push_back(*claim);
  }
  if (made.size() < 2) return session.Skip({"D-17"}, "there is no room for two claims at once");
  const std::vector<Reply> replies = AtOnce(made.size(), [&](std::size_t i) { return session.Prepare({made[i]}); });
  std::string problem;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (replies[i].Ok(made[i].uid)) claims.Granted(made[i], replies[i].Devices(made[i].uid));
    if (problem.empty()) problem = NotGranted(replies[i], made[i]);
  }
  problem.empty() ? session.report.Pass("D-17", Cat(made.size(), " at once")) : session.report.Fail("D-17", problem);
}

void ExamineVersions(Session& session) {
  if (session.versions.size() < 2) return session.Skip({"D-18"}, "one version is listed");
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1)});
  if (!claim.ok()) return session.Skip({"D-18"}, ApiProblem(claim.status()));
  const Reply first = claims.Prepare(*claim, session.versions[0]), second = claims.Prepare(*claim, session.versions[1]);
  std::string problem = NotGranted(first, *claim);
  if (problem.empty()) problem = NotGranted(second, *claim);
  if (problem.empty() && !SameDevices(first.Devices(claim->uid), second.Devices(claim->uid))) {
    problem = Cat(ServiceName(session.versions[0]), ": ", Describe(first.Devices(claim->uid)), "; ", ServiceName(session.versions[1]), ": ",
                  Describe(second.Devices(claim->uid)));
  }
  const std::string undone = claims.Unprepare(*claim, session.versions[1]);
  session.report.Judge("D-18", !problem.empty() ? problem : undone);
}

void ExamineAbandonedCall(Session& session) {
  // Before the call arrives, while it is at work, and perhaps at its end.
  for (const auto deadline : {1ms, 5ms, 20ms}) {
    Claims claims(session);
    const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1)});
    if (!claim.ok()) return session.Skip({"D-19"}, ApiProblem(claim.status()));
    (void)session.plugin->Prepare(session.preferred(), {*claim}, DeadlineIn(deadline));
    const Deadline patience = DeadlineIn(session.options.patience.retries);
    std::string problem = NotGranted(claims.Prepare(*claim), *claim);
    while (!problem.empty() && !Passed(patience)) {
      std::this_thread::sleep_for(500ms);
      problem = NotGranted(claims.Prepare(*claim), *claim);
    }
    session.report.Judge("D-19", problem.empty() ? "" : Cat("given up after ", deadline.count(), " ms; then ", problem));
  }
}

void ExamineReconnection(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1)});
  if (!claim.ok()) return session.Skip({"D-20"}, ApiProblem(claim.status()));
  const Reply before = claims.Prepare(*claim);
  session.Connect();
  const Reply after = claims.Prepare(*claim);
  std::string problem = NotGranted(after, *claim);
  if (problem.empty() && !SameDevices(before.Devices(claim->uid), after.Devices(claim->uid))) problem = Cat("then ", Describe(after.Devices(claim->uid)));
  session.report.Judge("D-20", problem);
}

}  // namespace

void ExamineConcurrency(Session& session) {
  if (!session.no_claims.empty()) return;
  ExamineMixedCall(session);
  ExamineSameClaim(session);
  ExamineDifferentClaims(session);
  ExamineVersions(session);
  ExamineAbandonedCall(session);
  ExamineReconnection(session);
}

}  // namespace tranche::dra_conform
