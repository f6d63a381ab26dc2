#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"

namespace tranche::claims {
namespace {

// What a refused prepare would have held. What could not be resolved still has its address.
std::vector<store::ShareRow> WantedShares(const Preparation& preparation) {
  std::vector<store::ShareRow> shares;
  for (const ResolvedShare& resolved : preparation.resolved) shares.push_back(resolved.row);
  if (!shares.empty()) return shares;
  for (const AllocationResult& result : preparation.allocation.results) {
    if (result.driver != preparation.claim.driver) continue;
    store::ShareRow share;
    share.key = {preparation.reference.uid, result.request, result.driver, result.pool, result.device, result.share_id.value_or("")};
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace

void Claims::Impl::Notify(ClaimChange change, const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares, const absl::Status& why) const {
  if (dependencies_.observer == nullptr) return;
  dependencies_.observer->OnClaim({change, claim.driver, {claim.namespace_name, claim.name, claim.claim_uid}, claim.allocation_version, shares, why});
}

void Claims::Impl::NotifyPreparations(const std::vector<Preparation>& preparations) const {
  if (dependencies_.observer == nullptr) return;
  for (const Preparation& preparation : preparations) {
    if (preparation.status.ok()) {
      if (!preparation.shares.empty()) Notify(ClaimChange::kPrepared, preparation.claim, preparation.shares);
      continue;
    }
    // Of what was granted and undone the release has told.
    if (preparation.quiet || preparation.granted) continue;
    const bool is_held = preparation.before.has_value() && preparation.before->claim.state == store::ClaimState::kPrepared;
    if (is_held) {
      Notify(ClaimChange::kRejoinRefused, preparation.before->claim, preparation.before->shares, preparation.status);
    } else {
      Notify(ClaimChange::kRefused, preparation.claim, WantedShares(preparation), preparation.status);
    }
  }
}

void Claims::Impl::NotifyReleases(const std::vector<Release>& releases) const {
  if (dependencies_.observer == nullptr) return;
  for (const Release& release : releases) {
    if (release.superseded) continue;
    const StoredClaim& stored = release.stored;
    if (!release.status.ok()) {
      Notify(ClaimChange::kReleaseFailed, stored.claim, stored.shares, release.status);
    } else if (!release.failed_prepare.ok()) {
      Notify(ClaimChange::kRefused, stored.claim, stored.shares, release.failed_prepare);
    } else {
      Notify(ClaimChange::kReleased, stored.claim, {});
    }
  }
}

void Claims::Impl::NotifyDrift(const Reconciliation& work, const StoredClaim& stored) const {
  if (dependencies_.observer == nullptr) return;
  std::vector<store::ShareRow> shares = stored.shares;
  std::string why;
  bool has_vanished = false;
  for (store::ShareRow& share : shares) {
    const auto backend = work.listed.find(share.backend);
    if (backend == work.listed.end()) continue;
    const auto listed = backend->second.find(share.key);
    const AppliedShare* found = listed == backend->second.end() ? nullptr : &listed->second;
    const std::string drift = DriftOf(share, found);
    if (drift.empty()) continue;
    has_vanished = has_vanished || found == nullptr;
    Append(why, why.empty() ? "" : "; ", Describe(share.key), ": ", drift);
    if (!share.applied.has_value()) continue;
    for (LimitInForce& limit : share.applied->limits) {
      const LimitInForce* now = found == nullptr ? nullptr : FindLimit(*found, limit);
      limit.in_force = now == nullptr ? 0 : now->in_force;
      limit.verified_at = std::chrono::system_clock::now();
    }
    share.applied->applied = AppliedState::kPartial;
  }
  Notify(ClaimChange::kDrifted, stored.claim, shares, has_vanished ? absl::NotFoundError(why) : absl::FailedPreconditionError(why));
}

}  // namespace tranche::claims
