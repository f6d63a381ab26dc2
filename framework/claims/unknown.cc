// Shares that a backend has in force and of which this store has never heard: it is new, was truncated or restored, or its directory was deleted. That
// is no reason to take a tenant's share away. An orphan is only what the store itself once granted: its epoch says so.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"
#include "telemetry/log.h"

namespace tranche::claims {

void UnknownShares::Replace(const std::string& backend, const std::set<ClaimId>& ids, const std::vector<UnknownShare>& shares) {
  const std::lock_guard lock(mutex_);
  for (const UnknownShare& share : shares) {
    if (shares_.contains(share.key)) continue;
    LogError(
        "a share is in force that the store knows nothing of; it stays until its claim is prepared or unprepared, or an operator releases it with "
        "'tranchectl release-unknown'",
        {{"backend", backend}, {"share", Describe(share.key)}});
  }
  std::erase_if(shares_, [&](const auto& entry) { return entry.second.backend == backend && ids.contains(IdOf(entry.first)); });
  for (const UnknownShare& share : shares) shares_.insert_or_assign(share.key, share);
}

void UnknownShares::Forget(const ClaimId& id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shares_, [&id](const auto& entry) { return entry.first.driver == id.first && entry.first.claim_uid == id.second; });
}

std::vector<UnknownShare> UnknownShares::Of(const ClaimId& id) const {
  std::vector<UnknownShare> shares = All();
  std::erase_if(shares, [&id](const UnknownShare& share) { return share.key.driver != id.first || share.key.claim_uid != id.second; });
  return shares;
}

std::vector<UnknownShare> UnknownShares::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<UnknownShare> shares;
  for (const auto& [key, share] : shares_) shares.push_back(share);
  return shares;
}

// With the claim's lock held, so that no call of this process is about to store it; another process stores its intent before it applies.
Claims::Impl::Origin Claims::Impl::OriginOf(Reconciliation& work, const ShareKey& key) {
  const ClaimId id = IdOf(key);
  Origin origin = Origin::kStored;
  const absl::Status read = dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.SharesOfClaim(id.first, id.second));
    if (std::any_of(shares.begin(), shares.end(), [&key](const store::ShareRow& share) { return share.key == key; })) return absl::OkStatus();
    TRANCHE_ASSIGN_OR_RETURN(const std::int64_t epoch, transaction.LastEpoch(id.first, id.second));
    origin = epoch > 0 ? Origin::kReleased : Origin::kUnknown;
    return absl::OkStatus();
  });
  if (!read.ok()) work.errors.push_back(read);
  return origin;
}

Release Claims::Impl::ReleaseOf(const store::ClaimRow& claim, const std::vector<UnknownShare>& unknown) const {
  Release release{{claim, {}}, absl::OkStatus(), absl::OkStatus()};
  for (const UnknownShare& share : unknown) {
    store::ShareRow row;
    row.key = share.key;
    row.backend = share.backend;
    row.applied = AppliedShare{};
    row.applied->key = share.key;
    row.applied->state = share.state;
    release.stored.shares.push_back(std::move(row));
  }
  return release;
}

absl::StatusOr<std::vector<ShareKey>> Claims::Impl::ReleaseUnknown(const std::string& claim_uid, Deadline deadline) {
  std::set<ClaimId> ids;
  for (const UnknownShare& share : unknown_.All()) {
    if (claim_uid.empty() || share.key.claim_uid == claim_uid) ids.emplace(share.key.driver, share.key.claim_uid);
  }
  if (ids.empty() && !claim_uid.empty()) {
    return absl::NotFoundError(Cat("no unknown share of claim UID ", claim_uid, " is in force; 'tranchectl status' lists those that are"));
  }
  std::vector<ClaimLocks::Held> locks;
  std::vector<Release> releases;
  for (const ClaimId& id : ids) {
    std::optional<ClaimLocks::Held> lock = locks_.Acquire(id, deadline);
    if (!lock.has_value()) return NotBegun(id.second, false);
    locks.push_back(*std::move(lock));
    TRANCHE_ASSIGN_OR_RETURN(const std::optional<StoredClaim> stored, Find(id));
    if (stored.has_value()) {  // prepared meanwhile: it is known now
      unknown_.Forget(id);
      continue;
    }
    store::ClaimRow claim;
    claim.driver = id.first;
    claim.claim_uid = id.second;
    releases.push_back(ReleaseOf(claim, unknown_.Of(id)));
  }
  ReleaseAll(releases, Actor::kOperator, deadline);
  std::vector<ShareKey> released;
  absl::Status first;
  for (const Release& release : releases) {
    if (!release.status.ok()) {
      if (first.ok()) first = release.status;
      continue;
    }
    unknown_.Forget({release.stored.claim.driver, release.stored.claim.claim_uid});
    for (const store::ShareRow& share : release.stored.shares) released.push_back(share.key);
  }
  if (!first.ok()) return Annotate(first, Cat(released.size(), " released, not all"));
  return released;
}

}  // namespace tranche::claims
