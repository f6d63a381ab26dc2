#include "capacity/capacity.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "base/status.h"
#include "capacity/fit.h"

namespace tranche::capacity {

namespace {
bool SameDevice(const ShareKey& left, const ShareKey& right) {
  return std::tie(left.driver, left.pool, left.device) == std::tie(right.driver, right.pool, right.device);
}

bool IsExclusive(const Grant& grant) { return grant.mode != Mode::kShare || grant.key.share_id.empty(); }

std::optional<Quantity> LargestValidValue(const RequestPolicy& policy) {
  if (policy.valid_values.empty()) return std::nullopt;
  return *std::max_element(policy.valid_values.begin(), policy.valid_values.end());
}

// The most that one request may ask under a policy, absent when only the value limits it.
std::optional<Quantity> LargestRequest(const PublishedCapacity& capacity) {
  if (!capacity.request_policy) return std::nullopt;
  if (capacity.request_policy->valid_range) return capacity.request_policy->valid_range->max;
  return LargestValidValue(*capacity.request_policy);
}

absl::Status AboveMaximum(const std::string& name, const Quantity& asked, const Quantity& largest, std::string_view what) {
  return absl::OutOfRangeError(absl::StrCat("capacity ", name, ": ", asked.ToString(), " is above the ", std::string(what), " ", largest.ToString(),
                                            " that one request may have; ask for less"));
}

absl::Status CheckUsable(const std::string& name, const RequestPolicy& policy) {
  if (!policy.valid_values.empty() && policy.valid_range) {
    return absl::InvalidArgumentError(absl::StrCat("capacity ", name, ": its request policy has both validValues and validRange; keep one"));
  }
  if (policy.valid_range && policy.valid_range->step && *policy.valid_range->step <= Quantity()) {
    return absl::InvalidArgumentError(
        absl::StrCat("capacity ", name, ": the step ", policy.valid_range->step->ToString(), " of its request policy is not positive"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Quantity> RoundInRange(const std::string& name, const ValidRange& range, const Quantity& asked) {
  const Quantity rounded = asked < range.min ? range.min : range.step ? asked.RoundUpToGrid(range.min, *range.step) : asked;
  if (range.max && rounded > *range.max) return AboveMaximum(name, rounded, *range.max, "maximum");
  return rounded;
}

absl::StatusOr<Quantity> NextValidValue(const std::string& name, const RequestPolicy& policy, const Quantity& asked) {
  const Quantity* best = nullptr;
  for (const Quantity& value : policy.valid_values) {
    if (value >= asked && (best == nullptr || value < *best)) best = &value;
  }
  if (best == nullptr) return AboveMaximum(name, asked, *LargestValidValue(policy), "largest valid value");
  return *best;
}

absl::StatusOr<Quantity> ApplyPolicy(const std::string& name, const RequestPolicy& policy, const Quantity& asked) {
  if (policy.valid_range) return RoundInRange(name, *policy.valid_range, asked);
  if (!policy.valid_values.empty()) return NextValidValue(name, policy, asked);
  return asked;
}

std::string Qualified(const std::string& driver, const std::string& name) {
  return name.find('/') == std::string::npos ? absl::StrCat(driver, "/", name) : name;
}

// How the device spells a capacity: `x` and `<driver>/x` are one, and the qualified spelling wins when both are published.
std::optional<std::string> PublishedSpelling(const PublishedDevice& device, const std::string& name) {
  const std::string qualified = Qualified(device.driver, name);
  if (device.capacity.contains(qualified)) return qualified;
  const std::string own = device.driver + "/";
  const std::string bare = qualified.starts_with(own) ? qualified.substr(own.size()) : qualified;
  if (device.capacity.contains(bare)) return bare;
  return std::nullopt;
}

std::string CapacityNames(const PublishedDevice& device) {
  if (device.capacity.empty()) return "no capacity";
  return absl::StrJoin(device.capacity, ", ", [](std::string* out, const auto& entry) { out->append(entry.first); });
}

Misfit MissingName(const PublishedDevice& device, const std::string& name, const Quantity& asked) {
  return Misfit{absl::InvalidArgumentError(absl::StrCat("device ", DeviceAddress(device), " has no capacity ", name, "; it has ", CapacityNames(device))), name,
                asked, std::nullopt, std::nullopt};
}

// Requests by published spelling, or why they cannot be read so.
Demand SpellAsPublished(const PublishedDevice& device, const Quantities& requested) {
  Demand demand;
  for (const auto& [name, quantity] : requested) {
    const std::optional<std::string> spelling = PublishedSpelling(device, name);
    if (!spelling) {
      demand.misfit = MissingName(device, name, quantity);
      return demand;
    }
    if (demand.consumed.emplace(*spelling, quantity).second) continue;
    demand.misfit =
        Misfit{absl::InvalidArgumentError(absl::StrCat("capacity ", name, " is requested twice, bare and as ", Qualified(device.driver, name), "; keep one")),
               name, quantity, std::nullopt, std::nullopt};
    return demand;
  }
  return demand;
}

Misfit OutsidePolicy(const PublishedDevice& device, const std::string& name, const std::optional<Quantity>& requested, const absl::Status& status) {
  const PublishedCapacity& capacity = device.capacity.at(name);
  Misfit misfit{Annotate(status, absl::StrCat("device ", DeviceAddress(device))), name, requested, std::nullopt, std::nullopt};
  if (status.code() != absl::StatusCode::kOutOfRange) return misfit;
  misfit.available = LargestRequest(capacity);
  if (!misfit.asked) misfit.asked = capacity.value;
  if (misfit.available && *misfit.asked > *misfit.available) misfit.missing = *misfit.asked - *misfit.available;
  return misfit;
}

Misfit Exhausted(const PublishedDevice& device, std::string_view kind, const std::string& name, const Quantity& asked, const Quantity& left,
                 const Quantity& total) {
  const Quantity missing = asked - left;
  return Misfit{absl::ResourceExhaustedError(absl::StrCat("device ", DeviceAddress(device), ": ", std::string(kind), " ", name, ": asked ", asked.ToString(),
                                                          ", left ", left.ToString(), " of ", total.ToString(), ", missing ", missing.ToString())),
                name, asked, left, missing};
}

Misfit Held(const PublishedDevice& device, const Grant& holder, std::string_view why) {
  return Misfit{absl::ResourceExhaustedError(absl::StrCat("device ", DeviceAddress(device), " ", std::string(why), ", but it is held (",
                                                          std::string(ModeName(holder.mode)), ") by ", Describe(holder.key),
                                                          "; release that claim or choose another device")),
                "", std::nullopt, std::nullopt, std::nullopt};
}

std::optional<Misfit> FindHolder(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live) {
  const bool exclusive = IsExclusive(candidate) || !device.allow_multiple_allocations;
  for (const Grant& grant : live) {
    if (grant.admin_access || grant.key == candidate.key) continue;
    if (SameDevice(grant.key, candidate.key)) {
      if (exclusive) return Held(device, grant, "is wanted for one claim alone");
      if (IsExclusive(grant)) return Held(device, grant, "is wanted for a share");
      continue;
    }
    const bool same_hardware = !device.physical.empty() && grant.physical == device.physical && grant.backend == device.backend;
    if (same_hardware) return Held(device, grant, absl::StrCat("is the same hardware as ", grant.key.device));
  }
  return std::nullopt;
}

using CounterKey = std::pair<std::string, std::string>;  // set, counter
using Charges = std::map<CounterKey, Quantity>;

// A device is charged once however many shares it has; snapshots of different age count with the larger value.
void Charge(Charges& charges, const std::vector<CounterUse>& uses) {
  for (const CounterUse& use : uses) {
    for (const auto& [counter, quantity] : use.counters) {
      Quantity& charge = charges[{use.counter_set, counter}];
      if (quantity > charge) charge = quantity;
    }
  }
}

const Quantity* FindCounter(const std::vector<CounterSet>& sets, const CounterKey& key) {
  for (const CounterSet& set : sets) {
    if (set.name != key.first) continue;
    const auto found = set.counters.find(key.second);
    return found == set.counters.end() ? nullptr : &found->second;
  }
  return nullptr;
}

std::optional<Misfit> CheckCounter(const PublishedDevice& device, const CounterKey& key, const Quantity& asked, const Quantity& used,
                                   const std::vector<CounterSet>& sets) {
  const std::string name = absl::StrCat(key.first, "/", key.second);
  const Quantity* total = FindCounter(sets, key);
  if (total == nullptr) {
    return Misfit{absl::FailedPreconditionError(absl::StrCat("device ", DeviceAddress(device), " consumes counter ", name,
                                                             ", which its pool does not have; check what the backend reports as silicon")),
                  name, asked, std::nullopt, std::nullopt};
  }
  const Quantity left = *total - used;
  if (asked <= left) return std::nullopt;
  return Exhausted(device, "counter", name, asked, left, *total);
}

std::optional<Misfit> FindCounterMisfit(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live,
                                        const std::vector<CounterSet>& sets) {
  const std::vector<CounterUse>& uses = candidate.counters.empty() ? device.consumes_counters : candidate.counters;
  if (uses.empty()) return std::nullopt;
  std::map<std::string, Charges> by_device;  // of this driver and pool
  for (const Grant& grant : live) {
    const bool counts = !grant.admin_access && grant.key != candidate.key && grant.key.driver == device.driver && grant.key.pool == device.pool;
    if (counts) Charge(by_device[grant.key.device], grant.counters);
  }
  const Charges before = by_device[device.name];
  Charge(by_device[device.name], uses);
  for (const auto& [key, wanted] : by_device[device.name]) {
    const auto had = before.find(key);
    if (had != before.end() && wanted <= had->second) continue;  // an earlier share has paid
    Quantity used;
    for (const auto& [name, charges] : by_device) {
      const auto charge = charges.find(key);
      if (name != device.name && charge != charges.end()) used += charge->second;
    }
    if (auto misfit = CheckCounter(device, key, wanted, used, sets)) return misfit;
  }
  return std::nullopt;
}

std::optional<Misfit> CheckCounterValues(const PublishedDevice& device, const Grant& candidate) {
  for (const CounterUse& use : candidate.counters.empty() ? device.consumes_counters : candidate.counters) {
    for (const auto& [counter, quantity] : use.counters) {
      if (!quantity.IsNegative()) continue;
      const std::string name = absl::StrCat(use.counter_set, "/", counter);
      return Misfit{absl::InvalidArgumentError(
                        absl::StrCat("device ", DeviceAddress(device), ": counter ", name, " is used by the negative amount ", quantity.ToString())),
                    name, quantity, std::nullopt, std::nullopt};
    }
  }
  return std::nullopt;
}
}  // namespace

absl::StatusOr<Quantity> Consumed(const std::string& name, const PublishedCapacity& capacity, const std::optional<Quantity>& requested) {
  if (requested && requested->IsNegative()) {
    return absl::InvalidArgumentError(absl::StrCat("capacity ", name, ": the request ", requested->ToString(), " is negative; ask for 0 or more"));
  }
  const RequestPolicy none;
  const RequestPolicy& policy = capacity.request_policy ? *capacity.request_policy : none;
  TRANCHE_RETURN_IF_ERROR(CheckUsable(name, policy));
  // A default stands as it is, also outside the range; ValidatePolicy keeps such a policy from being published.
  absl::StatusOr<Quantity> consumed = requested              ? ApplyPolicy(name, policy, *requested)
                                      : policy.default_value ? absl::StatusOr<Quantity>(*policy.default_value)
                                                             : ApplyPolicy(name, policy, capacity.value);
  if (consumed.ok() && consumed->IsNegative()) {
    return absl::InvalidArgumentError(absl::StrCat("capacity ", name, ": its value or policy leads to the negative amount ", consumed->ToString()));
  }
  return consumed;
}

Demand DemandOf(const PublishedDevice& device, const Quantities& requested) {
  Demand demand = SpellAsPublished(device, requested);
  if (demand.misfit) return demand;
  const Quantities asked = std::exchange(demand.consumed, {});
  for (const auto& [name, capacity] : device.capacity) {
    const auto found = asked.find(name);
    const std::optional<Quantity> request = found == asked.end() ? std::nullopt : std::optional<Quantity>(found->second);
    const absl::StatusOr<Quantity> consumed = Consumed(name, capacity, request);
    if (!consumed.ok()) {
      demand.misfit = OutsidePolicy(device, name, request, consumed.status());
      return demand;
    }
    demand.consumed.emplace(name, *consumed);
  }
  return demand;
}

absl::StatusOr<Quantities> ConsumedAll(const PublishedDevice& device, const Quantities& requested) {
  const Demand demand = DemandOf(device, requested);
  if (demand.misfit) return demand.misfit->status;
  return demand.consumed;
}

std::optional<Misfit> FindCapacityMisfit(const PublishedDevice& device, const Quantities& consumed, const ShareKey& key, const std::vector<Grant>& live) {
  const Demand wanted = SpellAsPublished(device, consumed);
  if (wanted.misfit) return wanted.misfit;
  Quantities used;
  for (const Grant& grant : live) {
    if (grant.admin_access || grant.key == key || !SameDevice(grant.key, key)) continue;
    for (const auto& [name, quantity] : grant.consumed) used[PublishedSpelling(device, name).value_or(name)] += quantity;
  }
  for (const auto& [name, capacity] : device.capacity) {
    const auto found = wanted.consumed.find(name);
    const Quantity asked = found == wanted.consumed.end() ? Quantity() : found->second;
    if (asked.IsNegative()) {
      return Misfit{absl::InvalidArgumentError(
                        absl::StrCat("device ", DeviceAddress(device), ": capacity ", name, " is consumed by the negative amount ", asked.ToString())),
                    name, asked, std::nullopt, std::nullopt};
    }
    const Quantity left = capacity.value - used[name];
    if (asked > left) return Exhausted(device, "capacity", name, asked, left, capacity.value);
  }
  return std::nullopt;
}

std::optional<Misfit> FindMisfit(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live,
                                 const std::vector<CounterSet>& counter_sets) {
  if (candidate.admin_access) return std::nullopt;  // observes a device, holds nothing of it
  if (auto misfit = FindHolder(device, candidate, live)) return misfit;
  if (auto misfit = FindCapacityMisfit(device, candidate.consumed, candidate.key, live)) return misfit;
  if (auto misfit = CheckCounterValues(device, candidate)) return misfit;
  return FindCounterMisfit(device, candidate, live, counter_sets);
}

absl::Status CheckGrant(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live, const std::vector<CounterSet>& counter_sets) {
  const std::optional<Misfit> misfit = FindMisfit(device, candidate, live, counter_sets);
  return misfit ? misfit->status : absl::OkStatus();
}

Quantities Allocated(const std::string& driver, const std::string& pool, const std::string& device, const std::vector<Grant>& live) {
  Quantities sums;
  for (const Grant& grant : live) {
    if (grant.admin_access || grant.key.driver != driver || grant.key.pool != pool || grant.key.device != device) continue;
    for (const auto& [name, quantity] : grant.consumed) sums[name] += quantity;
  }
  return sums;
}

}  // namespace tranche::capacity
