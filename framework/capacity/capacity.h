// Capacity arithmetic as pure functions over values and stored rows (CAP-1, CAP-2). No I/O, no clock, no state, thread-safe.
//
// The rules are those of the scheduler's allocator (KEP-5075): docs/capacity.md lists them, with the deliberate differences:
// exact decimals everywhere, no wrap, negative requests refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "model/device.h"
#include "model/share.h"

namespace tranche::capacity {

// What one request consumes of one capacity: default or whole value when `requested` is absent; raised to min, rounded up to the step or
// to the next valid value. OutOfRange when above the maximum or the largest valid value; InvalidArgument for a negative request or
// an unusable policy (step ≤ 0, …). Does not look at what is left.
absl::StatusOr<Quantity> Consumed(const std::string& name, const PublishedCapacity& capacity, const std::optional<Quantity>& requested);

// `Consumed` for every capacity of a device: unrequested ones and zeros included, as the scheduler records it. InvalidArgument for a requested name
// that the device lacks; "driver/x" in a request means the bare "x" of that driver.
absl::StatusOr<Quantities> ConsumedAll(const PublishedDevice& device, const Quantities& requested);

// Checks a policy as the API server does (rules P1–R10), plus what it misses. Names the field.
absl::Status ValidatePolicy(const std::string& name, const PublishedCapacity& capacity, bool allow_multiple_allocations);

// One live grant, as stored: everything the sums need, so that a later change of configuration cannot change what it holds.
struct Grant {
  ShareKey key;
  std::string backend, physical;
  Mode mode = Mode::kShare;
  bool admin_access = false;         // counted nowhere
  Quantities consumed;               // empty for whole and partition
  std::vector<CounterUse> counters;  // snapshot at grant; charged once per (driver, pool, device)
  friend bool operator==(const Grant&, const Grant&) = default;
};

// Whether `candidate` may be granted on `device` next to the `live` grants (a live grant with the candidate's own key is ignored, so a retry fits).
// Checks, in this order: whole/partition exclusivity of the device; every capacity's sum; counters of the silicon across devices.
// ResourceExhausted names the device, the capacity, what is asked, what is left, how much is missing, and the holder when exclusive.
absl::Status CheckGrant(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live, const std::vector<CounterSet>& counter_sets);

// Sum per capacity over live grants of one device.
Quantities Allocated(const std::string& driver, const std::string& pool, const std::string& device, const std::vector<Grant>& live);

}  // namespace tranche::capacity
