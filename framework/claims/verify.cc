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

bool Drifts(const Reconciliation& look, const StoredClaim& stored) {
  return std::any_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) {
    const auto listed = look.listed.find(share.backend);
    if (listed == look.listed.end()) return false;
    const auto applied = listed->second.find(share.key);
    return !DriftOf(share, applied == listed->second.end() ? nullptr : &applied->second).empty();
  });
}

absl::StatusOr<std::vector<Repair>> Claims::Impl::VerifyAll(Deadline deadline) {
  Reconciliation look;
  TRANCHE_ASSIGN_OR_RETURN(look.claims, ReadClaims());
  const auto is_not_prepared = [](const StoredClaim& stored) { return stored.claim.state != store::ClaimState::kPrepared; };
  std::erase_if(look.claims, is_not_prepared);
  if (look.claims.empty()) {
    announced_ = true;
    return look.repairs;
  }
  for (const StoredClaim& stored : look.claims) look.ask.merge(BackendsOf(stored));  // only backends with shares
  ListBackends(look, HalfOf(deadline));
  Differences suspects;
  for (const StoredClaim& stored : look.claims) {
    if (Drifts(look, stored)) suspects.emplace(IdOf(stored), BackendsOf(stored));
  }
  NoteVerified(look, suspects);
  std::erase_if(suspects, [this](const auto& suspect) { return IsToWait(suspect.first); });
  RepairInParts(look, suspects, [&](Reconciliation& part) {
    std::erase_if(part.claims, is_not_prepared);
    ListBackends(part, deadline);
    Remake(part, deadline);
  });
  for (const Repair& repair : look.repairs) {
    if (repair.what == "quarantined") Postpone(IdOf(repair.key));  // Reconcile reports it again
  }
  return Conclude(look);
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

void Claims::Impl::NoteVerified(const Reconciliation& look, const Differences& suspects) {
  const WallTime now = std::chrono::system_clock::now();
  const bool announce = !announced_;
  std::set<std::string> wrong;
  std::vector<const StoredClaim*> stale;
  for (const StoredClaim& stored : look.claims) {
    const bool is_right = !suspects.contains(IdOf(stored));
    const bool is_known =
        std::all_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) { return look.listed.contains(share.backend); });
    for (const store::ShareRow& share : stored.shares) {
      if (!is_right) wrong.insert(share.backend);
    }
    const bool is_old = std::any_of(stored.shares.begin(), stored.shares.end(), [&](const store::ShareRow& share) { return IsStale(share, now); });
    if (is_right && is_known && (announce || is_old)) stale.push_back(&stored);
  }
  {
    const std::lock_guard lock(verified_mutex_);
    for (const auto& [backend, shares] : look.listed) {
      if (!wrong.contains(backend)) verified_at_[backend] = now;
    }
  }
  RefreshVerified(stale, now);
  if (look.errors.empty()) announced_ = true;
}

// With the claims' locks, so that nobody hears of a verification after the release. Claims that a call is at work on have their turn next time, and so have
// those that one has changed since they were looked at: neither is known to be in force as it is stored now.
void Claims::Impl::RefreshVerified(const std::vector<const StoredClaim*>& claims, WallTime now) {
  if (claims.empty()) return;
  std::vector<ClaimLocks::Held> locks;
  std::vector<const StoredClaim*> verified;
  for (const StoredClaim* stored : claims) {
    std::optional<ClaimLocks::Held> lock = locks_.TryAcquire(IdOf(*stored));
    if (!lock.has_value()) continue;
    locks.push_back(*std::move(lock));
    verified.push_back(stored);
  }
  std::vector<StoredClaim> kept;
  const absl::Status written = dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    kept.clear();
    for (const StoredClaim* stored : verified) {
      const store::ClaimRow& seen = stored->claim;
      TRANCHE_ASSIGN_OR_RETURN(const auto claim, transaction.FindClaim(seen.driver, seen.claim_uid));
      if (!IsCurrent(claim, seen)) continue;
      TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.SharesOfClaim(seen.driver, seen.claim_uid));
      if (!std::is_permutation(shares.begin(), shares.end(), stored->shares.begin(), stored->shares.end())) continue;
      for (store::ShareRow& share : shares) {
        const bool is_old = IsStale(share, now);
        for (LimitInForce& limit : share.applied->limits) limit.verified_at = now;
        if (is_old) TRANCHE_RETURN_IF_ERROR(transaction.PutShare(share));
      }
      kept.push_back({*claim, std::move(shares)});
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
