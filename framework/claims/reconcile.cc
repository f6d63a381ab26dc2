#include <algorithm>
#include <iterator>
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
  Reconciliation look;
  TRANCHE_ASSIGN_OR_RETURN(look.claims, ReadClaims());
  const auto snapshot = dependencies_.inventory.Current();
  for (const config::DriverConfiguration& driver : snapshot->configuration.drivers) look.drivers.insert(driver.name);
  for (const auto& configured : snapshot->configuration.backends) look.ask.insert(configured.name);
  for (const StoredClaim& stored : look.claims) {
    look.drivers.insert(stored.claim.driver);
    look.ask.merge(BackendsOf(stored));
    for (const store::ShareRow& share : stored.shares) look.known.insert(share.key);
  }
  if (!backend.empty()) look.ask = {backend};
  ListBackends(look, HalfOf(deadline));
  RepairInParts(look, FindDifferences(look, backend), [&](Reconciliation& part) { RepairPart(part, deadline); });
  if (backend.empty()) RemoveOrphanFiles(look);
  return Conclude(look);
}

absl::StatusOr<std::vector<Repair>> Claims::Impl::Conclude(const Reconciliation& work) const {
  if (work.errors.empty()) return work.repairs;
  std::string text;
  for (const absl::Status& error : work.errors) Append(text, text.empty() ? "" : "; ", View(error.message()));
  return absl::Status(work.errors.front().code(), Cat("reconcile: ", work.repairs.size(), " repaired, ", work.errors.size(), " not: ", text));
}

absl::StatusOr<std::vector<StoredClaim>> Claims::Impl::ReadClaims() {
  std::vector<StoredClaim> stored;
  TRANCHE_RETURN_IF_ERROR(dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ClaimRow> claims, transaction.Claims());
    if (claims.empty()) return absl::OkStatus();
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.Shares());
    std::map<ClaimId, std::vector<store::ShareRow>> by_claim;
    for (store::ShareRow& share : shares) by_claim[IdOf(share.key)].push_back(std::move(share));
    for (store::ClaimRow& claim : claims) {
      std::vector<store::ShareRow> own = std::move(by_claim[{claim.driver, claim.claim_uid}]);
      stored.push_back({std::move(claim), std::move(own)});
    }
    return absl::OkStatus();
  }));
  return stored;
}

void Claims::Impl::ListBackends(Reconciliation& work, Deadline deadline) {
  std::set<std::string> used;
  for (const StoredClaim& stored : work.claims) used.merge(BackendsOf(stored));
  std::map<std::string, absl::StatusOr<std::vector<AppliedShare>>> answers;
  std::vector<std::function<void()>> calls;
  for (const std::string& name : work.ask) {
    const std::shared_ptr<backend::Backend> backend = dependencies_.backend(name);
    if (backend == nullptr) {
      // Configured and not loaded is the host's to report; with live shares it is a difference that cannot be repaired.
      if (used.contains(name)) work.errors.push_back(absl::UnavailableError(Cat("backend '", name, "' is not loaded but has live shares")));
      continue;
    }
    auto& answer = answers.emplace(name, NotCalled(name)).first->second;
    if (!Passed(deadline)) calls.emplace_back([backend, deadline, &answer] { answer = backend->ListPrepared(deadline); });
  }
  SideBySide(calls);
  for (auto& [name, answer] : answers) {
    if (!answer.ok()) {
      work.errors.push_back(Annotate(answer.status(), Cat("backend '", name, "': list what is applied")));
      continue;
    }
    auto& shares = work.listed[name];
    for (AppliedShare& share : *answer) {
      const ShareKey key = share.key;
      shares.insert_or_assign(key, std::move(share));
    }
  }
}

// Meant to be asked with the claim's lock held: then no call of this process is at work on it.
bool Claims::Impl::IsLeftover(const StoredClaim& stored) const {
  if (stored.claim.state == store::ClaimState::kPrepared) return false;
  return dependencies_.sole_host() || std::chrono::system_clock::now() - stored.claim.updated_at > kOldestLiveIntent;
}

bool Claims::Impl::Differs(const Reconciliation& look, const StoredClaim& stored) const {
  if (stored.claim.state != store::ClaimState::kPrepared) return IsLeftover(stored);
  return Drifts(look, stored) || (HasEdits(stored) && !cdi_.Read(stored.claim.driver, stored.claim.claim_uid).ok());
}

// Of claims with shares of `backend`, of all when it is empty, and of what is listed and not stored. Whatever changed since it was read or listed looks
// different, too: the second look knows.
Differences Claims::Impl::FindDifferences(const Reconciliation& look, const std::string& backend) const {
  Differences found;
  for (const auto& [name, listed] : look.listed) {
    for (const auto& [key, applied] : listed) {
      if (!look.known.contains(key)) found[IdOf(key)].insert(name);
    }
  }
  for (const UnknownShare& share : unknown_.All()) {
    if (look.listed.contains(share.backend)) found[IdOf(share.key)].insert(share.backend);
  }
  for (const StoredClaim& stored : look.claims) {
    const std::set<std::string> backends = BackendsOf(stored);
    const bool is_meant = backend.empty() || backends.contains(backend);
    if (found.contains(IdOf(stored)) || (is_meant && Differs(look, stored))) found[IdOf(stored)].insert(backends.begin(), backends.end());
  }
  return found;
}

void Claims::Impl::RepairInParts(Reconciliation& look, const Differences& differences, const std::function<void(Reconciliation&)>& repair) {
  std::map<std::set<std::string>, Reconciliation> parts;
  for (const auto& [id, backends] : differences) parts[backends].ids.insert(id);
  std::vector<std::function<void()>> repairs;
  for (auto& [backends, to_do] : parts) {
    Reconciliation& part = to_do;  // clang 14 captures no structured binding
    part.drivers = look.drivers;
    for (const std::string& name : backends) {
      if (look.listed.contains(name)) part.ask.insert(name);  // who did not answer at first is not asked again
    }
    repairs.emplace_back([this, &part, &repair] {
      const absl::Status loaded = Load(part);
      if (loaded.ok()) repair(part);
      if (!loaded.ok()) part.errors.push_back(loaded);
      part.locks.clear();  // not when the last part has ended
    });
  }
  SideBySide(repairs);
  for (auto& [backends, part] : parts) {
    std::move(part.repairs.begin(), part.repairs.end(), std::back_inserter(look.repairs));
    std::move(part.errors.begin(), part.errors.end(), std::back_inserter(look.errors));
    look.busy.merge(part.busy);
  }
}

// Locks, and only then reads: what is locked cannot change between here and what the backends list.
absl::Status Claims::Impl::Load(Reconciliation& part) {
  for (const ClaimId& id : part.ids) {
    std::optional<ClaimLocks::Held> lock = locks_.TryAcquire(id);
    if (lock.has_value()) part.locks.emplace(id, *std::move(lock));
    if (!part.locks.contains(id)) part.busy.insert(id);
  }
  TRANCHE_RETURN_IF_ERROR(dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    for (const auto& [id, lock] : part.locks) {
      TRANCHE_ASSIGN_OR_RETURN(std::optional<store::ClaimRow> claim, transaction.FindClaim(id.first, id.second));
      if (!claim.has_value()) continue;
      TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.SharesOfClaim(id.first, id.second));
      part.claims.push_back({*std::move(claim), std::move(shares)});
    }
    return absl::OkStatus();
  }));
  for (const StoredClaim& stored : part.claims) {
    for (const store::ShareRow& share : stored.shares) part.known.insert(share.key);
  }
  return absl::OkStatus();
}

void Claims::Impl::RepairPart(Reconciliation& work, Deadline deadline) {
  ReleaseLeftovers(work, deadline);
  ListBackends(work, deadline);
  Remake(work, deadline);
  RewriteFiles(work);
  RemoveOrphanShares(work, deadline);
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
    const bool ours = std::any_of(kept->begin(), kept->end(), [&key](const StoredClaim* claim) { return IdOf(*claim) == IdOf(key); });
    if (ours) AddRepair(work, "re-made", key, "it was stored and not, or only partly, applied");
  }
  TakeBack(work, std::move(superseded), deadline);
}

// Another host released these claims while their shares were being re-made here: what came after its release must go again. A claim that was prepared
// anew since owns the same keys and is left alone.
void Claims::Impl::TakeBack(Reconciliation& work, std::vector<Release> superseded, Deadline deadline) {
  ReleaseAll(superseded, Actor::kReconcile, deadline);
  for (const Release& release : superseded) {
    std::erase_if(work.claims, [id = IdOf(release.stored)](const StoredClaim& stored) { return IdOf(stored) == id; });
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
  std::set<ClaimId> locked;
  for (const auto& [id, lock] : work.locks) locked.insert(id);
  for (const auto& [name, listed] : work.listed) {
    std::vector<backend::UnprepareItem> orphans;
    std::vector<UnknownShare> unknown;
    for (const auto& [key, applied] : listed) {
      if (!locked.contains(IdOf(key)) || work.known.contains(key)) continue;
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
    unknown_.Replace(name, locked, unknown);
    const std::shared_ptr<backend::Backend> backend = orphans.empty() ? nullptr : dependencies_.backend(name);
    if (backend == nullptr) continue;
    if (Passed(deadline)) {
      work.errors.push_back(Annotate(NotCalled(name), Cat("remove ", orphans.size(), " orphans")));
      continue;
    }
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

void Claims::Impl::RemoveOrphanFiles(Reconciliation& look) {
  std::set<ClaimId> kept = look.busy;
  for (const StoredClaim& stored : look.claims) kept.insert(IdOf(stored));  // whose file it is; it goes when they go
  for (const std::string& driver : look.drivers) {
    const absl::StatusOr<std::vector<std::string>> claims = cdi_.ListClaims(driver);
    if (!claims.ok()) {
      if (claims.status().code() != absl::StatusCode::kNotFound) look.errors.push_back(claims.status());
      continue;
    }
    for (const std::string& uid : *claims) {
      const ClaimId id{driver, uid};
      const std::optional<ClaimLocks::Held> lock = kept.contains(id) ? std::nullopt : locks_.TryAcquire(id);
      if (!lock.has_value() || !IsOrphanFile(look, id)) continue;
      const absl::Status removed = RemoveUnknownFile(id);
      if (removed.ok()) AddRepair(look, "removed orphan", {uid, "", driver, "", "", ""}, cdi_.FilePath(driver, uid));
      if (!removed.ok() && !absl::IsAborted(removed)) look.errors.push_back(removed);
    }
  }
}

}  // namespace tranche::claims
