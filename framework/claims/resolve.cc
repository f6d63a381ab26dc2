#include "claims/resolve.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "capacity/capacity.h"
#include "config/config.h"

namespace tranche::claims {
namespace {

std::string Address(const AllocationResult& result) { return Cat(result.driver, "/", result.pool, "/", result.device); }

const DeviceRequest* FindRequest(const std::vector<DeviceRequest>& requests, std::string_view name) {
  const auto found = std::find_if(requests.begin(), requests.end(), [&](const DeviceRequest& request) { return request.name == name; });
  return found == requests.end() ? nullptr : &*found;
}

// What the UID of a claim may be: it becomes part of the names of a file and of CDI devices. Refused before anything is stored: a share whose
// file cannot be named could not be taken away either.
bool IsPlainUid(std::string_view uid) {
  constexpr std::size_t kMaxUidBytes = 128;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
  return !uid.empty() && uid.size() <= kMaxUidBytes && std::all_of(uid.begin(), uid.end(), is_plain);
}

// The request or subrequest that a result serves.
const DeviceRequest* RequestOf(const Claim& claim, std::string_view name) {
  const std::string_view base = BaseRequest(name);
  const DeviceRequest* request = FindRequest(claim.requests, base);
  if (request == nullptr || base.size() == name.size()) return request;
  return FindRequest(request->first_available, name.substr(base.size() + 1));
}

bool Reaches(const OpaqueConfig& config, std::string_view request) {
  if (config.requests.empty()) return true;
  return std::any_of(config.requests.begin(), config.requests.end(), [&](const std::string& name) { return name == request || name == BaseRequest(request); });
}

// The allocation carries the claim's own entries too; a claim that was placed locally may have them in its spec only.
std::vector<std::string> ClaimParameters(const Claim& claim, const AllocationResult& result) {
  std::vector<std::string> parameters;
  const auto add = [&](const std::vector<OpaqueConfig>& configs) {
    for (const OpaqueConfig& config : configs) {
      if (config.source == ConfigSource::kClaim && config.driver == result.driver && Reaches(config, result.request)) {
        parameters.push_back(config.parameters);
      }
    }
  };
  const auto& allocated = claim.allocation->config;
  const bool has_own = std::any_of(allocated.begin(), allocated.end(), [](const OpaqueConfig& config) { return config.source == ConfigSource::kClaim; });
  add(has_own ? allocated : claim.config);
  return parameters;
}

absl::StatusOr<const config::ClassConfiguration*> FindClassOf(const Claim& claim, const AllocationResult& result, const PublishedDevice& device,
                                                              const config::DriverConfiguration& driver) {
  const DeviceRequest* request = RequestOf(claim, result.request);
  if (request == nullptr) {
    return absl::FailedPreconditionError(Cat("result for request '", result.request, "': the claim has no such request; delete and re-create it"));
  }
  const config::ClassConfiguration* device_class = config::FindClass(driver, request->device_class);
  if (device_class == nullptr) {
    return absl::PermissionDeniedError(Cat("request '", result.request, "': class '", request->device_class, "' is not configured for driver ", result.driver,
                                           " on this node; add it under drivers[].classes or use one that is"));
  }
  if (device_class->offer != device.offer) {
    return absl::PermissionDeniedError(Cat("request '", result.request, "': class '", device_class->name, "' is for offer '", device_class->offer,
                                           "', but device ", Address(result), " belongs to offer '", device.offer, "'"));
  }
  return device_class;
}

absl::Status CheckAuthority(const Claim& claim, const AllocationResult& result, const PublishedDevice& device, const config::ClassConfiguration& device_class) {
  if (!config::MatchesAny(device_class.namespaces, claim.namespace_name)) {
    return absl::PermissionDeniedError(Cat("request '", result.request, "': namespace '", claim.namespace_name, "' may not use class '", device_class.name,
                                           "'; ask the node's operator to add it to namespaces.allow of the class"));
  }
  if (device.enforcement < device_class.minimum_enforcement) {
    return absl::FailedPreconditionError(Cat("request '", result.request, "': device ", Address(result), " enforces its limits '",
                                             EnforcementName(device.enforcement), "', class '", device_class.name, "' needs at least '",
                                             EnforcementName(device_class.minimum_enforcement), "'"));
  }
  return absl::OkStatus();
}

constexpr char kShares[] = "shares";  // a capacity of this name counts shares: one each, or more

// Whether a policy can give nothing at all: the scheduler records zeros, too.
bool GivesZero(const PublishedCapacity& capacity) {
  if (!capacity.request_policy.has_value()) return true;  // a request counts as it is
  const RequestPolicy& policy = *capacity.request_policy;
  if (policy.valid_range.has_value()) return policy.valid_range->min.IsZero();
  if (policy.valid_values.empty()) return true;
  return std::any_of(policy.valid_values.begin(), policy.valid_values.end(), [](const Quantity& value) { return value.IsZero(); });
}

// What no scheduler writes, under whatever policy of this device's past.
absl::Status CheckAmount(const AllocationResult& result, const std::string& name, const Quantity& amount, const PublishedCapacity& capacity) {
  const std::string what = Cat("device ", Address(result), ": request '", result.request, "' consumes ", amount.ToString(), " of capacity ", name);
  constexpr std::string_view kRemedy = "; delete the claim so that it is allocated anew";
  if (amount.IsNegative()) return absl::InvalidArgumentError(Cat(what, ", which is negative", kRemedy));
  if (name == kShares && (amount.IsZero() || !amount.IsInteger()))
    return absl::InvalidArgumentError(Cat(what, ", which is no whole number above zero", kRemedy));
  if (amount.IsZero() && !GivesZero(capacity)) return absl::InvalidArgumentError(Cat(what, ", but the least that one request gets is more", kRemedy));
  if (amount > capacity.value) return absl::OutOfRangeError(Cat(what, ", but the whole device has ", capacity.value.ToString(), kRemedy));
  return absl::OkStatus();
}

// A grant stays what it was granted as, also when the policy changed before it reached the node: such a difference is told, not refused.
std::string OffPolicy(const Quantities& consumed, const PublishedDevice& device) {
  std::string text;
  for (const auto& [name, amount] : consumed) {
    const absl::StatusOr<Quantity> now = capacity::Consumed(name, device.capacity.at(name), amount);
    if (now.ok() && *now == amount) continue;
    const std::string why = now.ok() ? Cat("would be ", now->ToString()) : std::string(now.status().message());
    Append(text, text.empty() ? "" : "; ", "capacity ", name, ": ", amount.ToString(), " was allocated, under the policy of now it ",
           now.ok() ? "" : "is refused: ", why);
  }
  return text;
}

// What the scheduler recorded counts as it is; only what it left out is filled in.
absl::StatusOr<Quantities> ConsumedOf(const AllocationResult& result, const PublishedDevice& device) {
  if (device.mode != Mode::kShare) return Quantities{};
  Quantities consumed;
  const std::string prefix = device.driver + "/";
  for (const auto& [name, amount] : result.consumed_capacity) {
    std::string own = name;
    if (!device.capacity.contains(own) && own.starts_with(prefix)) own = own.substr(prefix.size());
    if (!device.capacity.contains(own)) {
      return absl::FailedPreconditionError(Cat("device ", Address(result), " has no capacity '", name, "' that the allocation consumes"));
    }
    TRANCHE_RETURN_IF_ERROR(CheckAmount(result, own, amount, device.capacity.at(own)));
    consumed[own] = amount;
  }
  for (const auto& [name, capacity] : device.capacity) {
    if (consumed.contains(name)) continue;
    TRANCHE_ASSIGN_OR_RETURN(consumed[name], capacity::Consumed(name, capacity, std::nullopt));
  }
  return consumed;
}

absl::Status CheckDevice(const AllocationResult& result, const PublishedDevice* device) {
  if (device == nullptr) {
    return absl::NotFoundError(Cat("device ", Address(result), " is not on this node any more; delete the claim so that it is allocated anew"));
  }
  if (device->draining) {
    return absl::FailedPreconditionError(
        Cat("device ", Address(result), ": offer '", device->offer, "' was removed from the configuration and takes no new claim"));
  }
  if (device->mode == Mode::kShare && result.admin_access) {
    return absl::FailedPreconditionError(Cat("device ", Address(result), ": request '", result.request,
                                             "' has admin access, which is counted nowhere, and a share holds capacity; "
                                             "ask without adminAccess"));
  }
  if (device->mode == Mode::kShare && result.share_id.value_or("").empty()) {
    return absl::FailedPreconditionError(Cat("device ", Address(result), " is shared, but the allocation of request '", result.request,
                                             "' has no shareID; the cluster needs the feature DRAConsumableCapacity"));
  }
  if (device->mode == Mode::kShare && !IsUuid(*result.share_id)) {
    return absl::InvalidArgumentError(Cat("device ", Address(result), ": the shareID '", *result.share_id, "' of request '", result.request,
                                          "' is no UUID in lower case (RFC 4122); delete the claim so that it is allocated anew"));
  }
  return absl::OkStatus();
}

// Two results that are one share could not be told apart afterwards.
absl::Status CheckShareIds(const Allocation& allocation) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::string> requests;
  for (const AllocationResult& result : allocation.results) {
    if (result.share_id.value_or("").empty()) continue;
    const auto [first, is_new] = requests.emplace(std::tuple(result.driver, result.pool, result.device, *result.share_id), result.request);
    if (is_new) continue;
    return absl::InvalidArgumentError(Cat("requests '", first->second, "' and '", result.request, "' both have shareID ", *result.share_id, " on device ",
                                          Address(result), "; delete the claim so that it is allocated anew"));
  }
  return absl::OkStatus();
}

absl::Status CheckConsumers(const Claim& claim) {
  if (claim.reserved_for.empty()) return absl::FailedPreconditionError("is not reserved for any pod");
  // A pod group reserves it without naming pods; a pod that is named has a UID.
  for (const ConsumerReference& consumer : claim.reserved_for) {
    if (consumer.resource == "pods" && consumer.uid.empty()) {
      return absl::InvalidArgumentError(Cat("is reserved for pod '", consumer.name, "' without its UID; the pod must be re-created"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<AllocationResult> ResultsOf(const Claim& claim, const std::string& driver) {
  std::vector<AllocationResult> results;
  for (const AllocationResult& result : claim.allocation->results) {
    if (result.driver == driver) results.push_back(result);
  }
  return results;
}

absl::Status CheckClaim(const Claim& claim, const ClaimReference& reference) {
  const std::string name = Cat("claim ", reference.namespace_name, "/", reference.name);
  if (claim.uid != reference.uid) {
    return absl::FailedPreconditionError(
        Cat(name, " has UID ", claim.uid, ", the kubelet asked for ", reference.uid, ": it was deleted and re-created; the pod must be re-created too"));
  }
  if (claim.namespace_name != reference.namespace_name || claim.name != reference.name) {
    return absl::InvalidArgumentError(
        Cat(name, " was asked for, but the object is ", claim.namespace_name, "/", claim.name, "; correct its metadata.name and metadata.namespace"));
  }
  if (!IsPlainUid(claim.uid)) {
    return absl::InvalidArgumentError(Cat(name,
                                          ": metadata.uid has other characters than letters, digits and '-', or more than 128; "
                                          "delete the claim and create it again"));
  }
  if (!claim.allocation.has_value()) return absl::FailedPreconditionError(Cat(name, " is not allocated"));
  if (const absl::Status consumers = CheckConsumers(claim); !consumers.ok()) {
    return absl::Status(consumers.code(), Cat(name, " ", View(consumers.message())));
  }
  return Annotate(CheckShareIds(*claim.allocation), name);
}

std::vector<std::string> PodsOf(const Claim& claim) {
  std::vector<std::string> pods;
  for (const ConsumerReference& consumer : claim.reserved_for) {
    if (consumer.resource == "pods") pods.push_back(consumer.uid);
  }
  return pods;
}

absl::StatusOr<ResolvedShare> Resolve(const Claim& claim, const AllocationResult& result, int result_index, const inventory::Snapshot& snapshot) {
  const PublishedDevice* device = snapshot.Find(result.driver, result.pool, result.device);
  TRANCHE_RETURN_IF_ERROR(CheckDevice(result, device));
  const config::DriverConfiguration* driver = config::FindDriver(snapshot.configuration, result.driver);
  if (driver == nullptr) return absl::FailedPreconditionError(Cat("driver ", result.driver, " is not configured on this node any more"));
  TRANCHE_ASSIGN_OR_RETURN(const config::ClassConfiguration* device_class, FindClassOf(claim, result, *device, *driver));
  TRANCHE_RETURN_IF_ERROR(CheckAuthority(claim, result, *device, *device_class));
  const config::PolicySnapshot& policy = snapshot.policies.at({driver->name, device_class->name});

  ResolvedShare share;
  share.device = *device;
  share.policy = {policy.version, policy.json};
  share.row.key = {claim.uid, result.request, result.driver, result.pool, result.device, result.share_id.value_or("")};
  share.row.backend = device->backend;
  share.row.physical = device->physical;
  share.row.offer = device->offer;
  share.row.device_class = device_class->name;
  share.row.mode = device->mode;
  share.row.admin_access = result.admin_access;
  share.row.result_index = result_index;
  TRANCHE_ASSIGN_OR_RETURN(share.row.consumed, ConsumedOf(result, *device));
  if (device->mode == Mode::kShare) share.off_policy = OffPolicy(share.row.consumed, *device);
  share.row.counters = device->consumes_counters;
  share.row.policy_version = policy.version;
  TRANCHE_ASSIGN_OR_RETURN(share.row.configuration, config::MergeParameters(*device_class, ClaimParameters(claim, result)));
  return share;
}

}  // namespace tranche::claims
