// The cases of an examination, in their order. Each undoes what it did. Internal to the room.
#pragma once

#include "conform/session.h"

namespace tranche::dra_conform {

// NotFound names the sockets that are there.
absl::StatusOr<std::string> FindRegistrationSocket(const Options& options);

// False: GetInfo or the endpoint is unusable, so that nothing else can be examined.
bool ExamineRegistration(Session& session);
void ExamineCalls(Session& session);   // what needs no claim
void ExamineSlices(Session& session);  // finds the free devices, too
void ExamineClaims(Session& session);  // a good claim, then bad ones
void ExamineConcurrency(Session& session);
void ExamineDevices(Session& session);  // exclusive devices and shares
void ExamineSliceDeletion(Session& session);
void ExamineHealth(Session& session);
void ExamineRestart(Session& session);
void ExamineHostileInput(Session& session);

// "" when what was asked for was granted, else what was said.
inline std::string NotGranted(const Reply& reply, const ClaimReference& claim) { return reply.Why(claim.uid); }
// "" when it was refused; otherwise that it was granted, or that the driver said nothing of it.
std::string NotRefused(const Reply& reply, const ClaimReference& claim);

}  // namespace tranche::dra_conform
