#include "claims/claims.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "claims/impl.h"
#include "model/json.h"
#include "telemetry/log.h"

namespace tranche::claims {
namespace {

const config::BackendConfiguration* FindBackend(const config::HostConfiguration& configuration, const std::string& name) {
  const auto found = std::find_if(configuration.backends.begin(), configuration.backends.end(),
                                  [&](const config::BackendConfiguration& backend) { return backend.name == name; });
  return found == configuration.backends.end() ? nullptr : &*found;
}

__extension__ using Wide = __int128;  // memory limits times a thousand do not fit 64 bits

absl::Status CheckLimit(const store::ShareRow& share, const LimitInForce& limit) {
  const Wide in_force = limit.in_force, requested = limit.requested;
  const std::string what = Cat(limit.capacity, limit.direction.empty() ? "" : " ", limit.direction);
  if (in_force * 1000 > requested * 1001 || in_force * 100 < requested * 98) {
    return absl::FailedPreconditionError(Cat("backend '", share.backend, "' put a limit of ", limit.in_force, " in force for ", what, " instead of ",
                                             limit.requested, "; the share was refused"));
  }
  const auto consumed = share.consumed.find(limit.capacity);
  if (consumed == share.consumed.end()) return absl::OkStatus();
  TRANCHE_ASSIGN_OR_RETURN(const std::int64_t granted, consumed->second.CeilToInt64());
  if (limit.requested == granted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Cat("backend '", share.backend, "' took ", limit.requested, " for ", what, ", but ", granted, " was granted; the share was refused"));
}

}  // namespace

ClaimLocks::Held::~Held() {
  if (locks_ == nullptr) return;
  {
    const std::lock_guard lock(locks_->mutex_);
    locks_->held_.erase(id_);
  }
  locks_->released_.notify_all();
}

std::optional<ClaimLocks::Held> ClaimLocks::Acquire(const ClaimId& id, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!released_.wait_until(lock, deadline, [&] { return !held_.contains(id); })) return std::nullopt;
  held_.insert(id);
  return std::optional<Held>(std::in_place, *this, id);
}

std::optional<ClaimLocks::Held> ClaimLocks::TryAcquire(const ClaimId& id) {
  const std::lock_guard lock(mutex_);
  if (!held_.insert(id).second) return std::nullopt;
  return std::optional<Held>(std::in_place, *this, id);
}

std::map<ClaimId, ClaimLocks::Held> ClaimLocks::AcquireFree(const std::set<ClaimId>& ids, Deadline deadline) {
  std::map<ClaimId, Held> free;
  std::unique_lock lock(mutex_);
  const auto is_free = [this](const ClaimId& id) { return !held_.contains(id); };
  if (!released_.wait_until(lock, deadline, [&] { return std::any_of(ids.begin(), ids.end(), is_free); })) return free;
  for (const ClaimId& id : ids) {
    if (held_.insert(id).second) free.try_emplace(id, *this, id);
  }
  return free;
}

void SideBySide(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < tasks.size(); ++i) {
    try {
      threads.emplace_back(tasks[i]);
    } catch (const std::system_error&) {  // no thread is to be had: late is better than never
      tasks[i]();
    }
  }
  if (!tasks.empty()) tasks.front()();
}

absl::Status NotCalled(const std::string& backend) { return absl::DeadlineExceededError(Cat("backend '", backend, "' was left no time to answer; retry")); }

ClaimId IdOf(const StoredClaim& stored) { return {stored.claim.driver, stored.claim.claim_uid}; }

ClaimId IdOf(const ShareKey& key) { return {key.driver, key.claim_uid}; }

std::set<std::string> BackendsOf(const StoredClaim& stored) {
  std::set<std::string> backends;
  for (const store::ShareRow& share : stored.shares) backends.insert(share.backend);
  return backends;
}

bool IsCurrent(const std::optional<store::ClaimRow>& row, const store::ClaimRow& known) {
  return row.has_value() && row->epoch == known.epoch && row->state == known.state;
}

absl::Status ChangedMeanwhile(const std::string& claim_uid) {
  return absl::AbortedError(Cat("claim ", claim_uid, " was changed by another host process meanwhile; retry"));
}

AuditRecord MakeAudit(Actor actor, std::string_view action, const store::ClaimRow& claim, const store::ShareRow* share, const absl::Status& outcome) {
  AuditRecord record;
  record.at = std::chrono::system_clock::now();
  record.actor = actor == Actor::kKubelet ? "kubelet" : actor == Actor::kOperator ? "operator" : "reconcile";
  record.action = action;
  record.tenant = claim.namespace_name;
  record.claim = claim.name;
  record.claim_uid = claim.claim_uid;
  record.driver = claim.driver;
  record.capacity = "{}";
  record.allocation_version = claim.allocation_version;
  record.outcome = CodeName(outcome.code());
  record.message = View(outcome.message());
  if (share == nullptr) return record;
  record.request = share->key.request;
  record.pool = share->key.pool;
  record.device = share->key.device;
  record.share_id = share->key.share_id;
  record.capacity = ToJsonText(EncodeQuantities(share->consumed));
  record.policy_version = share->policy_version;
  return record;
}

absl::Status CheckEnforced(const store::ShareRow& share, const AppliedShare& applied, const PublishedDevice* device) {
  if (device == nullptr || device->mode != Mode::kShare) return absl::OkStatus();
  for (const auto& [name, amount] : share.consumed) {
    const auto capacity = device->capacity.find(name);
    if (name == "shares" || amount.IsZero() || capacity == device->capacity.end() || capacity->second.enforcement == Enforcement::kNone) continue;
    const bool limited =
        std::any_of(applied.limits.begin(), applied.limits.end(), [&wanted = name](const LimitInForce& limit) { return limit.capacity == wanted; });
    if (limited) continue;
    return absl::FailedPreconditionError(Cat("backend '", share.backend, "' put no limit in force for ", name, ", which it says to enforce '",
                                             EnforcementName(capacity->second.enforcement), "'; the share was refused"));
  }
  return absl::OkStatus();
}

absl::Status NotBegun(const std::string& claim_uid, bool is_late) {
  return absl::AbortedError(
      Cat("claim ", claim_uid,
          is_late ? ": the call was given up before the work began; nothing was done; retry" : ": another call for it is still at work; retry"));
}

absl::Status CheckApplied(const store::ShareRow& share, const AppliedShare& applied, const backend::EditAllowList& allowed) {
  if (applied.key != share.key) {
    return absl::InternalError(Cat("backend '", share.backend, "' answered for ", Describe(applied.key), " instead of ", Describe(share.key)));
  }
  if (applied.applied != AppliedState::kComplete) {
    return absl::InternalError(Cat("backend '", share.backend, "' applied ", Describe(share.key), " only as '", AppliedStateName(applied.applied), "'"));
  }
  // Edits that were accepted once stay accepted for the share's life, whatever the configuration says by then.
  if (!share.applied.has_value() || share.applied->edits != applied.edits) {
    TRANCHE_RETURN_IF_ERROR(Annotate(backend::CheckEdits(applied.edits, allowed), Cat("backend '", share.backend, "'")));
  }
  for (const LimitInForce& limit : applied.limits) TRANCHE_RETURN_IF_ERROR(CheckLimit(share, limit));
  return absl::OkStatus();
}

Claims::Impl::Impl(Dependencies dependencies) : dependencies_(std::move(dependencies)), cdi_(dependencies_.cdi_directory) {}

absl::StatusOr<std::optional<StoredClaim>> Claims::Impl::Find(const ClaimId& id) {
  std::optional<StoredClaim> stored;
  TRANCHE_RETURN_IF_ERROR(dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(std::optional<store::ClaimRow> claim, transaction.FindClaim(id.first, id.second));
    if (!claim.has_value()) return absl::OkStatus();
    TRANCHE_ASSIGN_OR_RETURN(std::vector<store::ShareRow> shares, transaction.SharesOfClaim(id.first, id.second));
    stored = StoredClaim{*std::move(claim), std::move(shares)};
    return absl::OkStatus();
  }));
  return stored;
}

std::map<std::string, ClaimLocks::Held> Claims::Impl::LockAll(const std::string& driver, const std::map<std::string, ClaimReference>& claims,
                                                              Deadline deadline) {
  std::map<std::string, ClaimLocks::Held> held;
  for (const auto& [uid, reference] : claims) {
    std::optional<ClaimLocks::Held> lock = locks_.Acquire({driver, uid}, deadline);
    if (lock.has_value()) held.emplace(uid, *std::move(lock));
  }
  return held;
}

absl::Status Claims::Impl::WriteFile(const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares) {
  std::vector<cdi::Device> devices;
  for (const store::ShareRow& share : shares) {
    if (share.applied.has_value()) devices.push_back({cdi::DeviceName(share.key), share.applied->edits});
  }
  return Annotate(cdi_.Write(claim.driver, claim.claim_uid, devices), "write the CDI file");
}

absl::Status Claims::Impl::RestoreFile(const StoredClaim& stored) {
  const store::ClaimRow& claim = stored.claim;
  return dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(claim.driver, claim.claim_uid));
    if (!IsCurrent(now, claim)) return ChangedMeanwhile(claim.claim_uid);
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.SharesOfClaim(claim.driver, claim.claim_uid));
    return WriteFile(claim, shares);
  });
}

absl::Status Claims::Impl::RemoveUnknownFile(const ClaimId& id) {
  return dependencies_.store.Write([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::optional<store::ClaimRow> now, transaction.FindClaim(id.first, id.second));
    if (now.has_value()) return absl::AbortedError(Cat("claim ", id.second, " is being prepared by another host process; retry"));
    return cdi_.Remove(id.first, id.second);
  });
}

std::vector<PreparedDevice> Claims::Impl::Answer(const std::vector<store::ShareRow>& shares) const {
  std::vector<PreparedDevice> devices;
  for (const store::ShareRow& share : shares) {
    PreparedDevice device;
    device.request_names = {std::string(BaseRequest(share.key.request))};
    device.pool = share.key.pool;
    device.device = share.key.device;
    device.share_id = share.key.share_id;
    // A device without edits has no entry in the CDI file, and an id without an entry would keep the container from starting.
    if (share.applied.has_value() && share.applied->edits != ContainerEdits{}) device.cdi_device_ids = {cdi::DeviceId(share.key.driver, share.key)};
    devices.push_back(std::move(device));
  }
  return devices;
}

backend::EditAllowList Claims::Impl::AllowedEdits(const std::string& backend) const {
  const auto snapshot = dependencies_.inventory.Current();
  const config::BackendConfiguration* configured = FindBackend(snapshot->configuration, backend);
  if (configured == nullptr) return {};
  const config::AllowEdits& allow = configured->allow_edits;
  return {allow.device_nodes, allow.mounts, allow.hooks, allow.env, allow.net_devices};
}

backend::PrepareItem Claims::Impl::ItemOf(const store::ClaimRow& claim, const store::ShareRow& share) const {
  backend::PrepareItem item;
  item.key = share.key;
  item.physical = share.physical;
  item.mode = share.mode;
  item.consumed = share.consumed;
  item.state = share.applied.has_value() ? share.applied->state : "";
  item.configuration = share.configuration;
  item.policy_version = share.policy_version;
  item.claim_namespace = claim.namespace_name;
  item.claim_name = claim.name;
  item.pod_uids = claim.pod_uids;
  item.result_index = share.result_index;
  return item;
}

std::map<ShareKey, absl::StatusOr<AppliedShare>> Claims::Impl::CallPrepare(const std::map<std::string, std::vector<backend::PrepareItem>>& items,
                                                                           Deadline deadline) {
  std::map<ShareKey, absl::StatusOr<AppliedShare>> answers;
  std::map<std::string, std::vector<backend::PrepareOutcome>> outcomes;
  std::vector<std::function<void()>> calls;
  for (const auto& [name, list] : items) {
    const std::shared_ptr<backend::Backend> backend = dependencies_.backend(name);
    const bool is_late = Passed(deadline);
    const absl::Status silent = backend == nullptr ? absl::UnavailableError(Cat("backend '", name, "' is not loaded"))
                                : is_late          ? NotCalled(name)
                                                   : absl::InternalError(Cat("backend '", name, "' gave no answer for this share"));
    for (const backend::PrepareItem& item : list) answers.insert_or_assign(item.key, silent);
    if (backend == nullptr || is_late) continue;
    calls.emplace_back([backend, deadline, &asked = list, &given = outcomes[name]] { given = backend->Prepare(asked, deadline); });
  }
  SideBySide(calls);
  for (auto& [name, given] : outcomes) {
    for (backend::PrepareOutcome& outcome : given) {
      const auto answer = answers.find(outcome.key);
      if (answer == answers.end()) continue;
      if (!outcome.status.ok()) {
        answer->second = outcome.status;
      } else if (outcome.share.has_value()) {
        answer->second = *std::move(outcome.share);
      }
    }
  }
  return answers;
}

std::vector<inventory::HeldOffer> Claims::Impl::HeldOffers() const {
  std::vector<inventory::HeldOffer> held;
  const absl::Status status = dependencies_.store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::OfferInUse> offers, transaction.OffersInUse());
    for (const store::OfferInUse& offer : offers) {
      held.push_back({offer.driver, offer.pool, offer.device, offer.offer, offer.backend, offer.physical, offer.mode});
    }
    return absl::OkStatus();
  });
  if (!status.ok()) LogError("the offers in use cannot be read", {{"error", status.ToString()}});
  return held;
}

Claims::Claims(Dependencies dependencies) : impl_(std::make_unique<Impl>(std::move(dependencies))) {}
Claims::~Claims() = default;

PrepareAnswers Claims::Prepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up) {
  return impl_->Prepare(driver, claims, deadline, given_up);
}

UnprepareAnswers Claims::Unprepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up) {
  return impl_->Unprepare(driver, claims, deadline, given_up);
}

absl::StatusOr<std::vector<Repair>> Claims::Reconcile(const std::string& backend, Deadline deadline) { return impl_->Reconcile(backend, deadline); }

absl::StatusOr<std::vector<Repair>> Claims::VerifyAll(Deadline deadline) { return impl_->VerifyAll(deadline); }

std::optional<WallTime> Claims::VerifiedAt(const std::string& backend) const { return impl_->VerifiedAt(backend); }

std::vector<UnknownShare> Claims::Unknown() const { return impl_->Unknown(); }

absl::StatusOr<std::vector<ShareKey>> Claims::ReleaseUnknown(const std::string& claim_uid, Deadline deadline) {
  return impl_->ReleaseUnknown(claim_uid, deadline);
}

std::vector<inventory::HeldOffer> Claims::HeldOffers() const { return impl_->HeldOffers(); }

}  // namespace tranche::claims
