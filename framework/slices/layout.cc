#include "slices/layout.h"

#include <algorithm>
#include <map>
#include <set>

namespace tranche::slices {
namespace {

constexpr std::size_t kMaxDevices = 128;
constexpr std::size_t kMaxDemandingDevices = 64;  // where any device has taints or draws on counters
constexpr std::size_t kMaxSetsPerSlice = 8;
constexpr std::size_t kMaxSliceBytes = 1U << 20;  // etcd refuses requests above 1.5 MiB
// 1.34, where a slice has both:
constexpr std::size_t kMaxSharedCounters34 = 32;
constexpr std::size_t kMaxDeviceCounters34 = 1024;

// About what the device takes in an object of the API server.
std::size_t Bytes(const SliceDevice& device) {
  std::size_t bytes = 64 + device.name.size() + device.unknown.size();
  for (const auto& [name, value] : device.attributes) {
    bytes += 32 + name.size();
    if (const std::string* text = std::get_if<std::string>(&value)) bytes += text->size();
  }
  for (const auto& [name, capacity] : device.capacity) {
    bytes += 48 + name.size();
    if (capacity.request_policy.has_value()) bytes += 128 + 24 * capacity.request_policy->valid_values.size();
  }
  for (const CounterUse& use : device.consumes_counters) bytes += 48 + use.counter_set.size() + 96 * use.counters.size();
  for (const DeviceTaint& taint : device.taints) bytes += 96 + taint.key.size() + taint.value.size();
  return bytes;
}

bool IsDemanding(const SliceDevice& device) { return !device.taints.empty() || !device.consumes_counters.empty(); }

bool Uses(const SliceDevice& device, const std::string& set) {
  return std::any_of(device.consumes_counters.begin(), device.consumes_counters.end(), [&](const CounterUse& use) { return use.counter_set == set; });
}

// From 1.35: counter sets first, which change least, then devices; references work across the pool.
void AddCounterSlices(const std::vector<CounterSet>& sets, std::vector<SliceContent>& slices) {
  for (const CounterSet& set : sets) {
    if (slices.empty() || slices.back().shared_counters.size() == kMaxSetsPerSlice) slices.emplace_back();
    slices.back().shared_counters.push_back(set);
  }
}

void AddDeviceSlices(std::vector<SliceDevice> devices, std::vector<SliceContent>& slices) {
  bool open = false;  // the last slice takes more devices
  bool demanding = false;
  std::size_t bytes = 0;
  for (SliceDevice& device : devices) {
    const bool demanding_after = demanding || IsDemanding(device);
    const std::size_t size = Bytes(device);
    if (open) {
      const std::size_t most = demanding_after ? kMaxDemandingDevices : kMaxDevices;
      open = slices.back().devices.size() < most && bytes + size <= kMaxSliceBytes;
    }
    if (!open) {
      slices.emplace_back();
      bytes = 0;
    }
    demanding = open ? demanding_after : IsDemanding(device);
    open = true;
    bytes += size;
    slices.back().devices.push_back(std::move(device));
  }
}

// ---- 1.34: a slice holds the counter sets of its devices.

// Devices that hang together by counter sets, and these sets.
struct Group {
  std::vector<const CounterSet*> sets;
  std::vector<SliceDevice> devices;
  std::size_t shared_counters() const {
    std::size_t count = 0;
    for (const CounterSet* set : sets) count += set->counters.size();
    return count;
  }
  std::size_t device_counters() const {
    std::size_t count = 0;
    for (const SliceDevice& device : devices) {
      for (const CounterUse& use : device.consumes_counters) count += use.counters.size();
    }
    return count;
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const SliceDevice& device : devices) sum += Bytes(device);
    return sum;
  }
  void Take(Group& other) {
    sets.insert(sets.end(), other.sets.begin(), other.sets.end());
    std::move(other.devices.begin(), other.devices.end(), std::back_inserter(devices));
    other = {};
  }
};

bool Fits34(const Group& group) {
  return group.devices.size() <= kMaxDevices && group.shared_counters() <= kMaxSharedCounters34 && group.device_counters() <= kMaxDeviceCounters34 &&
         group.bytes() <= kMaxSliceBytes;
}

std::vector<Group> GroupBySets(std::vector<SliceDevice> devices, const std::vector<CounterSet>& sets) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> group_of;  // by counter set
  for (SliceDevice& device : devices) {
    std::size_t home = groups.size();
    for (const CounterUse& use : device.consumes_counters) {
      if (const auto found = group_of.find(use.counter_set); found != group_of.end()) home = std::min(home, found->second);
    }
    if (home == groups.size()) groups.emplace_back();
    for (const CounterUse& use : device.consumes_counters) {
      const auto [entry, added] = group_of.emplace(use.counter_set, home);
      if (added) {
        const auto set = std::find_if(sets.begin(), sets.end(), [&](const CounterSet& one) { return one.name == use.counter_set; });
        groups[home].sets.push_back(&*set);
      }
      if (entry->second == home) continue;
      const std::size_t merged = entry->second;  // the device joins two groups
      groups[home].Take(groups[merged]);
      for (auto& [name, group] : group_of) {
        if (group == merged) group = home;
      }
    }
    groups[home].devices.push_back(std::move(device));
  }
  std::erase_if(groups, [](const Group& group) { return group.devices.empty(); });
  return groups;
}

void CutTo34(Group& group, Problems& problems) {
  while (!group.devices.empty() && !Fits34(group)) {
    problems.Add(ProblemKind::kWithheld, group.devices.back().name, "consumesCounters",
                 "Kubernetes 1.34 wants a counter set and all its devices in one slice, which has no room for it");
    group.devices.pop_back();
    std::erase_if(group.sets, [&](const CounterSet* set) {
      return std::none_of(group.devices.begin(), group.devices.end(), [&](const SliceDevice& device) { return Uses(device, set->name); });
    });
  }
}

std::vector<SliceContent> LayOut34(std::vector<SliceDevice> devices, const std::vector<CounterSet>& sets, Problems& problems) {
  std::vector<Group> slices;
  for (Group& group : GroupBySets(std::move(devices), sets)) {
    CutTo34(group, problems);
    if (group.devices.empty()) continue;
    const bool fits = !slices.empty() && slices.back().devices.size() + group.devices.size() <= kMaxDevices &&
                      slices.back().shared_counters() + group.shared_counters() <= kMaxSharedCounters34 &&
                      slices.back().device_counters() + group.device_counters() <= kMaxDeviceCounters34 &&
                      slices.back().bytes() + group.bytes() <= kMaxSliceBytes;
    if (!fits) slices.emplace_back();
    slices.back().Take(group);
  }
  std::vector<SliceContent> contents;
  for (Group& slice : slices) {
    SliceContent& content = contents.emplace_back();
    content.devices = std::move(slice.devices);
    for (const CounterSet* set : slice.sets) content.shared_counters.push_back(*set);
  }
  return contents;
}

std::vector<CounterSet> UsedSets(const std::vector<SliceDevice>& devices, const std::vector<CounterSet>& sets) {
  std::set<std::string> used;
  for (const SliceDevice& device : devices) {
    for (const CounterUse& use : device.consumes_counters) used.insert(use.counter_set);
  }
  std::vector<CounterSet> kept;
  std::copy_if(sets.begin(), sets.end(), std::back_inserter(kept), [&](const CounterSet& set) { return used.contains(set.name); });
  return kept;
}

}  // namespace

std::vector<SliceContent> LayOut(std::vector<SliceDevice> devices, const std::vector<CounterSet>& sets, const ServerFeatures& features, Problems& problems) {
  if (features.minor <= 34) return LayOut34(std::move(devices), sets, problems);
  std::vector<SliceContent> slices;
  AddCounterSlices(UsedSets(devices, sets), slices);
  AddDeviceSlices(std::move(devices), slices);
  return slices;
}

}  // namespace tranche::slices
