// ResourceClaim as resource.k8s.io/v1 has it, reduced to what a node driver and the local placement use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "model/device.h"

namespace tranche {

enum class AllocationMode { kExactCount, kAll };

struct DeviceRequest {
  std::string name;  // of a subrequest: its own name, without the parent's
  std::string device_class;
  AllocationMode allocation_mode = AllocationMode::kExactCount;
  std::int64_t count = 1;
  bool admin_access = false;
  Quantities capacity;                         // capacity.requests
  std::vector<std::string> selectors;          // CEL expressions; local placement refuses them
  std::vector<DeviceRequest> first_available;  // non-empty: the other fields but the name are unused
  friend bool operator==(const DeviceRequest&, const DeviceRequest&) = default;
};

struct DeviceConstraint {
  std::vector<std::string> requests;  // empty: all
  std::optional<std::string> match_attribute, distinct_attribute;
  friend bool operator==(const DeviceConstraint&, const DeviceConstraint&) = default;
};

enum class ConfigSource { kClass, kClaim };
struct OpaqueConfig {
  ConfigSource source = ConfigSource::kClaim;
  std::vector<std::string> requests;  // empty: all; "req" also reaches "req/sub"
  std::string driver;
  std::string parameters;  // JSON text, an object
  friend bool operator==(const OpaqueConfig&, const OpaqueConfig&) = default;
};

struct AllocationResult {
  std::string request;  // "req" or "req/sub"
  std::string driver, pool, device;
  bool admin_access = false;
  std::optional<std::string> share_id;
  Quantities consumed_capacity;
  friend bool operator==(const AllocationResult&, const AllocationResult&) = default;
};

struct Allocation {
  std::vector<AllocationResult> results;
  std::vector<OpaqueConfig> config;
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

struct ConsumerReference {
  std::string resource;  // "pods"
  std::string name, uid;
  friend bool operator==(const ConsumerReference&, const ConsumerReference&) = default;
};

struct Claim {
  std::string namespace_name, name, uid;
  std::map<std::string, std::string> annotations;
  std::vector<DeviceRequest> requests;
  std::vector<DeviceConstraint> constraints;
  std::vector<OpaqueConfig> config;
  std::optional<Allocation> allocation;
  std::vector<ConsumerReference> reserved_for;
  friend bool operator==(const Claim&, const Claim&) = default;
};

// What the kubelet names a claim by.
struct ClaimReference {
  std::string namespace_name, name, uid;
  friend bool operator==(const ClaimReference&, const ClaimReference&) = default;
};

// The part of "req/sub" before the slash; the whole of "req".
std::string_view BaseRequest(std::string_view request);

// SHA-256 over the canonical form of the results of `driver` plus the epoch (CAP-6): the version that a release names. Order of
// results does not matter, every other difference does.
std::string AllocationVersion(const Allocation& allocation, std::string_view driver, std::int64_t epoch);

}  // namespace tranche
