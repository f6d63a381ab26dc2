#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/fault.h"
#include "base/status.h"
#include "base/text.h"
#include "capacity/capacity.h"
#include "claims/impl.h"
#include "telemetry/log.h"

namespace tranche::claims {
namespace {

constexpr auto kTimeToUndo = std::chrono::seconds(10);
constexpr std::size_t kParallelPlans = 8;

capacity::Grant GrantOf(const store::ShareRow& row) { return {row.key, row.backend, row.physical, row.mode, row.admin_access, row.consumed, row.counters}; }

void AddHoldings(const std::vector<store::Holding>& holdings, std::vector<capacity::Grant>& live) {
  for (const store::Holding& holding : holdings) {
    live.push_back({holding.holder, holding.backend, holding.physical, holding.mode, holding.admin_access, holding.consumed, holding.counters});
  }
}

// Everything stored that counts against a device, but for the claim itself.
absl::StatusOr<std::vector<capacity::Grant>> LiveGrants(store::Transaction& transaction, const store::ShareRow& row, store::Holders holders) {
  std::vector<capacity::Grant> live;
  const store::ClaimKey own{row.key.driver, row.key.claim_uid};
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::Holding> holdings, transaction.HoldingsOfPhysical(row.backend, row.physical, own, holders));
  AddHoldings(holdings, live);
  for (const CounterUse& use : row.counters) {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::Holding> users,
                             transaction.HoldingsOfCounterSet(use.counter_set, row.backend, row.physical, own, holders));
    AddHoldings(users, live);
  }
  return live;
}

bool Compete(const store::ShareRow& holder, const store::ShareRow& row) {
  if (holder.admin_access || holder.key.claim_uid == row.key.claim_uid) return false;
  if (holder.backend == row.backend && holder.physical == row.physical) return true;
  return holder.key.driver == row.key.driver && std::any_of(holder.counters.begin(), holder.counters.end(), [&](const CounterUse& held) {
           return std::any_of(row.counters.begin(), row.counters.end(), [&](const CounterUse& use) { return use.counter_set == held.counter_set; });
         });
}

// Who has what is missing. After a pod was deleted by force its share is given out again before its own claim is unprepared: an operator wants to know
// whose end is awaited. Claims that are being released come first.
absl::Status NameHolders(store::Transaction& transaction, const store::ShareRow& row, const absl::Status& refusal) {
  if (!absl::IsResourceExhausted(refusal)) return refusal;
  constexpr std::size_t kMostNamed = 3;
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.Shares());
  std::vector<const store::ShareRow*> holders;
  for (const store::ShareRow& share : shares) {
    if (Compete(share, row)) holders.push_back(&share);
  }
  std::stable_partition(holders.begin(), holders.end(), [](const auto* share) { return share->state == store::ShareState::kReleasing; });
  std::string text;
  for (std::size_t i = 0; i < std::min(holders.size(), kMostNamed); ++i) {
    const ShareKey& key = holders[i]->key;
    TRANCHE_ASSIGN_OR_RETURN(const auto claim, transaction.FindClaim(key.driver, key.claim_uid));
    if (!claim.has_value()) continue;
    Append(text, text.empty() ? "" : ", ", "claim ", claim->namespace_name, "/", claim->name, " (UID ", key.claim_uid, ", device ", key.device,
           key.share_id.empty() ? "" : ", share ", key.share_id, claim->state == store::ClaimState::kUnpreparing ? ", being released" : "", ")");
  }
  if (text.empty()) return refusal;
  if (holders.size() > kMostNamed) Append(text, " and ", holders.size() - kMostNamed, " more");
  return absl::Status(refusal.code(), Cat(View(refusal.message()), "; it is held by ", text, ", of which one must be unprepared first; the kubelet retries"));
}

bool IsSubset(const std::vector<std::string>& inner, const std::vector<std::string>& outer) {
  return std::all_of(inner.begin(), inner.end(), [&](const std::string& item) { return std::find(outer.begin(), outer.end(), item) != outer.end(); });
}

bool IsComplete(const store::ShareRow& share) {
  return share.state == store::ShareState::kApplied && share.applied.has_value() && share.applied->applied == AppliedState::kComplete;
}

bool IsUnchanged(const std::optional<StoredClaim>& before, const std::optional<store::ClaimRow>& now) {
  return before.has_value() ? IsCurrent(now, before->claim) : !now.has_value();
}

bool IsNew(const Preparation& preparation) { return preparation.status.ok() && !preparation.resolved.empty(); }

}  // namespace

PrepareAnswers Claims::Impl::Prepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up) {
  std::map<std::string, ClaimReference> wanted;
  for (const ClaimReference& reference : claims) wanted.emplace(reference.uid, reference);
  const auto locks = LockAll(driver, wanted, deadline);
  const bool is_late = given_up && given_up();  // asked under the locks: a call that comes now waits for them
  const auto snapshot = dependencies_.inventory.Current();

  std::vector<Preparation> preparations;
  for (const auto& [uid, reference] : wanted) {
    Preparation& preparation = preparations.emplace_back();
    preparation.reference = reference;
    preparation.claim.driver = driver;
    preparation.claim.claim_uid = uid;
    preparation.claim.namespace_name = reference.namespace_name;
    preparation.claim.name = reference.name;
    if (locks.contains(uid) && !is_late) continue;
    preparation.quiet = true;
    preparation.status = NotBegun(uid, is_late);
  }
  PlanAll(preparations, *snapshot, deadline);
  Grant(preparations, *snapshot);
  Apply(preparations, deadline);
  RestoreFiles(preparations);
  Finish(preparations);
  UndoFailed(preparations, AtLeast(deadline, kTimeToUndo));
  NotifyPreparations(preparations);

  PrepareAnswers answers;
  for (const Preparation& preparation : preparations) {
    const absl::Status& status = preparation.status;
    answers.emplace(preparation.reference.uid, status.ok() ? absl::StatusOr<std::vector<PreparedDevice>>(Answer(preparation.shares))
                                                           : absl::StatusOr<std::vector<PreparedDevice>>(status));
  }
  return answers;
}

// A pod's claims come in one call: they are read side by side, as the time goes into waiting for the API server.
void Claims::Impl::PlanAll(std::vector<Preparation>& preparations, const inventory::Snapshot& snapshot, Deadline deadline) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < preparations.size(); i = next++) {
      if (preparations[i].status.ok()) preparations[i].status = Plan(preparations[i], snapshot, deadline);
    }
  };
  std::vector<std::jthread> helpers;  // joined at the end, also when one could not be started
  const std::size_t most = std::min(preparations.size(), kParallelPlans);
  for (std::size_t i = 1; i < most; ++i) helpers.emplace_back(work);
  work();
}

absl::Status Claims::Impl::Plan(Preparation& preparation, const inventory::Snapshot& snapshot, Deadline deadline) {
  const std::string& driver = preparation.claim.driver;
  TRANCHE_ASSIGN_OR_RETURN(preparation.before, Find({driver, preparation.reference.uid}));
  if (preparation.before.has_value() && preparation.before->claim.state == store::ClaimState::kUnpreparing) {
    TRANCHE_RETURN_IF_ERROR(FinishUnprepare(preparation, deadline));
  }
  absl::StatusOr<Claim> claim = dependencies_.reader.ReadClaim(preparation.reference, deadline);
  if (!claim.ok()) {
    preparation.quiet = IsRetryable(claim.status());
    return Annotate(claim.status(), Cat("read claim ", preparation.reference.namespace_name, "/", preparation.reference.name));
  }
  TRANCHE_RETURN_IF_ERROR(CheckClaim(*claim, preparation.reference));
  preparation.allocation = *claim->allocation;
  if (preparation.before.has_value() && preparation.before->claim.state == store::ClaimState::kPrepared) return PlanAgain(preparation, *claim);
  return PlanNew(preparation, *claim, snapshot);
}

// A release that did not get to its end is finished first: only then is the claim new.
absl::Status Claims::Impl::FinishUnprepare(Preparation& preparation, Deadline deadline) {
  std::vector<Release> releases{{*preparation.before, absl::OkStatus(), absl::OkStatus()}};
  ReleaseAll(releases, Actor::kKubelet, deadline);
  preparation.quiet = !releases.front().status.ok();  // ReleaseAll wrote the record
  preparation.before.reset();
  return Annotate(releases.front().status, Cat("claim ", preparation.reference.uid, ": its last release is not finished"));
}

absl::Status Claims::Impl::PlanAgain(Preparation& preparation, const Claim& claim) {
  const StoredClaim& before = *preparation.before;
  if (AllocationVersion(preparation.allocation, before.claim.driver, before.claim.epoch) != before.claim.allocation_version) {
    return absl::FailedPreconditionError(
        Cat("claim ", before.claim.claim_uid, " is prepared with another allocation; it must be unprepared before this one can be prepared"));
  }
  preparation.claim = before.claim;
  preparation.shares = before.shares;
  const std::vector<std::string> pods = PodsOf(claim);
  if (!IsSubset(pods, before.claim.pod_uids)) {
    preparation.claim.pod_uids = pods;
    preparation.calls_backend = true;  // only the backend knows whether the share can serve another pod
  }
  if (!std::all_of(before.shares.begin(), before.shares.end(), IsComplete)) preparation.calls_backend = true;
  return absl::OkStatus();
}

absl::Status Claims::Impl::PlanNew(Preparation& preparation, const Claim& claim, const inventory::Snapshot& snapshot) {
  const std::string& driver = preparation.claim.driver;
  if (preparation.before.has_value()) {
    const StoredClaim& before = *preparation.before;
    if (!IsLeftover(before)) {
      preparation.quiet = true;
      return absl::AbortedError(Cat("claim ", claim.uid, " is being prepared by another host process on this node; retry"));
    }
    if (AllocationVersion(preparation.allocation, driver, before.claim.epoch) != before.claim.allocation_version) {
      return absl::FailedPreconditionError(Cat("claim ", claim.uid, " has an unfinished prepare with another allocation; it must be unprepared first"));
    }
    preparation.claim = before.claim;  // a refusal below undoes what the crashed call left
    preparation.shares = before.shares;
    preparation.granted = true;
  }
  std::vector<ResolvedShare> resolved;
  for (const AllocationResult& result : ResultsOf(claim, driver)) {
    TRANCHE_ASSIGN_OR_RETURN(ResolvedShare share, Resolve(claim, result, static_cast<int>(resolved.size()), snapshot));
    resolved.push_back(std::move(share));
  }
  preparation.resolved = std::move(resolved);
  preparation.claim.pod_uids = PodsOf(claim);
  return absl::OkStatus();
}

void Claims::Impl::Grant(std::vector<Preparation>& preparations, const inventory::Snapshot& snapshot) {
  const bool needed = std::any_of(preparations.begin(), preparations.end(), [](const Preparation& preparation) {
    return IsNew(preparation) || (!preparation.status.ok() && !preparation.quiet && !preparation.granted);
  });
  if (!needed) return;
  TRANCHE_FAULT_POINT("claims.prepare.before_intent");
  std::set<Preparation*> written;
  const absl::Status stored = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    for (Preparation& preparation : preparations) {
      if (IsNew(preparation)) {
        preparation.status = CheckOne(transaction, preparation, snapshot);
        if (preparation.status.ok()) {
          TRANCHE_RETURN_IF_ERROR(PutIntent(transaction, preparation));
          written.insert(&preparation);
        }
      }
      if (preparation.status.ok() || preparation.quiet || preparation.granted) continue;
      const store::ShareRow* share = preparation.culprit.has_value() ? &preparation.resolved[*preparation.culprit].row : nullptr;
      TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(Actor::kKubelet, "prepare", preparation.claim, share, preparation.status)));
    }
    return absl::OkStatus();
  });
  for (Preparation& preparation : preparations) {
    if (!stored.ok() && IsNew(preparation)) preparation.status = Annotate(stored, "store the intent");
    if (stored.ok() && written.contains(&preparation)) preparation.granted = preparation.calls_backend = true;
    // Whether the commit reached the disk is unknown: the row stays for a retry or for reconcile, nothing was applied.
    if (!stored.ok()) preparation.granted = false;
  }
  TRANCHE_FAULT_POINT("claims.prepare.after_intent");
}

absl::Status Claims::Impl::CheckOne(store::Transaction& transaction, Preparation& preparation, const inventory::Snapshot& snapshot) {
  TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(preparation.claim.driver, preparation.reference.uid));
  if (!IsUnchanged(preparation.before, now)) {
    preparation.quiet = true;
    preparation.granted = false;
    return ChangedMeanwhile(preparation.reference.uid);
  }
  const auto sets = snapshot.counter_sets.find(preparation.claim.driver);
  const std::vector<CounterSet> none;
  std::vector<capacity::Grant> own;
  for (std::size_t i = 0; i < preparation.resolved.size(); ++i) {
    const ResolvedShare& share = preparation.resolved[i];
    preparation.culprit = i;
    const capacity::Grant candidate = GrantOf(share.row);
    const auto check = [&](store::Holders holders) -> absl::Status {
      TRANCHE_ASSIGN_OR_RETURN(std::vector<capacity::Grant> live, LiveGrants(transaction, share.row, holders));
      live.insert(live.end(), own.begin(), own.end());
      return capacity::CheckGrant(share.device, candidate, live, sets == snapshot.counter_sets.end() ? none : sets->second);
    };
    if (!check(store::Holders::kCounted).ok()) TRANCHE_RETURN_IF_ERROR(NameHolders(transaction, share.row, check(store::Holders::kNamed)));
    own.push_back(candidate);
  }
  preparation.culprit.reset();
  return absl::OkStatus();
}

absl::Status Claims::Impl::PutIntent(store::Transaction& transaction, Preparation& preparation) {
  store::ClaimRow& claim = preparation.claim;
  TRANCHE_ASSIGN_OR_RETURN(const std::int64_t last, transaction.LastEpoch(claim.driver, claim.claim_uid));
  if (preparation.before.has_value()) TRANCHE_RETURN_IF_ERROR(transaction.DeleteClaim(claim.driver, claim.claim_uid));
  claim.epoch = last + 1;
  claim.allocation_version = AllocationVersion(preparation.allocation, claim.driver, claim.epoch);
  claim.state = store::ClaimState::kPreparing;
  claim.reason.clear();
  claim.created_at = claim.updated_at = std::chrono::system_clock::now();
  TRANCHE_RETURN_IF_ERROR(transaction.PutClaim(claim));
  preparation.shares.clear();
  for (const ResolvedShare& share : preparation.resolved) {
    TRANCHE_RETURN_IF_ERROR(transaction.PutPolicy(share.policy));
    if (!share.off_policy.empty()) {
      LogWarning("an allocation does not follow the policy of now; it is honoured", {{"share", Describe(share.row.key)}, {"why", share.off_policy}});
      AuditRecord record = MakeAudit(Actor::kKubelet, "off-policy", claim, &share.row, absl::OkStatus());
      record.message = share.off_policy;
      TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(record));
    }
    TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share.row));
    preparation.shares.push_back(share.row);
  }
  return absl::OkStatus();
}

void Claims::Impl::Apply(std::vector<Preparation>& preparations, Deadline deadline) {
  std::map<std::string, std::vector<backend::PrepareItem>> items;
  for (Preparation& preparation : preparations) {
    if (!preparation.status.ok() || !preparation.calls_backend) continue;
    if (Passed(deadline)) {
      preparation.status = absl::DeadlineExceededError(Cat("claim ", preparation.reference.uid, ": no time was left to prepare it; retry"));
      continue;
    }
    for (const store::ShareRow& share : preparation.shares) items[share.backend].push_back(ItemOf(preparation.claim, share));
  }
  if (items.empty()) return;
  const auto answers = CallPrepare(items, deadline);
  for (Preparation& preparation : preparations) {
    if (preparation.status.ok() && preparation.calls_backend) TakeAnswers(preparation, answers);
  }
  TRANCHE_FAULT_POINT("claims.prepare.after_backend");
}

void Claims::Impl::TakeAnswers(Preparation& preparation, const std::map<ShareKey, absl::StatusOr<AppliedShare>>& answers) const {
  const std::shared_ptr<const inventory::Snapshot> snapshot = dependencies_.inventory.Current();
  for (std::size_t i = 0; i < preparation.shares.size(); ++i) {
    store::ShareRow& share = preparation.shares[i];
    const absl::StatusOr<AppliedShare>& answer = answers.at(share.key);
    absl::Status status = answer.ok() ? CheckApplied(share, *answer, AllowedEdits(share.backend)) : answer.status();
    if (status.ok()) status = CheckEnforced(share, *answer, snapshot->Find(share.key.driver, share.key.pool, share.key.device));
    if (answer.ok()) share.applied = *answer;  // its state helps to take a refused share away again
    if (status.ok()) {
      share.state = store::ShareState::kApplied;
    } else if (preparation.status.ok()) {
      preparation.status = Annotate(status, Cat("prepare ", Describe(share.key)));
      preparation.culprit = i;
    }
  }
}

// After a reboot the rows of claims that are prepared already are there and the files, on a tmpfs, are not.
void Claims::Impl::RestoreFiles(std::vector<Preparation>& preparations) {
  for (Preparation& preparation : preparations) {
    if (!preparation.status.ok() || preparation.calls_backend || preparation.shares.empty()) continue;
    if (cdi_.Read(preparation.claim.driver, preparation.claim.claim_uid).ok()) continue;
    preparation.status = RestoreFile({preparation.claim, preparation.shares});
    preparation.quiet = absl::IsAborted(preparation.status);
  }
}

void Claims::Impl::Finish(std::vector<Preparation>& preparations) {
  const auto is_open = [](const Preparation& preparation) { return preparation.status.ok() && preparation.calls_backend; };
  if (std::none_of(preparations.begin(), preparations.end(), is_open)) return;
  const absl::Status stored = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    for (Preparation& preparation : preparations) {
      if (is_open(preparation)) TRANCHE_RETURN_IF_ERROR(PutOutcome(transaction, preparation));
    }
    return absl::OkStatus();
  });
  TRANCHE_FAULT_POINT("claims.prepare.after_outcome");
  if (stored.ok()) return;
  for (Preparation& preparation : preparations) {
    if (is_open(preparation)) preparation.status = Annotate(stored, "store the outcome");
  }
}

absl::Status Claims::Impl::PutOutcome(store::Transaction& transaction, Preparation& preparation) {
  store::ClaimRow& claim = preparation.claim;
  TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(claim.driver, claim.claim_uid));
  if (!IsCurrent(now, claim)) {
    preparation.quiet = true;
    // A newer prepare owns the same keys: what is applied is its own now. A release may have come too early for what was applied since: undo.
    if (now.has_value() && now->epoch != claim.epoch) preparation.granted = false;
    preparation.status = ChangedMeanwhile(claim.claim_uid);
    return absl::OkStatus();
  }
  preparation.status = WriteFile(claim, preparation.shares);
  TRANCHE_FAULT_POINT("claims.prepare.after_cdi");
  if (!preparation.status.ok()) return absl::OkStatus();
  claim.state = store::ClaimState::kPrepared;
  claim.updated_at = std::chrono::system_clock::now();
  TRANCHE_RETURN_IF_ERROR(transaction.PutClaim(claim));
  for (const store::ShareRow& share : preparation.shares) {
    TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share));
    TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(Actor::kKubelet, "prepare", claim, &share, absl::OkStatus())));
  }
  return absl::OkStatus();
}

void Claims::Impl::UndoFailed(std::vector<Preparation>& preparations, Deadline deadline) {
  std::vector<Release> releases;
  std::vector<const Preparation*> kept;  // prepared before, and still
  for (const Preparation& preparation : preparations) {
    if (preparation.status.ok()) continue;
    if (preparation.granted) releases.push_back({{preparation.claim, preparation.shares}, preparation.status, absl::OkStatus()});
    if (!preparation.granted && preparation.calls_backend && !preparation.quiet) kept.push_back(&preparation);
  }
  if (!releases.empty()) ReleaseAll(releases, Actor::kKubelet, deadline);
  if (kept.empty()) return;
  const absl::Status stored = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    for (const Preparation* preparation : kept) {
      const store::ShareRow* share = preparation->culprit.has_value() ? &preparation->shares[*preparation->culprit] : nullptr;
      TRANCHE_RETURN_IF_ERROR(transaction.AppendAudit(MakeAudit(Actor::kKubelet, "prepare", preparation->claim, share, preparation->status)));
    }
    return absl::OkStatus();
  });
  if (!stored.ok()) LogError("a refusal could not be recorded", {{"error", stored.ToString()}});
}

}  // namespace tranche::claims
