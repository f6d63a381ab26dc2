#include "host/methods.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "admin/views.h"
#include "base/status.h"
#include "base/text.h"
#include "capacity/capacity.h"
#include "host/host.h"
#include "model/json.h"

namespace tranche::host {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kVerifyDeadline{10};

json::value ErrorOrNull(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return json::object{{"code", CodeName(status.code())}, {"message", View(status.message())}};
}

json::value TimeOrNull(const std::optional<WallTime>& time) { return time.has_value() ? json::value(FormatTime(*time)) : json::value(nullptr); }

std::string TextParameter(const json::value& params, const char* key) {
  const json::object* object = params.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains(key);
  if (found == nullptr || !found->is_string()) return "";
  return std::string(found->get_string().data(), found->get_string().size());
}

bool FlagParameter(const json::value& params, const char* key) {
  const json::object* object = params.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains(key);
  return found != nullptr && found->is_bool() && found->get_bool();
}

// ---- status

json::value EncodeProcess(const std::optional<backend::ProcessStatus>& process) {
  if (!process.has_value()) return nullptr;
  return json::object{{"pid", process->pid},
                      {"restarts", process->restarts},
                      {"stuck", json::array(process->stuck.begin(), process->stuck.end())},
                      {"greedy", process->is_greedy}};
}

json::array EncodeBackends(const std::vector<BackendStatus>& backends) {
  json::array array;
  for (const BackendStatus& backend : backends) {
    array.push_back(json::object{{"name", backend.name},
                                 {"library", backend.library},
                                 {"version", backend.version},
                                 {"state", BackendStateName(backend.state)},
                                 {"configured", backend.configured},
                                 {"isolation", backend.process.has_value() ? "process" : "in-process"},
                                 {"requestedIsolation", backend.requested_isolation == config::Isolation::kProcess ? "process" : "in-process"},
                                 {"process", EncodeProcess(backend.process)},
                                 {"available", backend.available.ok()},
                                 {"devices", backend.devices->size()},
                                 {"prepareCalls", backend.prepare.calls},
                                 {"prepareMicroseconds", backend.prepare.total.count()},
                                 {"metrics", json::object(backend.metrics.begin(), backend.metrics.end())},
                                 {"problem", ErrorOrNull(backend.problem)},
                                 {"retryAt", TimeOrNull(backend.retry_at)}});
  }
  return array;
}

json::array EncodeDrivers(const std::vector<DriverStatus>& drivers) {
  json::array array;
  for (const DriverStatus& driver : drivers) {
    array.push_back(json::object{{"name", driver.name},
                                 {"state", driver.problem.ok() ? (driver.configured ? "serving" : "draining") : "failed"},
                                 {"socket", driver.service_socket},
                                 {"registrationSocket", driver.registration_socket},
                                 {"problem", ErrorOrNull(driver.problem)}});
  }
  return array;
}

json::object EncodeReconciliation(const ReconcileStatus& status) {
  json::object repairs;
  for (const auto& [what, count] : status.repairs) repairs[what] = count;
  return {{"lastAt", TimeOrNull(status.last_at)}, {"repairs", std::move(repairs)}, {"problem", ErrorOrNull(status.problem)}};
}

json::array EncodeUnknown(const std::vector<claims::UnknownShare>& shares) {
  json::array array;
  for (const claims::UnknownShare& share : shares) array.push_back(json::object{{"backend", share.backend}, {"key", EncodeShareKey(share.key)}});
  return array;
}

json::object EncodeControlPlane(const ControlPlaneStatus& plane) {
  json::array drivers;
  for (const PublishedStatus& driver : plane.drivers) {
    json::array problems;
    for (const std::string& problem : driver.problems) problems.emplace_back(problem);
    drivers.push_back(json::object{{"driver", driver.driver},
                                   {"generation", driver.generation},
                                   {"slicesWanted", driver.wanted},
                                   {"slicesPublished", driver.published},
                                   {"problems", std::move(problems)},
                                   {"problem", ErrorOrNull(driver.problem)}});
  }
  return {{"kind", plane.kind}, {"problem", ErrorOrNull(plane.problem)}, {"drivers", std::move(drivers)}};
}

absl::StatusOr<json::value> Status(Host& host) {
  store::RowCounts rows;
  TRANCHE_RETURN_IF_ERROR(host.store().Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(rows, transaction.Count());
    return absl::OkStatus();
  }));
  const ConfigurationStatus configuration = host.configuration();
  const auto snapshot = host.inventory().Current();
  return json::object{{"version", kVersion},
                      {"node", host.options().node_name},
                      {"mode", host.control_plane().kind},
                      {"controlPlane", EncodeControlPlane(host.control_plane())},
                      {"pid", static_cast<std::int64_t>(::getpid())},
                      {"instance", host.options().instance},
                      {"startedAt", FormatTime(host.started_at())},
                      {"onlyHost", host.Alone()},
                      {"configuration",
                       {{"file", configuration.file},
                        {"version", configuration.version},
                        {"loadedAt", FormatTime(configuration.loaded_at)},
                        {"lastError", configuration.last_error},
                        {"lastErrorAt", TimeOrNull(configuration.last_error_at)}}},
                      {"backends", EncodeBackends(host.pool().Statuses())},
                      {"drivers", EncodeDrivers(host.drivers())},
                      {"devices", snapshot->devices.size()},
                      {"withheld", snapshot->withheld.size()},
                      {"claims", rows.claims},
                      {"shares", rows.shares},
                      {"unknownShares", EncodeUnknown(host.UnknownShares())},
                      {"reconcile", EncodeReconciliation(host.reconciliation())}};
}

// ---- devices

capacity::Grant GrantOf(const store::ShareRow& share) {
  return {.key = share.key,
          .backend = share.backend,
          .physical = share.physical,
          .mode = share.mode,
          .admin_access = share.admin_access,
          .consumed = share.consumed,
          .counters = share.counters};
}

bool Holds(const capacity::Grant& grant, const PublishedDevice& device) {
  return grant.key.driver == device.driver && grant.key.pool == device.pool && grant.key.device == device.name && !grant.admin_access;
}

// The physical amounts of every discovered device, by (backend, device).
using Physical = std::map<std::pair<std::string, std::string>, PhysicalDevice>;

Physical ReadPhysical(const BackendPool& pool) {
  Physical physical;
  for (const BackendStatus& backend : pool.Statuses()) {
    for (const PhysicalDevice& device : *backend.devices) physical[{backend.name, device.name}] = device;
  }
  return physical;
}

json::array EncodeCapacity(const PublishedDevice& device, const Physical& physical, const Quantities& allocated, bool taken_whole) {
  const auto known = physical.find({device.backend, device.physical});
  json::array rows;
  for (const auto& [name, published] : device.capacity) {
    Quantity used;
    if (const auto found = allocated.find(name); found != allocated.end()) used = found->second;
    if (taken_whole) used = published.value;
    json::object row{{"name", name},
                     {"published", published.value.ToString()},
                     {"allocated", used.ToString()},
                     // Less than nothing is left where the device shrank below what is granted.
                     {"free", used > published.value ? "0" : (published.value - used).ToString()},
                     {"enforcement", EnforcementName(published.enforcement)}};
    if (known != physical.end()) {
      const auto whole = known->second.capacities.find(name);
      if (whole != known->second.capacities.end())
        row["reserved"] = whole->second.value < published.value ? "0" : (whole->second.value - published.value).ToString();
    }
    if (published.request_policy.has_value()) row["requestPolicy"] = EncodeRequestPolicy(*published.request_policy);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Why not even an empty share fits: the device is taken whole, or its silicon by another mode. Empty when it fits.
std::string BlockedBy(const PublishedDevice& device, const std::vector<capacity::Grant>& live, const std::vector<CounterSet>& counter_sets) {
  // A grant without a share id wants the device for itself.
  const std::string share_id = device.mode == Mode::kShare ? "-" : "";
  const capacity::Grant nothing{
      .key = {.claim_uid = "", .request = "", .driver = device.driver, .pool = device.pool, .device = device.name, .share_id = share_id},
      .backend = device.backend,
      .physical = device.physical,
      .mode = device.mode,
      .admin_access = false,
      .consumed = {},
      .counters = device.consumes_counters};
  const absl::Status fits = capacity::CheckGrant(device, nothing, live, counter_sets);
  return fits.ok() ? std::string() : std::string(fits.message());
}

// Nobody can say how the devices of a backend are that does not answer.
std::string HealthOf(const absl::Status& availability) { return availability.ok() ? "" : "Unknown"; }

json::value EncodeDevice(const PublishedDevice& device, const inventory::Snapshot& snapshot, const Physical& physical, const std::vector<capacity::Grant>& live,
                         const absl::Status& availability) {
  const auto count = std::count_if(live.begin(), live.end(), [&](const capacity::Grant& grant) { return Holds(grant, device); });
  const bool taken_whole = device.mode != Mode::kShare && count > 0;
  const auto sets = snapshot.counter_sets.find(device.driver);
  const Quantities allocated = capacity::Allocated(device.driver, device.pool, device.name, live);
  return json::object{{"driver", device.driver},
                      {"pool", device.pool},
                      {"name", device.name},
                      {"offer", device.offer},
                      {"backend", device.backend},
                      {"physical", device.physical},
                      {"mode", ModeName(device.mode)},
                      {"enforcement", EnforcementName(device.enforcement)},
                      {"draining", device.draining},
                      {"health", HealthOf(availability)},
                      {"healthReason", std::string(View(availability.message()))},
                      {"shares", static_cast<std::int64_t>(count)},
                      {"blockedBy", BlockedBy(device, live, sets == snapshot.counter_sets.end() ? std::vector<CounterSet>() : sets->second)},
                      {"capacity", EncodeCapacity(device, physical, allocated, taken_whole)},
                      {"attributes", EncodeAttributes(device.attributes)}};
}

absl::StatusOr<json::value> Devices(Host& host) {
  std::vector<capacity::Grant> live;
  TRANCHE_RETURN_IF_ERROR(host.store().Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.Shares());
    for (const store::ShareRow& share : shares) live.push_back(GrantOf(share));
    return absl::OkStatus();
  }));
  const auto snapshot = host.inventory().Current();
  const Physical physical = ReadPhysical(host.pool());
  json::array devices, withheld;
  for (const PublishedDevice& device : snapshot->devices) {
    devices.push_back(EncodeDevice(device, *snapshot, physical, live, host.pool().Availability(device.backend)));
  }
  for (const inventory::Withheld& item : snapshot->withheld) {
    withheld.push_back(
        json::object{{"driver", item.driver}, {"offer", item.offer}, {"backend", item.backend}, {"physical", item.physical}, {"reason", item.reason}});
  }
  return json::object{{"devices", std::move(devices)}, {"withheld", std::move(withheld)}};
}

// ---- shares

struct StoredShare {
  store::ClaimRow claim;
  store::ShareRow share;
};

absl::StatusOr<std::vector<StoredShare>> ReadShares(store::Store& store, const admin::ClaimFilter& filter) {
  std::vector<StoredShare> stored;
  TRANCHE_RETURN_IF_ERROR(store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ClaimRow> claims, transaction.Claims());
    for (const store::ClaimRow& claim : claims) {
      if (!admin::Matches(filter, claim)) continue;
      TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.SharesOfClaim(claim.driver, claim.claim_uid));
      for (const store::ShareRow& share : shares) stored.push_back({claim, share});
    }
    return absl::OkStatus();
  }));
  return stored;
}

absl::StatusOr<AppliedShare> VerifyNow(Host& host, const store::ShareRow& share) {
  const std::shared_ptr<backend::Backend> backend = host.pool().Find(share.backend);
  if (backend == nullptr) return absl::UnavailableError(Cat("backend ", share.backend, " is not loaded"));
  return backend->Verify(share.key, share.applied.has_value() ? share.applied->state : "", DeadlineIn(kVerifyDeadline));
}

// The limits that the kernel has now are the ones that were put in force at prepare.
absl::Status CompareLimits(const store::ShareRow& share, const AppliedShare& now) {
  if (!share.applied.has_value()) return absl::FailedPreconditionError("nothing was applied for it");
  for (const LimitInForce& granted : share.applied->limits) {
    const auto found = std::find_if(now.limits.begin(), now.limits.end(),
                                    [&](const LimitInForce& limit) { return limit.capacity == granted.capacity && limit.direction == granted.direction; });
    if (found == now.limits.end()) return absl::DataLossError(Cat("no limit of ", granted.capacity, " ", granted.direction, " is in force"));
    if (found->in_force != granted.in_force) {
      return absl::DataLossError(
          Cat("the limit of ", granted.capacity, " ", granted.direction, " in force is ", found->in_force, ", granted was ", granted.in_force));
    }
  }
  return absl::OkStatus();
}

json::object EncodeLive(Host& host, const store::ShareRow& share) {
  const absl::StatusOr<AppliedShare> now = VerifyNow(host, share);
  if (!now.ok()) return {{"ok", false}, {"problem", ErrorOrNull(now.status())}};
  const absl::Status same = CompareLimits(share, *now);
  return {{"ok", same.ok()}, {"problem", ErrorOrNull(same)}, {"applied", EncodeAppliedShare(*now)}};
}

absl::StatusOr<json::value> Shares(Host& host, const json::value& params, bool verify) {
  TRANCHE_ASSIGN_OR_RETURN(const admin::ClaimFilter filter, admin::DecodeClaimFilter(params));
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<StoredShare> stored, ReadShares(host.store(), filter));
  json::array views;
  std::int64_t failed = 0;
  for (const StoredShare& item : stored) {
    json::object view = admin::EncodeShareView(item.claim, item.share).as_object();
    if (verify && item.share.state == store::ShareState::kApplied) {
      json::object live = EncodeLive(host, item.share);
      if (!live["ok"].as_bool()) ++failed;
      view["live"] = std::move(live);
    }
    views.push_back(std::move(view));
  }
  json::object result{{"shares", std::move(views)}};
  if (verify) result["failed"] = failed;
  return result;
}

// ---- reconcile

absl::StatusOr<json::value> Reconcile(Host& host, const json::value& params) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<claims::Repair> repairs, host.Reconcile(TextParameter(params, "backend")));
  json::array array;
  for (const claims::Repair& repair : repairs) {
    array.push_back(json::object{{"what", repair.what}, {"key", EncodeShareKey(repair.key)}, {"detail", repair.detail}});
  }
  return json::object{{"repairs", std::move(array)}};
}

absl::StatusOr<json::value> ReleaseUnknown(Host& host, const json::value& params) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ShareKey> released, host.ReleaseUnknown(TextParameter(params, "claimUID")));
  json::array keys;
  for (const ShareKey& key : released) keys.push_back(EncodeShareKey(key));
  return json::object{{"released", std::move(keys)}};
}

}  // namespace

admin::Methods MakeMethods(Host& host) {
  return {
      {"status", [&host](const json::value&) { return Status(host); }},
      {"devices", [&host](const json::value&) { return Devices(host); }},
      {"claims",
       [&host](const json::value& params) -> absl::StatusOr<json::value> {
         TRANCHE_ASSIGN_OR_RETURN(const admin::ClaimFilter filter, admin::DecodeClaimFilter(params));
         return admin::ViewClaims(host.store(), filter);
       }},
      {"shares", [&host](const json::value& params) { return Shares(host, params, FlagParameter(params, "verify")); }},
      {"audit", [&host](const json::value& params) { return admin::ViewAudit(host.store(), params); }},
      {"reconcile", [&host](const json::value& params) { return Reconcile(host, params); }},
      {"release-unknown", [&host](const json::value& params) { return ReleaseUnknown(host, params); }},
      {"verify", [&host](const json::value& params) { return Shares(host, params, true); }},
  };
}

}  // namespace tranche::host
