#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"
#include "telemetry/log.h"

namespace tranche::claims {
namespace {

// Each failed repair leaves records: not every few seconds.
constexpr std::chrono::seconds kFailedRepairPause{60};

__extension__ using Wide = __int128;  // memory limits times a thousand do not fit 64 bits

// As generous as the check of a prepare's answer: within that a backend may round.
bool IsInForce(std::int64_t granted, std::int64_t in_force) {
  return Wide{in_force} * 1000 <= Wide{granted} * 1001 && Wide{in_force} * 100 >= Wide{granted} * 98;
}

std::string What(const LimitInForce& limit) { return Cat(limit.capacity, limit.direction.empty() ? "" : " ", limit.direction); }

// A backend that lists a share as complete may leave its limits out; those that it lists count.
std::string WrongLimits(const AppliedShare& granted, const AppliedShare& listed) {
  std::string text;
  for (const LimitInForce& limit : granted.limits) {
    const LimitInForce* now = FindLimit(listed, limit);
    if (now == nullptr && listed.applied == AppliedState::kComplete) continue;
    if (now != nullptr && IsInForce(limit.requested, now->in_force)) continue;
    Append(text, text.empty() ? "" : "; ", What(limit), ": ", limit.requested, " was granted, ", now == nullptr ? std::string("no limit") : Cat(now->in_force),
           " is in force (", limit.mechanism, ")");
  }
  return text;
}

bool IsStale(const store::ShareRow& share, WallTime now) {
  return share.applied.has_value() && std::any_of(share.applied->limits.begin(), share.applied->limits.end(),
                                                  [&](const LimitInForce& limit) { return now - limit.verified_at >= kVerifiedWriteInterval; });
}

}  // namespace

const LimitInForce* FindLimit(const AppliedShare& applied, const LimitInForce& like) {
  const auto found = std::find_if(applied.limits.begin(), applied.limits.end(),
                                  [&](const LimitInForce& limit) { return limit.capacity == like.capacity && limit.direction == like.direction; });
  return found == applied.limits.end() ? nullptr : &*found;
}

std::string DriftOf(const store::ShareRow& share, const AppliedShare* listed) {
  if (listed == nullptr) return "what was applied is gone";
  if (listed->applied == AppliedState::kForeign) return "what is there in its place is not ours; it was left alone";
  if (!share.applied.has_value()) return "its prepare did not get to its end";
  if (std::string wrong = WrongLimits(*share.applied, *listed); !wrong.empty()) return wrong;
  if (listed->applied != AppliedState::kComplete) return "a part of what was applied is gone or was changed";
  if (share.state != store::ShareState::kApplied || share.applied->applied != AppliedState::kComplete) return "it could not be re-made before";
  return {};
}

absl::StatusOr<std::vector<Repair>> Claims::Impl::VerifyAll(Deadline deadline) {
  Reconciliation look;
  TRANCHE_RETURN_IF_ERROR(LoadPrepared(look));
  if (look.claims.empty()) {
    announced_ = true;
    return look.repairs;
  }
  look.only.insert(ClaimId{});  // only backends with shares are asked
  ListBackends(look, deadline);
  std::set<ClaimId> suspects = FindSuspects(look);
  NoteVerified(look, suspects);
  std::erase_if(suspects, [this](const ClaimId& id) { return IsToWait(id); });
  if (suspects.empty()) return Conclude(look);
  // One that was released or prepared meanwhile looks different; with its lock held it is looked at again.
  Reconciliation work;
  work.only = std::move(suspects);
  TRANCHE_RETURN_IF_ERROR(Load(work));
  std::erase_if(work.claims, [](const StoredClaim& stored) { return stored.claim.state != store::ClaimState::kPrepared; });
  ListBackends(work, deadline);
  Remake(work, deadline);
  for (const Repair& repair : work.repairs) {
    if (repair.what == "quarantined") Postpone({repair.key.driver, repair.key.claim_uid});  // Reconcile reports it again
  }
  return Conclude(work);
}

std::set<ClaimId> Claims::Impl::FindSuspects(const Reconciliation& look) const {
  std::set<ClaimId> suspects;
  for (const StoredClaim& stored : look.claims) {
    for (const store::ShareRow& share : stored.shares) {
      const auto listed = look.listed.find(share.backend);
      if (listed == look.listed.end()) continue;
      const auto applied = listed->second.find(share.key);
      const bool is_right = applied != listed->second.end() && DriftOf(share, &applied->second).empty();
      if (!is_right) suspects.insert({stored.claim.driver, stored.claim.claim_uid});
    }
  }
  return suspects;
}

bool Claims::Impl::IsToWait(const ClaimId& id) const {
  const std::lock_guard lock(verified_mutex_);
  const auto again = repair_again_.find(id);
  return again != repair_again_.end() && !Passed(again->second);
}

void Claims::Impl::Postpone(const ClaimId& id) {
  const std::lock_guard lock(verified_mutex_);
  std::erase_if(repair_again_, [](const auto& entry) { return Passed(entry.second); });
  repair_again_[id] = DeadlineIn(kFailedRepairPause);
}

void Claims::Impl::NoteRepair(const StoredClaim& stored, const absl::Status& outcome) {
  if (!outcome.ok()) Postpone({stored.claim.driver, stored.claim.claim_uid});
  Notify(outcome.ok() ? ClaimChange::kRepaired : ClaimChange::kDrifted, stored.claim, stored.shares, outcome);
}

absl::Status Claims::Impl::LoadPrepared(Reconciliation& work) {
  return dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ClaimRow> claims, transaction.Claims());
    if (claims.empty()) return absl::OkStatus();
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.Shares());
    std::map<ClaimId, std::vector<store::ShareRow>> by_claim;
    for (store::ShareRow& share : shares) by_claim[{share.key.driver, share.key.claim_uid}].push_back(std::move(share));
    for (store::ClaimRow& claim : claims) {
      if (claim.state != store::ClaimState::kPrepared) continue;
      std::vector<store::ShareRow> own = std::move(by_claim[{claim.driver, claim.claim_uid}]);
      work.claims.push_back({std::move(claim), std::move(own)});
    }
    return absl::OkStatus();
  });
}

void Claims::Impl::NoteVerified(const Reconciliation& work, const std::set<ClaimId>& suspects) {
  const WallTime now = std::chrono::system_clock::now();
  const bool announce = !announced_;
  std::set<std::string> wrong;
  std::vector<const StoredClaim*> stale;
  for (const StoredClaim& stored : work.claims) {
    const bool is_right = !suspects.contains({stored.claim.driver, stored.claim.claim_uid});
    const bool is_known =
        std::all_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) { return work.listed.contains(share.backend); });
    for (const store::ShareRow& share : stored.shares) {
      if (!is_right) wrong.insert(share.backend);
    }
    const bool is_old = std::any_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) { return IsStale(share, now); });
    if (is_right && is_known && (announce || is_old)) stale.push_back(&stored);
  }
  {
    const std::lock_guard lock(verified_mutex_);
    for (const auto& [backend, shares] : work.listed) {
      if (!wrong.contains(backend)) verified_at_[backend] = now;
    }
  }
  RefreshVerified(stale, now);
  if (work.errors.empty()) announced_ = true;
}

// With the claims' locks, so that nobody hears of a verification after the release. Claims that a call is at work on have their turn next time.
void Claims::Impl::RefreshVerified(const std::vector<const StoredClaim*>& claims, WallTime now) {
  if (claims.empty()) return;
  std::vector<ClaimLocks::Held> locks;
  std::vector<StoredClaim> verified;
  for (const StoredClaim* stored : claims) {
    std::optional<ClaimLocks::Held> lock = locks_.TryAcquire({stored->claim.driver, stored->claim.claim_uid});
    if (!lock.has_value()) continue;
    locks.push_back(*std::move(lock));
    verified.push_back(*stored);
  }
  std::vector<StoredClaim> kept;
  const absl::Status written = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    kept.clear();
    for (const StoredClaim& stored : verified) {
      TRANCHE_ASSIGN_OR_RETURN(const auto claim, transaction.FindClaim(stored.claim.driver, stored.claim.claim_uid));
      if (!IsCurrent(claim, stored.claim)) continue;
      kept.push_back(stored);
      for (store::ShareRow& share : kept.back().shares) {
        const bool is_old = IsStale(share, now);
        for (LimitInForce& limit : share.applied->limits) limit.verified_at = now;
        if (is_old) TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share));
      }
    }
    return absl::OkStatus();
  });
  if (!written.ok()) {
    LogWarning("the time of the last verification could not be stored", {{"reason", std::string(written.message())}});
    return;
  }
  for (const StoredClaim& stored : kept) Notify(ClaimChange::kVerified, stored.claim, stored.shares);
}

std::optional<WallTime> Claims::Impl::VerifiedAt(const std::string& backend) const {
  const std::lock_guard lock(verified_mutex_);
  const auto found = verified_at_.find(backend);
  if (found == verified_at_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tranche::claims
