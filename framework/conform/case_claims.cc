#include <chrono>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

std::string ApiProblem(const absl::Status& status) { return Cat("no claim could be made: ", View(status.message())); }

std::string Compared(const Reply& reply, const ClaimReference& claim, const std::vector<Device>& before) {
  if (const std::string problem = NotGranted(reply, claim); !problem.empty()) return problem;
  return SameDevices(before, reply.Devices(claim.uid)) ? "" : Cat("first ", Describe(before), "; then ", Describe(reply.Devices(claim.uid)));
}

std::set<DeviceKey> Addresses(const std::vector<Device>& devices) {
  std::set<DeviceKey> addresses;
  for (const Device& device : devices) addresses.emplace(device.pool, device.device);
  return addresses;
}

// What a reboot of the node does to a tmpfs.
void ExamineLostSpec(Session& session, Claims& claims, const ClaimReference& claim, const std::vector<Device>& devices) {
  const std::vector<std::string> ids = OwnCdiIds(claim, devices);
  if (ids.empty()) return session.Skip({"D-37"}, "no CDI id names the claim's UID: there is no spec of its own to take away");
  bool taken = false;
  for (const std::string& id : ids) {
    const absl::StatusOr<std::string> file = session.cdi.Find(id);
    if (!file.ok()) continue;  // D-36, or taken with another id
    taken = true;
    if (const absl::Status removed = RemoveFile(*file); !removed.ok()) return session.Skip({"D-37"}, std::string(removed.message()));
  }
  if (!taken) return session.Skip({"D-37"}, "no spec with the claim's CDI ids was found (D-36)");
  session.SpecsAreTaken(claim);
  const Reply again = claims.Prepare(claim);
  if (const std::string problem = NotGranted(again, claim); !problem.empty()) return session.report.Fail("D-37", problem);
  for (const std::string& id : ids) {
    const absl::StatusOr<std::string> file = session.cdi.Find(id);
    session.report.Judge("D-37", std::string(file.status().message()));
  }
}

// A claim's whole life. False: good claims are refused.
bool ExamineGoodClaim(Session& session) {
  Claims claims(session);
  const ClaimSpec spec{session.Wants(2)};
  const absl::StatusOr<ClaimReference> claim = claims.Make(spec);
  if (!claim.ok()) {
    session.no_claims = ApiProblem(claim.status());
    return false;
  }
  const auto begin = std::chrono::steady_clock::now();
  const Reply first = claims.Prepare(*claim);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  if (const std::string problem = NotGranted(first, *claim); !problem.empty()) {
    session.report.Fail("D-21", problem);
    session.no_claims = "the driver refuses good claims (D-21)";
    return false;
  }
  const std::vector<Device> devices = first.Devices(claim->uid);
  session.report.Pass("D-21", Cat(Describe(devices), ", after ", took.count(), " ms"));
  session.report.Judge("D-24", Compared(claims.Prepare(*claim), *claim, devices));
  ExamineLostSpec(session, claims, *claim, devices);
  claims.Unprepare(*claim);
  session.report.Judge("D-41", claims.Unprepare(*claim));
  const Reply anew = claims.Prepare(*claim);
  std::string problem = NotGranted(anew, *claim);
  if (problem.empty() && Addresses(anew.Devices(claim->uid)) != Addresses(devices)) problem = Cat("then ", Describe(anew.Devices(claim->uid)));
  session.report.Judge("D-44", problem);
  return true;
}

void ExamineDeletedClaim(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1)});
  if (!claim.ok()) return session.Skip({"D-42"}, ApiProblem(claim.status()));
  const std::string refused = NotGranted(claims.Prepare(*claim), *claim);
  if (!refused.empty()) return session.Skip({"D-42"}, Cat("prepare failed: ", refused));
  if (const absl::Status removed = claims.Remove(*claim); !removed.ok()) return session.Skip({"D-42"}, std::string(removed.message()));
  session.report.Judge("D-42", claims.Unprepare(*claim));
}

void ExamineRecreatedClaim(Session& session) {
  Claims claims(session);
  const ClaimSpec spec{session.Wants(1)};
  const absl::StatusOr<ClaimReference> old = claims.Make(spec);
  if (!old.ok()) return session.Skip({"D-25"}, ApiProblem(old.status()));
  if (const absl::Status removed = claims.Remove(*old); !removed.ok()) return session.Skip({"D-25"}, std::string(removed.message()));
  const absl::StatusOr<ClaimReference> now = claims.Make(spec, old->name);
  if (!now.ok()) return session.Skip({"D-25"}, ApiProblem(now.status()));
  session.report.Judge("D-25", NotRefused(claims.Prepare(*old), *old));
  session.report.Judge("D-43", claims.Unprepare(*old));
}

void ExamineUnallocatedClaim(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1), false, false});
  if (!claim.ok()) return session.Skip({"D-26"}, ApiProblem(claim.status()));
  session.report.Judge("D-26", NotRefused(claims.Prepare(*claim), *claim));
  session.report.Judge("D-43", claims.Unprepare(*claim));
}

void ExamineUnreservedClaim(Session& session) {
  Claims claims(session);
  const absl::StatusOr<ClaimReference> claim = claims.Make({session.Wants(1), true, false});
  if (!claim.ok()) return session.Skip({"D-27"}, ApiProblem(claim.status()));
  const Reply reply = claims.Prepare(*claim);
  const Said said = WhatWasSaid(reply, claim->uid);
  const std::string undone = claims.Unprepare(*claim);
  if (said == Said::kNothing || !undone.empty()) return session.report.Fail("D-27", said == Said::kNothing ? reply.Why(claim->uid) : undone);
  session.report.Pass("D-27", said == Said::kGranted ? "granted" : Cat("refused: ", reply.Why(claim->uid)));
}

void ExamineAbsentDevice(Session& session) {
  Claims claims(session);
  std::vector<Want> wants = session.Wants(1);
  wants.front().device = "dra-conform-absent";
  const absl::StatusOr<ClaimReference> claim = claims.Make({wants});
  if (!claim.ok()) return session.Skip({"D-28"}, ApiProblem(claim.status()));
  session.report.Judge("D-28", NotRefused(claims.Prepare(*claim), *claim));
  session.report.Judge("D-43", claims.Unprepare(*claim));
}

void ExamineOtherDriver(Session& session) {
  Claims claims(session);
  std::vector<Want> wants = session.Wants(1);
  wants.push_back({"other", "other.dra-conform.example.com", "pool", "device", "other.dra-conform.example.com", "", {}});
  const absl::StatusOr<ClaimReference> claim = claims.Make({wants});
  if (!claim.ok()) return session.Skip({"D-29"}, ApiProblem(claim.status()));
  const Reply reply = claims.Prepare(*claim);
  const std::vector<Device> devices = reply.Devices(claim->uid);
  std::string problem = NotGranted(reply, *claim);
  if (problem.empty() && Addresses(devices) != std::set<DeviceKey>{{wants.front().pool, wants.front().device}}) problem = Cat("answered: ", Describe(devices));
  session.report.Judge("D-29", problem);
}

void ExamineSubrequest(Session& session) {
  Claims claims(session);
  std::vector<Want> wants = session.Wants(1);
  wants.front().request += "/first";
  const absl::StatusOr<ClaimReference> claim = claims.Make({wants});
  if (!claim.ok()) return session.Skip({"D-23"}, ApiProblem(claim.status()));
  const std::string problem = NotGranted(claims.Prepare(*claim), *claim);
  if (!problem.empty()) session.report.Fail("D-23", Cat("a claim served by a subrequest: ", problem));
}

}  // namespace

void ExamineClaims(Session& session) {
  if (!session.no_claims.empty() || !ExamineGoodClaim(session)) return;
  ExamineDeletedClaim(session);
  ExamineRecreatedClaim(session);
  ExamineUnallocatedClaim(session);
  ExamineUnreservedClaim(session);
  ExamineAbsentDevice(session);
  ExamineOtherDriver(session);
  ExamineSubrequest(session);
}

}  // namespace tranche::dra_conform
