#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

constexpr std::size_t kMostShares = 16;

std::string ApiProblem(const absl::Status& status) { return Cat("no claim could be made: ", View(status.message())); }

void ExamineExclusiveDevice(Session& session) {
  const std::vector<Candidate> free = Exclusive(session.devices, 1);
  if (free.empty()) return session.Skip({"D-30"}, "every free device allows several allocations");
  Claims claims(session);
  const ClaimSpec spec{{session.WantOf(free.front(), "r0")}};
  const absl::StatusOr<ClaimReference> holder = claims.Make(spec), next = claims.Make(spec);
  if (!holder.ok() || !next.ok()) return session.Skip({"D-30"}, ApiProblem(holder.ok() ? next.status() : holder.status()));
  if (const std::string problem = NotGranted(claims.Prepare(*holder), *holder); !problem.empty()) return session.Skip({"D-30"}, problem);
  std::string problem = NotRefused(claims.Prepare(*next), *next);
  if (problem.empty()) {
    session.report.Judge("D-43", claims.Unprepare(*next));
    problem = NotGranted(claims.Prepare(*holder), *holder);
    if (!problem.empty()) problem = Cat("the holder lost it: ", problem);
  } else {
    problem = Cat("device ", spec.wants.front().device, ", held by another claim, was ", problem);
  }
  if (problem.empty()) {
    claims.Unprepare(*holder);
    problem = NotGranted(claims.Prepare(*next), *next);
    if (!problem.empty()) problem = Cat("after the holder was unprepared: ", problem);
  }
  session.report.Judge("D-30", problem);
}

void ExamineTwoShares(Session& session, const Candidate& candidate) {
  Claims claims(session);
  if (Room(candidate, Least(candidate), 2) < 2) return session.Skip({"D-32"}, "no device has room for two shares");
  const absl::StatusOr<ClaimReference> one = claims.Make({{session.WantOf(candidate, "r0")}}), two = claims.Make({{session.WantOf(candidate, "r0")}});
  if (!one.ok() || !two.ok()) return session.Skip({"D-31", "D-32"}, ApiProblem(one.ok() ? two.status() : one.status()));
  std::string problem = NotGranted(claims.Prepare(*one), *one);
  if (problem.empty()) problem = NotGranted(claims.Prepare(*two), *two);
  session.report.Judge("D-32", problem);
}

void ExamineTooManyShares(Session& session, const Candidate& candidate) {
  const Quantities most = Most(candidate);
  const std::size_t room = Room(candidate, most, kMostShares);
  if (room == kMostShares) return session.Skip({"D-33"}, Cat("device ", candidate.device.name, " has room for ", kMostShares, " of its largest shares"));
  Claims claims(session);
  std::size_t granted = 0;
  std::string refusal;
  for (std::size_t i = 0; i <= room; ++i) {
    Want want = session.WantOf(candidate, "r0");
    want.consumed = most;
    const absl::StatusOr<ClaimReference> claim = claims.Make({{want}});
    if (!claim.ok()) return session.Skip({"D-33"}, ApiProblem(claim.status()));
    const std::string problem = NotGranted(claims.Prepare(*claim), *claim);
    if (problem.empty()) ++granted;
    if (!problem.empty()) refusal = problem;
  }
  if (granted > room)
    return session.report.Fail("D-33", Cat(granted, " shares were prepared on device ", candidate.device.name, ", which has room for ", room));
  session.report.Pass("D-33", Cat(granted, " of ", room + 1, " were prepared"));
}

}  // namespace

void ExamineDevices(Session& session) {
  if (!session.no_claims.empty()) return;
  ExamineExclusiveDevice(session);
  const std::vector<Candidate> shareable = Shareable(session.devices, 1);
  if (shareable.empty()) return session.Skip({"D-31", "D-32", "D-33"}, "no free device allows several allocations");
  ExamineTwoShares(session, shareable.front());
  ExamineTooManyShares(session, shareable.front());
}

}  // namespace tranche::dra_conform
