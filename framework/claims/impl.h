// What prepare.cc, unprepare.cc and reconcile.cc share. Internal to this room.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "claims/claims.h"
#include "claims/resolve.h"

namespace tranche::claims {

using ClaimId = std::pair<std::string, std::string>;  // driver, claim UID

// Calls for one (driver, UID) take turns. Several ids are taken in their order, so that two calls cannot wait for each other.
class ClaimLocks {
 public:
  class Held {
   public:
    Held(ClaimLocks& locks, ClaimId id) : locks_(&locks), id_(std::move(id)) {}
    Held(Held&& other) noexcept : locks_(std::exchange(other.locks_, nullptr)), id_(std::move(other.id_)) {}
    Held& operator=(Held&&) = delete;
    ~Held();

   private:
    ClaimLocks* locks_;
    ClaimId id_;
  };
  std::optional<Held> Acquire(const ClaimId& id, Deadline deadline);  // nullopt: the deadline passed
  std::optional<Held> TryAcquire(const ClaimId& id);

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::set<ClaimId> held_;
};

struct StoredClaim {
  store::ClaimRow claim;
  std::vector<store::ShareRow> shares;
};

// One claim of a Prepare call on its way. Moves on while `status` is OK.
struct Preparation {
  ClaimReference reference;
  absl::Status status;
  std::optional<StoredClaim> before;    // what the store had
  Allocation allocation;                // what the claim has
  std::vector<ResolvedShare> resolved;  // new shares; empty when the stored ones are answered again
  store::ClaimRow claim;                // the row as it becomes
  std::vector<store::ShareRow> shares;
  bool granted = false;  // the intent of this call is durable: a failure must be undone
  bool calls_backend = false;
  bool quiet = false;                  // a failure that is no refusal (the API did not answer): not audited
  std::optional<std::size_t> culprit;  // index in `shares`
};

// Whether the claim's row is as `known` was read or written by this process: nobody prepared or released the claim since. And the refusal where it is not.
bool IsCurrent(const std::optional<store::ClaimRow>& row, const store::ClaimRow& known);
absl::Status ChangedMeanwhile(const std::string& claim_uid);

// Who is the author of audit records.
enum class Actor { kKubelet, kReconcile, kOperator };

// One claim to release, and how it ended.
struct Release {
  StoredClaim stored;
  absl::Status failed_prepare;  // why a prepare is undone; OK: the claim is released
  absl::Status status;
  bool superseded = false;  // another host process prepared it anew: it is not ours to speak of
};

// One run of Reconcile. Holds the locks of every claim that it looks at.
struct Reconciliation {
  std::string backend;     // empty: all
  std::set<ClaimId> only;  // empty: all
  std::map<ClaimId, ClaimLocks::Held> locks;
  std::vector<StoredClaim> claims;                                 // those that are locked
  std::set<ShareKey> known;                                        // shares of every claim, locked or not
  std::set<std::string> drivers;                                   // whose leftovers are ours
  std::map<std::string, std::map<ShareKey, AppliedShare>> listed;  // by reachable backend
  std::vector<Repair> repairs;
  std::vector<absl::Status> errors;
};

// What reconcile found in force that the store knows nothing of. Thread-safe.
class UnknownShares {
 public:
  void Replace(const std::string& backend, const std::vector<UnknownShare>& shares);
  void Forget(const ClaimId& id);
  std::vector<UnknownShare> Of(const ClaimId& id) const;
  std::vector<UnknownShare> All() const;

 private:
  mutable std::mutex mutex_;
  std::map<ShareKey, UnknownShare> shares_;
};

class Claims::Impl {
 public:
  explicit Impl(Dependencies dependencies);

  PrepareAnswers Prepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline);
  UnprepareAnswers Unprepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline);
  absl::StatusOr<std::vector<Repair>> Reconcile(const std::string& backend, Deadline deadline);
  absl::StatusOr<std::vector<Repair>> VerifyAll(Deadline deadline);
  std::optional<WallTime> VerifiedAt(const std::string& backend) const;
  std::vector<UnknownShare> Unknown() const { return unknown_.All(); }
  absl::StatusOr<std::vector<ShareKey>> ReleaseUnknown(const std::string& claim_uid, Deadline deadline);
  std::vector<inventory::HeldOffer> HeldOffers() const;

 private:
  // claims.cc
  absl::StatusOr<std::optional<StoredClaim>> Find(const ClaimId& id);
  std::map<std::string, ClaimLocks::Held> LockAll(const std::string& driver, const std::map<std::string, ClaimReference>& claims, Deadline deadline);
  // A claim's CDI file changes only inside a transaction that has looked at the claim's row: two host processes that release and restore the same claim
  // cannot cross, so no file outlives its claim and no live claim loses its file.
  absl::Status WriteFile(const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares);  // inside such a transaction
  absl::Status RestoreFile(const StoredClaim& stored);                                               // Aborted: another host process changed the claim
  absl::Status RemoveUnknownFile(const ClaimId& id);                                                 // Aborted: another host process prepares it
  std::vector<PreparedDevice> Answer(const std::vector<store::ShareRow>& shares) const;
  backend::EditAllowList AllowedEdits(const std::string& backend) const;
  backend::PrepareItem ItemOf(const store::ClaimRow& claim, const store::ShareRow& share) const;
  // One backend call per backend for the given shares; fills `applied` or gives the error, by key.
  std::map<ShareKey, absl::StatusOr<AppliedShare>> CallPrepare(const std::map<std::string, std::vector<backend::PrepareItem>>& items, Deadline deadline);

  // prepare.cc
  void PlanAll(std::vector<Preparation>& preparations, const inventory::Snapshot& snapshot, Deadline deadline);
  absl::Status Plan(Preparation& preparation, const inventory::Snapshot& snapshot, Deadline deadline);
  absl::Status FinishUnprepare(Preparation& preparation, Deadline deadline);
  absl::Status PlanAgain(Preparation& preparation, const Claim& claim);
  absl::Status PlanNew(Preparation& preparation, const Claim& claim, const inventory::Snapshot& snapshot);
  void Grant(std::vector<Preparation>& preparations, const inventory::Snapshot& snapshot);
  absl::Status CheckOne(store::Transaction& transaction, Preparation& preparation, const inventory::Snapshot& snapshot);
  absl::Status PutIntent(store::Transaction& transaction, Preparation& preparation);
  void Apply(std::vector<Preparation>& preparations, Deadline deadline);
  void TakeAnswers(Preparation& preparation, const std::map<ShareKey, absl::StatusOr<AppliedShare>>& answers) const;
  void RestoreFiles(std::vector<Preparation>& preparations);
  void Finish(std::vector<Preparation>& preparations);
  absl::Status PutOutcome(store::Transaction& transaction, Preparation& preparation);
  void UndoFailed(std::vector<Preparation>& preparations, Deadline deadline);

  // unprepare.cc. The caller holds the claims' locks. Marks → backend → files and rows; what fails stays in the store as unpreparing.
  void ReleaseAll(std::vector<Release>& releases, Actor actor, Deadline deadline);
  void MarkReleasing(std::vector<Release>& releases);
  void CallUnprepare(std::vector<Release>& releases, Deadline deadline);
  void Forget(std::vector<Release>& releases, Actor actor);
  absl::Status ForgetOne(store::Transaction& transaction, Release& release, Actor actor);
  void RejoinWhenDrained(const std::vector<Release>& releases);

  // reconcile.cc
  bool IsLeftover(const StoredClaim& stored) const;
  bool Lock(Reconciliation& work, const ClaimId& id);
  absl::Status Load(Reconciliation& work);
  void ReleaseLeftovers(Reconciliation& work, Deadline deadline);
  void ListBackends(Reconciliation& work, Deadline deadline);
  void Remake(Reconciliation& work, Deadline deadline);
  absl::StatusOr<std::set<const StoredClaim*>> StoreRemade(Reconciliation& work, const std::vector<const StoredClaim*>& claims);
  void TakeBack(Reconciliation& work, std::vector<Release> superseded, Deadline deadline);
  void RewriteFiles(Reconciliation& work);
  void RemoveOrphanShares(Reconciliation& work, Deadline deadline);
  bool IsOrphanFile(Reconciliation& work, const ClaimId& id);
  void RemoveOrphanFiles(Reconciliation& work);

  // unknown.cc
  enum class Origin { kStored, kReleased, kUnknown };  // has a row, or a call is at work; had one; never had one
  Origin OriginOf(Reconciliation& work, const ShareKey& key);
  Release ReleaseOf(const store::ClaimRow& claim, const std::vector<UnknownShare>& unknown) const;
  absl::StatusOr<std::vector<Repair>> Conclude(const Reconciliation& work) const;

  // verify.cc. Differences are looked for without a lock and looked at again, and repaired, under the locks of the claims in question.
  absl::Status LoadPrepared(Reconciliation& work);
  std::set<ClaimId> FindSuspects(const Reconciliation& look) const;
  bool IsToWait(const ClaimId& id) const;
  void Postpone(const ClaimId& id);
  void NoteRepair(const StoredClaim& stored, const absl::Status& outcome);
  void NoteVerified(const Reconciliation& work, const std::set<ClaimId>& suspects);
  void RefreshVerified(const std::vector<const StoredClaim*>& claims, WallTime now);

  // notify.cc. The caller holds the claim's lock. Nothing is built when nobody observes.
  void Notify(ClaimChange change, const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares, const absl::Status& why = {}) const;
  void NotifyPreparations(const std::vector<Preparation>& preparations) const;
  void NotifyReleases(const std::vector<Release>& releases) const;
  void NotifyDrift(const Reconciliation& work, const StoredClaim& stored) const;

  Dependencies dependencies_;
  cdi::Directory cdi_;
  ClaimLocks locks_;
  UnknownShares unknown_;
  mutable std::mutex verified_mutex_;
  std::map<std::string, WallTime> verified_at_;  // by backend
  std::map<ClaimId, Deadline> repair_again_;     // claims whose repair failed: not before
  std::atomic<bool> announced_ = false;          // the observer has heard of every claim that was prepared before the start
};

// The limit of the same capacity and direction; null: none.
const LimitInForce* FindLimit(const AppliedShare& applied, const LimitInForce& like);

// In words, how what is listed differs from what the share was granted; empty: it does not. Null: nothing is listed.
std::string DriftOf(const store::ShareRow& share, const AppliedShare* listed);

// The audit record of a share, or of a claim when `share` is null.
AuditRecord MakeAudit(Actor actor, std::string_view action, const store::ClaimRow& claim, const store::ShareRow* share, const absl::Status& outcome);

// CAP-4 and the contract of `prepare`: the answer is for this key, complete, its edits are allowed and every limit is what was asked.
absl::Status CheckApplied(const store::ShareRow& share, const AppliedShare& applied, const backend::EditAllowList& allowed);

// At least this long for undoing, whatever the caller's deadline.
inline Deadline AtLeast(Deadline deadline, std::chrono::milliseconds duration) {
  const Deadline least = DeadlineIn(duration);
  return deadline < least ? least : deadline;
}

}  // namespace tranche::claims
