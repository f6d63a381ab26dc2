#include "conform/devices.h"

#include <algorithm>

#include "capacity/capacity.h"

namespace tranche::dra_conform {
namespace {

// A capacity without a policy gives what is asked: this part of it.
constexpr std::int64_t kSmallPart = 64;

std::set<DeviceKey> CounterSets(const std::string& pool, const slices::SliceDevice& device) {
  std::set<DeviceKey> sets;
  for (const CounterUse& use : device.consumes_counters) sets.emplace(pool, use.counter_set);
  return sets;
}

bool Overlap(const std::set<DeviceKey>& left, const std::set<DeviceKey>& right) {
  return std::any_of(left.begin(), left.end(), [&](const DeviceKey& set) { return right.contains(set); });
}

bool IsUsable(const slices::SliceDevice& device) { return device.taints.empty() && device.unknown.find("bindingConditions") == std::string::npos; }

Quantity LeastOf(const slices::SliceCapacity& capacity) {
  if (capacity.request_policy.has_value()) {
    const RequestPolicy& policy = *capacity.request_policy;
    if (policy.valid_range.has_value()) return policy.valid_range->min;
    if (!policy.valid_values.empty()) return policy.valid_values.front();
    return policy.default_value.value_or(capacity.value);
  }
  const Quantity part = capacity.value.ScaleDown(1, kSmallPart);
  return part.IsZero() ? capacity.value : part;
}

Quantity MostOf(const slices::SliceCapacity& capacity) {
  if (!capacity.request_policy.has_value()) return capacity.value;
  const RequestPolicy& policy = *capacity.request_policy;
  if (!policy.valid_values.empty()) return policy.valid_values.back();
  if (!policy.valid_range.has_value()) return capacity.value;
  return std::min(policy.valid_range->max.value_or(capacity.value), capacity.value);
}

template <typename Ask>
Quantities Consume(const Candidate& candidate, const Ask& ask) {
  Quantities consumed;
  for (const auto& [name, capacity] : candidate.device.capacity) {
    const PublishedCapacity published{capacity.value, capacity.request_policy};
    absl::StatusOr<Quantity> amount = capacity::Consumed(name, published, ask(capacity));
    if (!amount.ok()) amount = capacity::Consumed(name, published, LeastOf(capacity));
    consumed[name] = amount.ok() ? *amount : capacity.value;
  }
  return consumed;
}

}  // namespace

std::vector<Candidate> FreeDevices(const std::vector<slices::Slice>& slices, const std::set<DeviceKey>& taken) {
  std::set<DeviceKey> taken_sets;
  for (const slices::Slice& slice : slices) {
    for (const slices::SliceDevice& device : slice.content->devices) {
      if (taken.contains({slice.pool_name, device.name})) taken_sets.merge(CounterSets(slice.pool_name, device));
    }
  }
  std::vector<Candidate> free;
  for (const slices::Slice& slice : slices) {
    for (const slices::SliceDevice& device : slice.content->devices) {
      const bool is_taken = taken.contains({slice.pool_name, device.name}) || Overlap(CounterSets(slice.pool_name, device), taken_sets);
      if (!is_taken && IsUsable(device)) free.push_back({slice.pool_name, device});
    }
  }
  return free;
}

std::vector<Candidate> SideBySide(const std::vector<Candidate>& devices, bool several, std::size_t most) {
  std::vector<Candidate> chosen;
  std::set<DeviceKey> used;
  for (const Candidate& candidate : devices) {
    if (chosen.size() == most) break;
    std::set<DeviceKey> sets = CounterSets(candidate.pool, candidate.device);
    if (candidate.device.allow_multiple_allocations != several || Overlap(sets, used)) continue;
    used.merge(sets);
    chosen.push_back(candidate);
  }
  return chosen;
}

Quantities Least(const Candidate& candidate) { return Consume(candidate, LeastOf); }
Quantities Most(const Candidate& candidate) { return Consume(candidate, MostOf); }

std::size_t Room(const Candidate& candidate, const Quantities& consumed, std::size_t bound) {
  std::size_t room = bound;
  for (const auto& [name, amount] : consumed) {
    const auto capacity = candidate.device.capacity.find(name);
    if (capacity == candidate.device.capacity.end() || amount.IsZero() || amount.IsNegative()) continue;
    std::size_t fits = 0;
    while (fits < room && amount.Times(static_cast<std::int64_t>(fits) + 1) <= capacity->second.value) ++fits;
    room = fits;
  }
  return room;
}

}  // namespace tranche::dra_conform
