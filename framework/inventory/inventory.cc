#include "inventory/inventory.h"

#include <utility>

namespace tranche::inventory {
namespace {

bool SameContent(const Snapshot& left, const Snapshot& right) {
  return left.configuration == right.configuration && left.devices == right.devices && left.counter_sets == right.counter_sets &&
         left.withheld == right.withheld;
}

}  // namespace

const PublishedDevice* Snapshot::Find(std::string_view driver, std::string_view pool, std::string_view device) const {
  for (const PublishedDevice& candidate : devices) {
    if (candidate.name == device && candidate.driver == driver && candidate.pool == pool) return &candidate;
  }
  return nullptr;
}

std::shared_ptr<const Snapshot> Inventory::Current() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

void Inventory::SetConfiguration(const config::HostConfiguration& configuration) {
  {
    const std::lock_guard lock(mutex_);
    configuration_ = configuration;
  }
  Recompute();
}

void Inventory::SetDiscovered(const std::string& backend, PhysicalDevices devices) {
  {
    const std::lock_guard lock(mutex_);
    discovered_[backend] = std::move(devices);
  }
  Recompute();
}

void Inventory::Rejoin() { Recompute(); }

void Inventory::OnChange(std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

void Inventory::Recompute() {
  std::vector<std::function<void()>> listeners;
  {
    const std::lock_guard recompute_lock(recompute_mutex_);
    const std::vector<HeldOffer> held = held_ ? held_() : std::vector<HeldOffer>{};
    std::unique_lock lock(mutex_);
    const config::HostConfiguration configuration = configuration_;
    const std::map<std::string, PhysicalDevices> discovered = discovered_;
    const std::shared_ptr<const Snapshot> previous = snapshot_;
    lock.unlock();
    auto next = std::make_shared<const Snapshot>(Join(configuration, discovered, pool_, held, previous.get()));
    lock.lock();
    if (!SameContent(*previous, *next)) listeners = listeners_;
    snapshot_ = std::move(next);
  }
  for (const std::function<void()>& listener : listeners) listener();
}

}  // namespace tranche::inventory
