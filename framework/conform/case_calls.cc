#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

void ExamineEmptyCalls(Session& session) {
  for (const Version version : session.versions) {
    for (const Reply& reply : {session.Prepare({}, version), session.Unprepare({}, version)}) {
      session.report.Judge("D-12", !reply.status.ok()      ? std::string(reply.status.message())
                                   : reply.entries.empty() ? ""
                                                           : Cat(reply.entries.size(), " entries"));
    }
  }
}

}  // namespace

std::string NotRefused(const Reply& reply, const ClaimReference& claim) {
  switch (WhatWasSaid(reply, claim.uid)) {
    case Said::kRefused: return "";
    case Said::kGranted: return Cat("granted: ", Describe(reply.Devices(claim.uid)));
    case Said::kNothing: return reply.Why(claim.uid);
  }
  return "";
}

void ExamineCalls(Session& session) {
  ExamineEmptyCalls(session);
  const ClaimReference absent = session.Absent();
  const Reply refused = session.Prepare({absent});
  session.report.Judge("D-13", NotRefused(refused, absent));
  session.report.Judge("D-14", refused.status.ok() ? "" : Cat("the call failed: ", refused.Why(absent.uid)));
  const std::string undone = session.Unprepare({absent}).Why(absent.uid);
  session.report.Judge("D-43", undone);
  const ClaimReference never = session.Absent();
  session.report.Judge("D-40", session.Unprepare({never}).Why(never.uid));
}

}  // namespace tranche::dra_conform
