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

// Calls for one (driver, UID) take turns. Several ids are taken in their order, so that two calls cannot wait for each other; who takes what is free
// holds nothing while it waits.
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
  // Those of `ids` that are free, as soon as one is. None: the deadline passed.
  std::map<ClaimId, Held> AcquireFree(const std::set<ClaimId>& ids, Deadline deadline);

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

// A look at what is stored and what backends have in force: first at everything, without a lock, then at a part, with the locks of its claims.
struct Reconciliation {
  std::set<std::string> ask;      // backends that are to list what they have
  std::set<ClaimId> ids;          // of a part: what it is about
  std::set<ClaimId> busy;         // those of them that a call is at work on: left to that call
  std::set<std::string> drivers;  // whose leftovers are ours
  std::map<ClaimId, ClaimLocks::Held> locks;
  std::vector<StoredClaim> claims;
  std::set<ShareKey> known;                                        // the shares of `claims`
  std::map<std::string, std::map<ShareKey, AppliedShare>> listed;  // by reachable backend
  std::vector<Repair> repairs;
  std::vector<absl::Status> errors;
};

// Where stored and applied seem to differ, with all backends that have to do with it.
using Differences = std::map<ClaimId, std::set<std::string>>;

// What reconcile found in force that the store knows nothing of. Thread-safe.
class UnknownShares {
 public:
  // What is unknown of these claims, whose locks the caller holds.
  void Replace(const std::string& backend, const std::set<ClaimId>& ids, const std::vector<UnknownShare>& shares);
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

  PrepareAnswers Prepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up);
  UnprepareAnswers Unprepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up);
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
  // One backend call per backend for the given shares, side by side; fills `applied` or gives the error, by key.
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
  UnprepareAnswers UnprepareLocked(const std::string& driver, const std::map<std::string, ClaimReference>& claims, Deadline deadline);
  void MarkReleasing(std::vector<Release>& releases);
  void CallUnprepare(std::vector<Release>& releases, Deadline deadline);
  void Forget(std::vector<Release>& releases, Actor actor);
  absl::Status ForgetOne(store::Transaction& transaction, Release& release, Actor actor);
  void RejoinWhenDrained(const std::vector<Release>& releases);

  // reconcile.cc. Differences are looked for without a lock, so that a backend that hangs holds nobody up. What seems to differ is looked at again, and
  // repaired, with the locks of its claims: one part per set of backends, so that no part waits for a backend that it has nothing to do with, and no claim
  // is in two parts.
  absl::StatusOr<std::vector<StoredClaim>> ReadClaims();
  void ListBackends(Reconciliation& work, Deadline deadline);
  bool IsLeftover(const StoredClaim& stored) const;
  bool Differs(const Reconciliation& look, const StoredClaim& stored) const;
  Differences FindDifferences(const Reconciliation& look, const std::string& backend) const;
  void RepairInParts(Reconciliation& look, const Differences& differences, const std::function<void(Reconciliation&)>& repair);
  absl::Status Load(Reconciliation& part);
  void RepairPart(Reconciliation& work, Deadline deadline);
  void ReleaseLeftovers(Reconciliation& work, Deadline deadline);
  void Remake(Reconciliation& work, Deadline deadline);
  absl::StatusOr<std::set<const StoredClaim*>> StoreRemade(Reconciliation& work, const std::vector<const StoredClaim*>& claims);
  void TakeBack(Reconciliation& work, std::vector<Release> superseded, Deadline deadline);
  void RewriteFiles(Reconciliation& work);
  void RemoveOrphanShares(Reconciliation& work, Deadline deadline);
  bool IsOrphanFile(Reconciliation& work, const ClaimId& id);
  void RemoveOrphanFiles(Reconciliation& look);
  absl::StatusOr<std::vector<Repair>> Conclude(const Reconciliation& work) const;

  // unknown.cc
  enum class Origin { kStored, kReleased, kUnknown };          // has a row; had one; never had one
  Origin OriginOf(Reconciliation& work, const ShareKey& key);  // with the claim's lock held
  Release ReleaseOf(const store::ClaimRow& claim, const std::vector<UnknownShare>& unknown) const;

  // verify.cc
  bool IsToWait(const ClaimId& id) const;
  void Postpone(const ClaimId& id);
  void NoteRepair(const StoredClaim& stored, const absl::Status& outcome);
  void NoteVerified(const Reconciliation& look, const Differences& suspects);
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

// Runs every task and returns when all have ended: the first here, each other on a thread of its own, so that none waits for another.
void SideBySide(const std::vector<std::function<void()>>& tasks);

// The answer for a backend that was left no time: a call with a passed deadline can only be given up.
absl::Status NotCalled(const std::string& backend);

ClaimId IdOf(const StoredClaim& stored);
ClaimId IdOf(const ShareKey& key);
std::set<std::string> BackendsOf(const StoredClaim& stored);

// The limit of the same capacity and direction; null: none.
const LimitInForce* FindLimit(const AppliedShare& applied, const LimitInForce& like);

// In words, how what is listed differs from what the share was granted; empty: it does not. Null: nothing is listed.
std::string DriftOf(const store::ShareRow& share, const AppliedShare* listed);

// Whether one of its shares is not in force as granted, as far as their backends answered.
bool Drifts(const Reconciliation& look, const StoredClaim& stored);

// The audit record of a share, or of a claim when `share` is null.
AuditRecord MakeAudit(Actor actor, std::string_view action, const store::ClaimRow& claim, const store::ShareRow* share, const absl::Status& outcome);

// Of a claim whose lock was not had in time, or (`is_late`) whose call was given up before it was had.
absl::Status NotBegun(const std::string& claim_uid, bool is_late);

// CAP-4 and the contract of `prepare`: the answer is for this key, complete, its edits are allowed and every limit is what was asked.
absl::Status CheckApplied(const store::ShareRow& share, const AppliedShare& applied, const backend::EditAllowList& allowed);
// Of a new share: whether the backend put a limit in force for everything that `device` (may be null) says is limited. The number of shares needs none.
absl::Status CheckEnforced(const store::ShareRow& share, const AppliedShare& applied, const PublishedDevice* device);

// At least this long for undoing, whatever the caller's deadline.
inline Deadline AtLeast(Deadline deadline, std::chrono::milliseconds duration) {
  const Deadline least = DeadlineIn(duration);
  return deadline < least ? least : deadline;
}

// A first look may take half of the time: what hangs in it leaves the other half for the repairs of everybody else.
inline Deadline HalfOf(Deadline deadline) { return deadline - (deadline - std::chrono::steady_clock::now()) / 2; }

}  // namespace tranche::claims
