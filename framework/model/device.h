// What a node has and what it publishes: plain values with equality. No behaviour, no I/O, no thread concerns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <absl/status/statusor.h>

#include "base/quantity.h"

namespace tranche {

// How a device is handed out (docs/architecture.md §6).
enum class Mode { kWhole, kPartition, kShare };
std::string_view ModeName(Mode mode);  // whole | partition | share
absl::StatusOr<Mode> ParseMode(std::string_view text);

// How strongly a capacity is limited; ordered, kHard is strongest.
enum class Enforcement { kNone, kSoft, kStrong, kHard };
std::string_view EnforcementName(Enforcement level);  // none | soft | strong | hard
absl::StatusOr<Enforcement> ParseEnforcement(std::string_view text);

// A semantic version attribute, kept as text.
struct VersionValue {
  std::string text;
  friend bool operator==(const VersionValue&, const VersionValue&) = default;
};
using AttributeValue = std::variant<bool, std::int64_t, std::string, VersionValue>;
using Attributes = std::map<std::string, AttributeValue>;  // by qualified or bare name
using Quantities = std::map<std::string, Quantity>;        // by capacity or counter name

// resource.k8s.io/v1 CapacityRequestPolicy. valid_values and valid_range exclude each other.
struct ValidRange {
  Quantity min;
  std::optional<Quantity> max;
  std::optional<Quantity> step;
  friend bool operator==(const ValidRange&, const ValidRange&) = default;
};
struct RequestPolicy {
  std::optional<Quantity> default_value;
  std::vector<Quantity> valid_values;
  std::optional<ValidRange> valid_range;
  friend bool operator==(const RequestPolicy&, const RequestPolicy&) = default;
};

// ---- Physical: what a backend discovered (`add_device`).

struct PhysicalCapacity {
  Quantity value;    // base units: bytes, bits per second, counts
  std::string unit;  // "bytes" | "bitsPerSecond" | "count"
  bool shareable = false;
  Enforcement enforcement = Enforcement::kNone;
  Quantity overhead;                            // what the backend itself needs of `value`; never published
  std::optional<RequestPolicy> request_policy;  // the backend's own default; configuration overrides it
  friend bool operator==(const PhysicalCapacity&, const PhysicalCapacity&) = default;
};

// Units of one piece of silicon and what the device uses of them; devices with the same id exclude each other by sum.
struct Silicon {
  std::string id;
  std::map<std::string, std::int64_t> units;
  std::map<std::string, std::int64_t> uses;
  friend bool operator==(const Silicon&, const Silicon&) = default;
};

struct PhysicalDevice {
  std::string name;                             // addresses the device within its backend
  std::map<std::string, std::string> identity;  // uuid, pciAddress, …: decides sameness
  std::optional<Silicon> silicon;
  std::vector<Mode> modes;
  Attributes attributes;
  std::map<std::string, PhysicalCapacity> capacities;
  std::vector<std::string> metadata;  // attribute names that may be shown to containers
  std::optional<std::int64_t> numa_node;
  friend bool operator==(const PhysicalDevice&, const PhysicalDevice&) = default;
};
// What one discovery found, shared by all who keep it. Never null.
using PhysicalDevices = std::shared_ptr<const std::vector<PhysicalDevice>>;

// ---- Published: one device of a ResourceSlice, physical device × offer.

struct PublishedCapacity {
  Quantity value;  // after reserve and overhead
  std::optional<RequestPolicy> request_policy;
  Enforcement enforcement = Enforcement::kNone;
  friend bool operator==(const PublishedCapacity&, const PublishedCapacity&) = default;
};

struct CounterSet {
  std::string name;
  Quantities counters;
  friend bool operator==(const CounterSet&, const CounterSet&) = default;
};
struct CounterUse {
  std::string counter_set;
  Quantities counters;
  friend bool operator==(const CounterUse&, const CounterUse&) = default;
};

struct PublishedDevice {
  std::string driver, pool, name;  // the DRA address of the device
  std::string offer, backend, physical;
  Mode mode = Mode::kWhole;
  bool allow_multiple_allocations = false;  // true exactly for kShare
  Attributes attributes;
  std::map<std::string, PublishedCapacity> capacity;
  std::vector<CounterUse> consumes_counters;
  Enforcement enforcement = Enforcement::kNone;  // weakest of its capacities
  bool draining = false;                         // its offer was removed from the configuration: no new claim
  friend bool operator==(const PublishedDevice&, const PublishedDevice&) = default;
};

// "driver/pool/device", as messages name it.
std::string DeviceAddress(const PublishedDevice& device);

}  // namespace tranche
