#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"
#include "telemetry/log.h"

namespace tranche::claims {
namespace {

// The kubelet gives up on a call after 45 s; an intent that is older belongs to no live call of any host.
constexpr auto kOldestLiveIntent = std::chrono::seconds(60);

bool Touches(const StoredClaim& stored, const std::string& backend) {
  return backend.empty() || std::any_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) { return share.backend == backend; });
}

bool HasEdits(const StoredClaim& stored) {
  return std::any_of(stored.shares.begin(), stored.shares.end(),
                     [](const store::ShareRow& share) { return share.applied.has_value() && share.applied->edits != ContainerEdits{}; });
}

ShareKey FirstKey(const StoredClaim& stored) {
  if (!stored.shares.empty()) return stored.shares.front().key;
  return {stored.claim.claim_uid, "", stored.claim.driver, "", "", ""};
}

void AddRepair(Reconciliation& work, std::string what, const ShareKey& key, std::string detail) {
  LogInfo("reconcile: repaired", {{"what", what}, {"claim", key.claim_uid}, {"share", key.share_id}, {"device", key.device}, {"detail", detail}});
  work.repairs.push_back({std::move(what), key, std::move(detail)});
}

}  // namespace

absl::StatusOr<std::vector<Repair>> Claims::Impl::Reconcile(const std::string& backend, Deadline deadline) {
  Reconciliation work;
  work.backend = backend;
  TRANCHE_RETURN_IF_ERROR(Load(work));
  ReleaseLeftovers(work, deadline);
  ListBackends(work, deadline);
  Remake(work, deadline);
  RewriteFiles(work);
  RemoveOrphanShares(work, deadline);
  if (backend.empty()) RemoveOrphanFiles(work);
  return Conclude(work);
}

absl::StatusOr<std::vector<Repair>> Claims::Impl::Conclude(const Reconciliation& work) const {
  if (work.errors.empty()) return work.repairs;
  std::string text;
  for (const absl::Status& error : work.errors) Append(text, text.empty() ? "" : "; ", View(error.message()));
  return absl::Status(work.errors.front().code(), Cat("reconcile: ", work.repairs.size(), " repaired, ", work.errors.size(), " not: ", text));
}

bool Claims::Impl::IsLeftover(const StoredClaim& stored) const {
  if (stored.claim.state == store::ClaimState::kPrepared) return false;
  // The caller holds the claim's lock: no call of this process is at work on it.
  return dependencies_.sole_host() || std::chrono::system_clock::now() - stored.claim.updated_at > kOldestLiveIntent;
}

// False: a call is at work on the claim.
bool Claims::Impl::Lock(Reconciliation& work, const ClaimId& id) {
  if (work.locks.contains(id)) return true;
  std::optional<ClaimLocks::Held> lock = locks_.TryAcquire(id);
  if (lock.has_value()) work.locks.emplace(id, *std::move(lock));
  return work.locks.contains(id);
}

// Locks every claim that no call is at work on, and only then reads: a claim that is locked cannot change between here and what the backends list.
absl::Status Claims::Impl::Load(Reconciliation& work) {
  const auto read_claims = [&](std::vector<store::ClaimRow>& claims) {
    return dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
      TRANCHE_ASSIGN_OR_RETURN(claims, transaction.Claims());
      return absl::OkStatus();
    });
  };
  std::vector<store::ClaimRow> claims;
  TRANCHE_RETURN_IF_ERROR(read_claims(claims));
  for (const store::ClaimRow& claim : claims) {
    if (work.only.empty() || work.only.contains({claim.driver, claim.claim_uid})) Lock(work, {claim.driver, claim.claim_uid});
  }
  std::map<ClaimId, StoredClaim> stored;
  TRANCHE_RETURN_IF_ERROR(dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(claims, transaction.Claims());
    for (store::ClaimRow& claim : claims) stored[{claim.driver, claim.claim_uid}].claim = std::move(claim);
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.Shares());
    for (store::ShareRow& share : shares) stored[{share.key.driver, share.key.claim_uid}].shares.push_back(std::move(share));
    return absl::OkStatus();
  }));
  for (const config::DriverConfiguration& driver : dependencies_.inventory.Current()->configuration.drivers) work.drivers.insert(driver.name);
  for (auto& [id, claim] : stored) {
    work.drivers.insert(id.first);
    for (const store::ShareRow& share : claim.shares) work.known.insert(share.key);
    if (work.locks.contains(id) && Touches(claim, work.backend)) work.claims.push_back(std::move(claim));
  }
  return absl::OkStatus();
}

void Claims::Impl::ReleaseLeftovers(Reconciliation& work, Deadline deadline) {
  std::vector<Release> releases;
  std::vector<store::ClaimState> states;
  for (const StoredClaim& stored : work.claims) {
    if (!IsLeftover(stored)) continue;
    releases.push_back({stored, absl::OkStatus(), absl::OkStatus()});
    states.push_back(stored.claim.state);
  }
  ReleaseAll(releases, Actor::kReconcile, deadline);
  for (std::size_t i = 0; i < releases.size(); ++i) {
    const Release& release = releases[i];
    if (!release.status.ok()) {
      work.errors.push_back(release.status);
      continue;
    }
    const bool intent = states[i] == store::ClaimState::kPreparing;
    for (const store::ShareRow& share : release.stored.shares) {
      work.known.erase(share.key);
      AddRepair(work, intent ? "undone" : "finished", share.key, intent ? "its prepare did not get to its end" : "its unprepare did not get to its end");
    }
  }
  std::erase_if(work.claims, [](const StoredClaim& stored) { return stored.claim.state != store::ClaimState::kPrepared; });
}

void Claims::Impl::ListBackends(Reconciliation& work, Deadline deadline) {
  std::set<std::string> used, names;
  for (const StoredClaim& stored : work.claims) {
    for (const store::ShareRow& share : stored.shares) used.insert(share.backend);
  }
  names = used;
  if (work.only.empty()) {
    for (const auto& backend : dependencies_.inventory.Current()->configuration.backends) names.insert(backend.name);
  }
  for (const std::string& name : names) {
    if (!work.backend.empty() && name != work.backend) continue;
    const std::shared_ptr<backend::Backend> backend = dependencies_.backend(name);
    if (backend == nullptr) {
      // Configured and not loaded is the host's to report; with live shares it is a difference that cannot be repaired.
      if (used.contains(name)) work.errors.push_back(absl::UnavailableError(Cat("backend '", name, "' is not loaded but has live shares")));
      continue;
    }
    absl::StatusOr<std::vector<AppliedShare>> listed = backend->ListPrepared(deadline);
    if (!listed.ok()) {
      work.errors.push_back(Annotate(listed.status(), Cat("backend '", name, "': list what is applied")));
      continue;
    }
    auto& shares = work.listed[name];
    for (AppliedShare& share : *listed) {
      const ShareKey key = share.key;
      shares.insert_or_assign(key, std::move(share));
    }
  }
}

void Claims::Impl::Remake(Reconciliation& work, Deadline deadline) {
  std::map<std::string, std::vector<backend::PrepareItem>> items;
  for (const StoredClaim& stored : work.claims) {
    bool drifted = false;
    for (const store::ShareRow& share : stored.shares) {
      const auto listed = work.listed.find(share.backend);
      if (listed == work.listed.end()) continue;
      const auto applied = listed->second.find(share.key);
      if (applied != listed->second.end() && applied->second.applied == AppliedState::kForeign) {
        AddRepair(work, "quarantined", share.key, "what is there in its place is not ours; it was left alone");
        drifted = true;
        continue;
      }
      if (DriftOf(share, applied == listed->second.end() ? nullptr : &applied->second).empty()) continue;
      items[share.backend].push_back(ItemOf(stored.claim, share));
      drifted = true;
    }
    if (drifted) NotifyDrift(work, stored);
  }
  if (items.empty()) return;
  const auto answers = CallPrepare(items, deadline);
  TRANCHE_FAULT_POINT("claims.reconcile.after_backend");
  std::vector<const StoredClaim*> changed;
  std::map<const StoredClaim*, absl::Status> failures;
  std::vector<ShareKey> made;
  for (StoredClaim& stored : work.claims) {
    bool differs = false;
    for (store::ShareRow& share : stored.shares) {
      const auto answer = answers.find(share.key);
      if (answer == answers.end()) continue;
      const absl::Status status = answer->second.ok() ? CheckApplied(share, *answer->second, AllowedEdits(share.backend)) : answer->second.status();
      differs = true;
      if (status.ok()) {
        share.applied = *answer->second;
        share.state = store::ShareState::kApplied;
        made.push_back(share.key);
      } else {
        if (share.applied.has_value()) share.applied->applied = AppliedState::kPartial;  // the next prepare asks the backend again
        work.errors.push_back(Annotate(status, Cat("re-make ", Describe(share.key))));
        failures.emplace(&stored, work.errors.back());
      }
    }
    if (differs) changed.push_back(&stored);
  }
  const absl::StatusOr<std::set<const StoredClaim*>> kept = StoreRemade(work, changed);
  if (!kept.ok()) {
    work.errors.push_back(Annotate(kept.status(), "store what was re-made"));
    return;
  }
  std::vector<Release> superseded;
  for (const StoredClaim* claim : changed) {
    if (!kept->contains(claim)) {
      superseded.push_back({*claim, absl::OkStatus(), absl::OkStatus()});
      continue;
    }
    const auto failure = failures.find(claim);
    NoteRepair(*claim, failure == failures.end() ? absl::OkStatus() : failure->second);
  }
  for (const ShareKey& key : made) {
    const bool ours = std::any_of(kept->begin(), kept->end(),
                                  [&key](const StoredClaim* claim) { return claim->claim.driver == key.driver && claim->claim.claim_uid == key.claim_uid; });
    if (ours) AddRepair(work, "re-made", key, "it was stored and not, or only partly, applied");
  }
  TakeBack(work, std::move(superseded), deadline);
}

// Another host released these claims while their shares were being re-made here: what came after its release must go again. A claim that was prepared
// anew since owns the same keys and is left alone.
void Claims::Impl::TakeBack(Reconciliation& work, std::vector<Release> superseded, Deadline deadline) {
  ReleaseAll(superseded, Actor::kReconcile, deadline);
  for (const Release& release : superseded) {
    const ClaimId id{release.stored.claim.driver, release.stored.claim.claim_uid};
    std::erase_if(work.claims, [&id](const StoredClaim& stored) { return ClaimId{stored.claim.driver, stored.claim.claim_uid} == id; });
    if (!release.status.ok() && !absl::IsAborted(release.status)) work.errors.push_back(release.status);
  }
}

// Those of `claims` that are still prepared as they were read.
absl::StatusOr<std::set<const StoredClaim*>> Claims::Impl::StoreRemade(Reconciliation& work, const std::vector<const StoredClaim*>& claims) {
  std::set<const StoredClaim*> kept;
  const absl::Status stored_all = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    kept.clear();
    for (const StoredClaim* stored : claims) {
      TRANCHE_ASSIGN_OR_RETURN(const auto now, transaction.FindClaim(stored->claim.driver, stored->claim.claim_uid));
      if (!IsCurrent(now, stored->claim)) continue;
      kept.insert(stored);
      if (absl::Status written = WriteFile(stored->claim, stored->shares); !written.ok()) work.errors.push_back(std::move(written));
      for (const store::ShareRow& share : stored->shares) {
        TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share));
        const bool complete = share.applied.has_value() && share.applied->applied == AppliedState::kComplete;
        const absl::Status outcome = complete ? absl::OkStatus() : absl::UnavailableError("the share could not be re-made");
        TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(Actor::kReconcile, "reconcile", stored->claim, &share, outcome)));
      }
    }
    return absl::OkStatus();
  });
  if (!stored_all.ok()) return stored_all;
  return kept;
}

void Claims::Impl::RewriteFiles(Reconciliation& work) {
  for (const StoredClaim& stored : work.claims) {
    const store::ClaimRow& claim = stored.claim;
    if (!HasEdits(stored) || cdi_.Read(claim.driver, claim.claim_uid).ok()) continue;
    const absl::Status written = RestoreFile(stored);
    if (written.ok()) AddRepair(work, "rewritten", FirstKey(stored), cdi_.FilePath(claim.driver, claim.claim_uid));
    // Aborted: another host process released it meanwhile.
    if (!written.ok() && !absl::IsAborted(written)) work.errors.push_back(written);
  }
}

void Claims::Impl::RemoveOrphanShares(Reconciliation& work, Deadline deadline) {
  for (const auto& [name, listed] : work.listed) {
    std::vector<backend::UnprepareItem> orphans;
    std::vector<UnknownShare> unknown;
    for (const auto& [key, applied] : listed) {
      if (work.known.contains(key)) continue;
      if (applied.applied == AppliedState::kForeign || !work.drivers.contains(key.driver)) {
        AddRepair(work, "quarantined", key, Cat("backend '", name, "' lists it, but it is not ours; it was left alone"));
        continue;
      }
      const Origin origin = OriginOf(work, key);
      if (origin == Origin::kReleased) orphans.push_back({key, applied.state});
      if (origin != Origin::kUnknown) continue;
      unknown.push_back({key, name, applied.state});
      AddRepair(work, "unknown", key, Cat("backend '", name, "' has it in force, but this store never granted it; it was left in force"));
    }
    unknown_.Replace(name, unknown);
    const std::shared_ptr<backend::Backend> backend = orphans.empty() ? nullptr : dependencies_.backend(name);
    if (backend == nullptr) continue;
    for (const backend::UnprepareOutcome& outcome : backend->Unprepare(orphans, deadline)) {
      if (outcome.status.ok()) {
        AddRepair(work, "removed orphan", outcome.key, Cat("backend '", name, "' had it applied and no claim knows it"));
      } else {
        work.errors.push_back(Annotate(outcome.status, Cat("remove orphan ", Describe(outcome.key))));
      }
    }
  }
}

// The file of a share that the store never granted goes with the share: its container may be started again.
bool Claims::Impl::IsOrphanFile(Reconciliation& work, const ClaimId& id) {
  const absl::StatusOr<std::optional<StoredClaim>> stored = Find(id);
  if (!stored.ok() || stored->has_value()) return false;
  return unknown_.Of(id).empty() && (work.errors.empty() || OriginOf(work, {id.second, "", id.first, "", "", ""}) == Origin::kReleased);
}

void Claims::Impl::RemoveOrphanFiles(Reconciliation& work) {
  for (const std::string& driver : work.drivers) {
    const absl::StatusOr<std::vector<std::string>> claims = cdi_.ListClaims(driver);
    if (!claims.ok()) {
      if (claims.status().code() != absl::StatusCode::kNotFound) work.errors.push_back(claims.status());
      continue;
    }
    for (const std::string& uid : *claims) {
      if (!Lock(work, {driver, uid})) continue;
      if (!IsOrphanFile(work, {driver, uid})) continue;
      const absl::Status removed = RemoveUnknownFile({driver, uid});
      if (removed.ok()) AddRepair(work, "removed orphan", {uid, "", driver, "", "", ""}, cdi_.FilePath(driver, uid));
      if (!removed.ok() && !absl::IsAborted(removed)) work.errors.push_back(removed);
    }
  }
}

}  // namespace tranche::claims
