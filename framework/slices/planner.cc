#include "slices/planner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <set>
#include <utility>

#include "base/ids.h"
#include "base/text.h"
#include "slices/device_fields.h"
#include "slices/layout.h"
#include "slices/problems.h"

namespace tranche::slices {
namespace {

constexpr std::size_t kMaxCountersPerSet = 32;
constexpr std::size_t kMaxGenerateName = 248;    // the server appends 5 characters, a name has 253
constexpr std::size_t kKeptOfGenerateName = 58;  // and shortens what it appends to
constexpr std::size_t kIndexDigits = 5;

// Counter sets of the pool and which of them the server can keep books of.
class Silicon {
 public:
  Silicon(const std::vector<CounterSet>& sets, const ServerFeatures& features) {
    for (const CounterSet& set : sets) {
      remaining_.emplace(set.name, set.counters);
      if (features.partitionable && CanBePublished(set)) countable_.insert(set.name);
    }
  }

  bool Countable(const std::string& set) const { return countable_.contains(set); }

  // Empty: the uses fit the sets that the pool has.
  std::string Mistake(const SliceDevice& device) const {
    if (device.consumes_counters.size() > 2) return "a device can draw on two counter sets at most";
    if (device.consumes_counters.size() == 2 && device.consumes_counters[0].counter_set == device.consumes_counters[1].counter_set) {
      return Cat("it names counter set ", device.consumes_counters[0].counter_set, " twice");
    }
    for (const CounterUse& use : device.consumes_counters) {
      const auto set = remaining_.find(use.counter_set);
      if (set == remaining_.end()) return Cat("counter set ", use.counter_set, " is not published");
      for (const auto& [name, amount] : use.counters) {
        if (!set->second.contains(name)) return Cat("counter set ", use.counter_set, " has no counter ", name);
        if (amount.IsNegative()) return Cat("counter ", name, " is negative");
      }
    }
    return {};
  }

  // For sets that the server keeps no books of: the device is charged here, once and for ever.
  bool Fits(const SliceDevice& device, Mode mode) const {
    return std::all_of(device.consumes_counters.begin(), device.consumes_counters.end(), [&](const CounterUse& use) {
      if (Countable(use.counter_set)) return true;
      const auto taken = mode_.find(use.counter_set);
      if (taken != mode_.end() && taken->second != mode) return false;
      return IsCovered(use);
    });
  }
  void Charge(const SliceDevice& device, std::optional<Mode> mode) {
    for (const CounterUse& use : device.consumes_counters) {
      if (Countable(use.counter_set)) continue;
      if (mode.has_value()) mode_.emplace(use.counter_set, *mode);
      for (const auto& [name, amount] : use.counters) remaining_[use.counter_set][name] -= amount;
    }
  }
  void StripUncountable(SliceDevice& device) const {
    std::erase_if(device.consumes_counters, [&](const CounterUse& use) { return !Countable(use.counter_set); });
  }

  // A set that one published device alone draws on excludes nobody: without it, a slice holds twice the devices. Where the device can never be
  // had because it draws more than there is, the set stays and says so.
  void StripSoleUses(std::vector<SliceDevice>& devices) const {
    std::map<std::string, int> users;
    for (const SliceDevice& device : devices) {
      for (const CounterUse& use : device.consumes_counters) ++users[use.counter_set];
    }
    for (SliceDevice& device : devices) {
      std::erase_if(device.consumes_counters, [&](const CounterUse& use) { return users.at(use.counter_set) == 1 && IsCovered(use); });
    }
  }

 private:
  bool IsCovered(const CounterUse& use) const {
    const Quantities& available = remaining_.at(use.counter_set);
    return std::all_of(use.counters.begin(), use.counters.end(), [&](const auto& counter) { return counter.second <= available.at(counter.first); });
  }
  static bool CanBePublished(const CounterSet& set) {
    return IsDnsLabel(set.name) && !set.counters.empty() && set.counters.size() <= kMaxCountersPerSet &&
           std::all_of(set.counters.begin(), set.counters.end(), [](const auto& counter) { return IsDnsLabel(counter.first) && !counter.second.IsNegative(); });
  }

  std::map<std::string, Quantities> remaining_;
  std::set<std::string> countable_;
  std::map<std::string, Mode> mode_;
};

struct Candidate {
  const PublishedDevice* source;
  SliceDevice device;
};

class Planner {
 public:
  Planner(const std::string& driver, const inventory::Snapshot& snapshot, const DeviceTaints& taints, const ServerFeatures& features)
      : driver_(driver), snapshot_(snapshot), taints_(taints), features_(features), sets_(SetsOf(snapshot, driver)), silicon_(sets_, features) {}

  std::vector<SliceContent> Contents() {
    std::vector<Candidate> candidates = Candidates();
    ReserveDraining(candidates);
    std::vector<SliceDevice> devices;
    for (Candidate& candidate : candidates) Take(std::move(candidate), devices);
    silicon_.StripSoleUses(devices);
    return LayOut(std::move(devices), sets_, features_, problems_);
  }
  std::vector<Problem> TakeProblems() { return problems_.Take(); }

 private:
  static std::vector<CounterSet> SetsOf(const inventory::Snapshot& snapshot, const std::string& driver) {
    const auto found = snapshot.counter_sets.find(driver);
    std::vector<CounterSet> sets = found == snapshot.counter_sets.end() ? std::vector<CounterSet>() : found->second;
    std::set<std::string> seen;
    std::erase_if(sets, [&](const CounterSet& set) { return !seen.insert(set.name).second; });
    return sets;
  }

  std::vector<Candidate> Candidates() {
    std::vector<Candidate> candidates;
    std::set<std::string> names;
    const std::vector<DeviceTaint> none;
    for (const PublishedDevice& source : snapshot_.devices) {
      if (source.driver != driver_) continue;
      const auto taints = taints_.find(source.name);
      std::optional<SliceDevice> device = MakeDevice(source, taints == taints_.end() ? none : taints->second, features_, problems_);
      if (!device.has_value()) continue;
      if (!names.insert(device->name).second) {
        problems_.Add(ProblemKind::kWithheld, source.name, "name", "another device of the pool has this name");
        continue;
      }
      if (const std::string mistake = silicon_.Mistake(*device); !mistake.empty()) {
        problems_.Add(ProblemKind::kWithheld, source.name, "consumesCounters", mistake);
        continue;
      }
      candidates.push_back({&source, *std::move(device)});
    }
    return candidates;
  }

  // What live claims of withdrawn offers hold is not given a second time.
  void ReserveDraining(const std::vector<Candidate>& candidates) {
    for (const Candidate& candidate : candidates) {
      if (candidate.source->draining) silicon_.Charge(candidate.device, std::nullopt);
    }
  }

  void Take(Candidate candidate, std::vector<SliceDevice>& devices) {
    if (!candidate.source->draining) {
      if (!silicon_.Fits(candidate.device, candidate.source->mode)) {
        problems_.Add(ProblemKind::kWithheld, candidate.device.name, "consumesCounters",
                      features_.partitionable
                          ? "its counter set cannot be published, so that only devices that fit its silicon together are offered, of the first offer's mode"
                          : "the API server drops counters, so that only devices that fit their silicon together are offered, of the first offer's mode; "
                            "switch on its feature gate DRAPartitionableDevices");
        return;
      }
      silicon_.Charge(candidate.device, candidate.source->mode);
    }
    silicon_.StripUncountable(candidate.device);
    devices.push_back(std::move(candidate.device));
  }

  const std::string& driver_;
  const inventory::Snapshot& snapshot_;
  const DeviceTaints& taints_;
  const ServerFeatures& features_;
  const std::vector<CounterSet> sets_;
  Silicon silicon_;
  Problems problems_;
};

}  // namespace

ServerFeatures ServerFeatures::Defaults(int minor) {
  const bool on = minor >= 36;
  return {minor, on, on, on};
}

std::string_view ProblemKindName(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kRepaired: return "repaired";
    case ProblemKind::kOmitted: return "omitted";
    case ProblemKind::kWithheld: return "withheld";
  }
  return "unknown";
}

std::string GenerateName(std::size_t index, const std::string& driver, const std::string& node) {
  std::array<char, 24> digits{};
  std::snprintf(digits.data(), digits.size(), "%05zx", index);
  std::string name = Cat(digits.data(), "-", driver, "-", node);
  if (name.size() >= kMaxGenerateName) name.resize(kMaxGenerateName - 1);
  while (name.back() == '.' || name.back() == '-') name.pop_back();
  return name + "-";
}

std::optional<std::size_t> IndexOf(const std::string& name, const std::string& driver, const std::string& node) {
  std::size_t index = 0;
  const char* begin = name.data();
  const auto [end, error] = std::from_chars(begin, begin + name.size(), index, 16);
  if (error != std::errc() || static_cast<std::size_t>(end - begin) < kIndexDigits) return std::nullopt;
  const std::string prefix = GenerateName(index, driver, node).substr(0, kKeptOfGenerateName);
  return name.starts_with(prefix) && name.size() > prefix.size() ? std::optional(index) : std::nullopt;
}

SlicePlan Plan(const std::string& driver, const std::string& node, const inventory::Snapshot& snapshot, const DeviceTaints& taints,
               const ServerFeatures& features) {
  Planner planner(driver, snapshot, taints, features);
  std::vector<SliceContent> contents = planner.Contents();
  if (contents.empty()) contents.emplace_back();  // says that the driver is up and has no device
  SlicePlan plan;
  for (SliceContent& content : contents) {
    Slice slice;
    slice.generate_name = GenerateName(plan.slices.size(), driver, node);
    slice.driver = driver;
    slice.node_name = node;
    slice.pool_name = node;
    slice.slice_count = static_cast<std::int64_t>(contents.size());
    slice.content = std::make_shared<const SliceContent>(std::move(content));
    plan.slices.push_back(std::move(slice));
  }
  plan.problems = planner.TakeProblems();
  return plan;
}

}  // namespace tranche::slices
