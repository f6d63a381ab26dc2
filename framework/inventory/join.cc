#include <algorithm>
#include <set>

#include "base/ids.h"
#include "base/order.h"
#include "base/status.h"
#include "base/text.h"
#include "capacity/capacity.h"
#include "inventory/inventory.h"

namespace tranche::inventory {
namespace {

using config::CapacityConfiguration;
using config::DriverConfiguration;
using config::OfferConfiguration;

// Counter and counter-set names are DNS labels in the API.
std::string CounterName(const std::string& name) { return IsDnsLabel(name) ? name : ToDnsLabel(name); }

Quantity FloorToGrid(const Quantity& value, const Quantity& step) {
  const Quantity up = value.RoundUpToGrid(Quantity(), step);
  return up > value ? up - step : up;
}

Quantity FloorToWhole(const Quantity& value) {
  if (value.IsInteger()) return value;
  return FloorToGrid(value, Quantity::FromInt64(1));
}

Quantity Reserved(const PhysicalCapacity& capacity, const config::Reserve& reserve) {
  Quantity amount = reserve.amount.value_or(Quantity());
  if (reserve.percent.has_value()) amount = capacity.value.ScaleDown(*reserve.percent, 100);
  return std::max(amount, capacity.overhead);
}

// What a request that names no amount gets: the smallest sensible share, or everything where nothing says what is sensible.
Quantity DefaultShare(const RequestPolicy& policy, const Quantity& value) {
  if (!policy.valid_values.empty()) return policy.valid_values.front();
  if (!policy.valid_range.has_value()) return value;
  const ValidRange& range = *policy.valid_range;
  if (!range.min.IsZero()) return range.min;
  if (range.step.has_value()) return *range.step;
  return range.max.value_or(value);
}

// Fields that the configuration leaves out come from the backend.
RequestPolicy MergePolicies(const std::optional<RequestPolicy>& configured, const std::optional<RequestPolicy>& backend) {
  RequestPolicy policy = configured.value_or(backend.value_or(RequestPolicy()));
  const bool limits = policy.valid_range.has_value() || !policy.valid_values.empty();
  if (!limits && backend.has_value()) {
    policy.valid_range = backend->valid_range;
    policy.valid_values = backend->valid_values;
  }
  return policy;
}

absl::StatusOr<PublishedCapacity> PublishCapacity(const std::string& name, const PhysicalCapacity& physical, const CapacityConfiguration& configured,
                                                  Mode mode) {
  PublishedCapacity published{FloorToWhole(physical.value - Reserved(physical, configured.reserve)), std::nullopt, physical.enforcement};
  if (mode == Mode::kShare) {
    RequestPolicy policy = MergePolicies(configured.policy, physical.request_policy);
    if (policy.valid_range.has_value() && policy.valid_range->step.has_value() && !policy.valid_range->step->IsZero()) {
      published.value = FloorToGrid(published.value, *policy.valid_range->step);
    }
    if (!policy.default_value.has_value()) policy.default_value = DefaultShare(policy, published.value);
    published.request_policy = std::move(policy);
  }
  if (published.value.IsNegative() || (published.value.IsZero() && !physical.value.IsZero())) {
    return absl::FailedPreconditionError(Cat("capacity ", name, ": nothing of ", physical.value.ToString(), " is left after the reserve or overhead of ",
                                             Reserved(physical, configured.reserve).ToString(), "; make the reserve smaller"));
  }
  TRANCHE_RETURN_IF_ERROR(capacity::ValidatePolicy(name, published, mode == Mode::kShare));
  return published;
}

// A share that nothing limits is a promise that cannot be kept (CAP-5).
absl::Status CheckShareable(const PhysicalDevice& physical) {
  bool any = false;
  for (const auto& [name, capacity] : physical.capacities) {
    if (!capacity.shareable) continue;
    any = true;
    if (capacity.enforcement == Enforcement::kNone) {
      return absl::FailedPreconditionError(
          Cat("capacity ", name, " is not enforced on this device, so that a share of it would limit nothing; offer it whole or in partitions"));
    }
  }
  if (any) return absl::OkStatus();
  return absl::FailedPreconditionError("no capacity of this device can be shared; offer it whole");
}

absl::Status CheckOffer(const OfferConfiguration& offer, const PhysicalDevice& physical) {
  if (std::find(physical.modes.begin(), physical.modes.end(), offer.mode) == physical.modes.end()) {
    return absl::FailedPreconditionError(Cat("the device does not support mode ", ModeName(offer.mode)));
  }
  for (const auto& [name, capacity] : offer.capacity) {
    if (!physical.capacities.contains(name)) {
      return absl::FailedPreconditionError(Cat("the offer configures capacity ", name, ", which the device lacks; correct the name or remove it"));
    }
  }
  return offer.mode == Mode::kShare ? CheckShareable(physical) : absl::OkStatus();
}

std::vector<CounterUse> CounterUses(const PhysicalDevice& physical) {
  if (!physical.silicon.has_value()) return {};
  CounterUse use{CounterName(physical.silicon->id), {}};
  for (const auto& [name, count] : physical.silicon->uses) {
    if (count > 0) use.counters[CounterName(name)] = Quantity::FromInt64(count);
  }
  return use.counters.empty() ? std::vector<CounterUse>{} : std::vector<CounterUse>{std::move(use)};
}

// One physical device × one offer.
absl::StatusOr<PublishedDevice> Publish(const std::string& driver, const std::string& pool, const OfferConfiguration& offer, const PhysicalDevice& physical) {
  TRANCHE_RETURN_IF_ERROR(CheckOffer(offer, physical));
  PublishedDevice device;
  device.driver = driver;
  device.pool = pool;
  device.name = ToDnsLabel(Cat(physical.name, "-", offer.name));
  device.offer = offer.name;
  device.backend = offer.backend;
  device.physical = physical.name;
  device.mode = offer.mode;
  device.allow_multiple_allocations = offer.mode == Mode::kShare;
  device.enforcement = Enforcement::kHard;
  for (const auto& [name, capacity] : physical.capacities) {
    if (offer.mode == Mode::kShare && !capacity.shareable) continue;
    const auto configured = offer.capacity.find(name);
    TRANCHE_ASSIGN_OR_RETURN(PublishedCapacity published,
                             PublishCapacity(name, capacity, configured == offer.capacity.end() ? CapacityConfiguration() : configured->second, offer.mode));
    device.enforcement = std::min(device.enforcement, published.enforcement);
    device.capacity.emplace(name, std::move(published));
  }
  device.attributes = physical.attributes;
  device.attributes["offer"] = offer.name;
  device.attributes["enforcement"] = std::string(EnforcementName(device.enforcement));
  device.consumes_counters = CounterUses(physical);
  return device;
}

std::vector<const PhysicalDevice*> SortedByName(const std::vector<PhysicalDevice>& devices) {
  std::vector<const PhysicalDevice*> sorted;
  for (const PhysicalDevice& device : devices) sorted.push_back(&device);
  std::stable_sort(sorted.begin(), sorted.end(), [](const PhysicalDevice* a, const PhysicalDevice* b) { return NaturalLess(a->name, b->name); });
  return sorted;
}

class Joiner {
 public:
  Joiner(const std::map<std::string, PhysicalDevices>& discovered, const std::string& pool, const Snapshot* previous, Snapshot& snapshot)
      : discovered_(discovered), pool_(pool), previous_(previous), snapshot_(snapshot) {}

  void AddOffer(const std::string& driver, const OfferConfiguration& offer) {
    const auto devices = discovered_.find(offer.backend);
    if (devices == discovered_.end() || devices->second->empty()) {
      snapshot_.withheld.push_back({driver, offer.name, offer.backend, "", Cat("backend ", offer.backend, " has reported no device")});
      return;
    }
    std::set<std::string> seen;
    for (const PhysicalDevice* physical : SortedByName(*devices->second)) {
      absl::Status status = seen.insert(physical->name).second
                                ? Add(driver, offer, *physical)
                                : absl::AlreadyExistsError("the backend reports two devices of this name; the first one is used");
      if (status.ok()) continue;
      snapshot_.withheld.push_back({driver, offer.name, offer.backend, physical->name, std::string(status.message())});
    }
  }

  // A device that the store has live claims on and that the configuration no longer gives.
  void AddHeld(const HeldOffer& held) {
    if (snapshot_.Find(held.driver, held.pool, held.device) != nullptr) return;
    PublishedDevice device = Remembered(held);
    device.draining = true;
    KeepCounterSets(device);
    snapshot_.devices.push_back(std::move(device));
  }

 private:
  absl::Status Add(const std::string& driver, const OfferConfiguration& offer, const PhysicalDevice& physical) {
    TRANCHE_ASSIGN_OR_RETURN(PublishedDevice device, Publish(driver, pool_, offer, physical));
    if (names_.contains({driver, device.name})) {
      return absl::AlreadyExistsError(Cat("another device is already published as ", device.name, "; rename the offer"));
    }
    TRANCHE_RETURN_IF_ERROR(ClaimSilicon(driver, physical));
    names_.emplace(driver, device.name);
    snapshot_.devices.push_back(std::move(device));
    return absl::OkStatus();
  }

  // Counters are per driver and pool: one silicon in two drivers would be handed out twice.
  absl::Status ClaimSilicon(const std::string& driver, const PhysicalDevice& physical) {
    if (!physical.silicon.has_value() || CounterUses(physical).empty()) return absl::OkStatus();
    const auto [owner, added] = silicon_owner_.emplace(physical.silicon->id, driver);
    if (owner->second != driver) {
      return absl::FailedPreconditionError(
          Cat("silicon ", physical.silicon->id, " is already offered by driver ", owner->second, "; offer one silicon by one driver"));
    }
    CounterSet set{CounterName(physical.silicon->id), {}};
    for (const auto& [name, count] : physical.silicon->units) set.counters[CounterName(name)] = Quantity::FromInt64(count);
    std::vector<CounterSet>& sets = snapshot_.counter_sets[driver];
    const auto [existing, is_new] = set_index_.try_emplace({driver, set.name}, sets.size());
    if (is_new) {
      sets.push_back(std::move(set));
      return absl::OkStatus();
    }
    if (sets[existing->second] == set) return absl::OkStatus();
    return absl::FailedPreconditionError(Cat("the backend states different units for silicon ", physical.silicon->id, " on different devices"));
  }

  const PhysicalDevice* FindPhysical(const std::string& backend, const std::string& name) const {
    const auto devices = discovered_.find(backend);
    if (devices == discovered_.end()) return nullptr;
    const auto found = std::find_if(devices->second->begin(), devices->second->end(), [&](const PhysicalDevice& device) { return device.name == name; });
    return found == devices->second->end() ? nullptr : &*found;
  }

  PublishedDevice Remembered(const HeldOffer& held) {
    if (const PublishedDevice* before = previous_ == nullptr ? nullptr : previous_->Find(held.driver, held.pool, held.device)) return *before;
    OfferConfiguration offer;
    offer.name = held.offer;
    offer.backend = held.backend;
    offer.mode = held.mode;
    const PhysicalDevice* physical = FindPhysical(held.backend, held.physical);
    if (physical != nullptr && ClaimSilicon(held.driver, *physical).ok()) {
      if (absl::StatusOr<PublishedDevice> device = Publish(held.driver, held.pool, offer, *physical); device.ok()) {
        device->name = held.device;
        return *std::move(device);
      }
    }
    // Nothing is known but the claim's own figures: an address, so that what holds it can be shown and released.
    PublishedDevice device;
    device.driver = held.driver;
    device.pool = held.pool;
    device.name = held.device;
    device.offer = held.offer;
    device.backend = held.backend;
    device.physical = held.physical;
    device.mode = held.mode;
    device.allow_multiple_allocations = held.mode == Mode::kShare;
    device.attributes["offer"] = held.offer;
    return device;
  }

  // The sets that a remembered device draws on, where no other device brought them.
  void KeepCounterSets(const PublishedDevice& device) {
    if (previous_ == nullptr || device.consumes_counters.empty()) return;
    const auto before = previous_->counter_sets.find(device.driver);
    if (before == previous_->counter_sets.end()) return;
    for (const CounterSet& set : before->second) {
      const bool used =
          std::any_of(device.consumes_counters.begin(), device.consumes_counters.end(), [&](const CounterUse& use) { return use.counter_set == set.name; });
      std::vector<CounterSet>& sets = snapshot_.counter_sets[device.driver];
      if (used && set_index_.try_emplace({device.driver, set.name}, sets.size()).second) sets.push_back(set);
    }
  }

  const std::map<std::string, PhysicalDevices>& discovered_;
  const std::string& pool_;
  const Snapshot* previous_;
  Snapshot& snapshot_;
  std::map<std::string, std::string> silicon_owner_;
  std::set<std::pair<std::string, std::string>> names_;                   // driver and published name
  std::map<std::pair<std::string, std::string>, std::size_t> set_index_;  // driver and counter set: its place in the snapshot's
};

// Held devices come after the offers of their driver; drivers that are no longer configured come last.
void SortByDriver(const config::HostConfiguration& configuration, std::vector<PublishedDevice>& devices) {
  std::map<std::string, std::size_t> position;
  for (std::size_t i = 0; i < configuration.drivers.size(); ++i) position.emplace(configuration.drivers[i].name, i);
  const auto rank = [&](const PublishedDevice& device) {
    const auto found = position.find(device.driver);
    return found == position.end() ? position.size() : found->second;
  };
  std::stable_sort(devices.begin(), devices.end(), [&](const PublishedDevice& a, const PublishedDevice& b) { return rank(a) < rank(b); });
}

}  // namespace

Snapshot Join(const config::HostConfiguration& configuration, const std::map<std::string, PhysicalDevices>& discovered, const std::string& pool,
              const std::vector<HeldOffer>& held, const Snapshot* previous) {
  Snapshot snapshot;
  snapshot.configuration = configuration;
  Joiner joiner(discovered, pool, previous, snapshot);
  for (const DriverConfiguration& driver : configuration.drivers) {
    for (const OfferConfiguration& offer : driver.offers) joiner.AddOffer(driver.name, offer);
    for (const config::ClassConfiguration& device_class : driver.classes) {
      snapshot.policies[{driver.name, device_class.name}] = config::SnapshotPolicy(driver, device_class);
    }
  }
  for (const HeldOffer& offer : held) joiner.AddHeld(offer);
  SortByDriver(configuration, snapshot.devices);
  return snapshot;
}

}  // namespace tranche::inventory
