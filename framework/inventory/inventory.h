// What this node has now: devices that backends discovered × configuration → published devices. Snapshots are immutable; readers take one
// and keep it. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "backend/backend.h"
#include "config/config.h"
#include "model/device.h"

namespace tranche::inventory {

// A device or offer that is not published, and why (CAP-5, CAP-9, planner errors): shown by `tranchectl devices`.
struct Withheld {
  std::string driver, offer, backend, physical, reason;
  friend bool operator==(const Withheld&, const Withheld&) = default;
};

struct Snapshot {
  config::HostConfiguration configuration;
  std::vector<PublishedDevice> devices;                         // stable order: driver, offer as configured, physical name (NaturalLess)
  std::map<std::string, std::vector<CounterSet>> counter_sets;  // by driver (one pool a driver and node)
  std::vector<Withheld> withheld;
  std::map<std::pair<std::string, std::string>, config::PolicySnapshot> policies;  // by driver and class, of every configured class
  const PublishedDevice* Find(std::string_view driver, std::string_view pool, std::string_view device) const;
};

// A live offer that the configuration no longer has: stays published as draining (docs/architecture.md §5).
struct HeldOffer {
  std::string driver, pool, device, offer, backend, physical;
  Mode mode = Mode::kShare;
};

// Pure: joins discovered devices (by backend name) with the configuration. `pool` is the node's name. Rules: reserve and overhead are subtracted and
// rounded down to whole base units; the backend's policy applies where the configuration has none; every shared capacity gets a default;
// `share` is refused for a device with a capacity of enforcement none (CAP-5); policies are validated before they are published; offers on
// one silicon share a counter set; attributes `offer` and `enforcement` are added; `previous` keeps the published shape of held offers.
Snapshot Join(const config::HostConfiguration& configuration, const std::map<std::string, PhysicalDevices>& discovered, const std::string& pool,
              const std::vector<HeldOffer>& held, const Snapshot* previous);

// `held` is asked during each recomputation: it must not wait for a lock under which its owner calls SetConfiguration, SetDiscovered or Rejoin.
class Inventory {
 public:
  Inventory(std::string pool, std::function<std::vector<HeldOffer>()> held) : pool_(std::move(pool)), held_(std::move(held)) {}
  std::shared_ptr<const Snapshot> Current() const;
  const std::string& pool() const { return pool_; }
  void SetConfiguration(const config::HostConfiguration& configuration);
  // A failed discovery keeps what was known of that backend.
  void SetDiscovered(const std::string& backend, PhysicalDevices devices);
  void Rejoin();                                  // after the last share of a held offer ended
  void OnChange(std::function<void()> listener);  // called after each change of the snapshot, outside the lock

 private:
  void Recompute();
  const std::string pool_;
  const std::function<std::vector<HeldOffer>()> held_;
  std::mutex recompute_mutex_;  // one join at a time, so that an older one never replaces a newer; taken before mutex_
  mutable std::mutex mutex_;
  config::HostConfiguration configuration_;
  std::map<std::string, PhysicalDevices> discovered_;
  std::shared_ptr<const Snapshot> snapshot_ = std::make_shared<Snapshot>();
  std::vector<std::function<void()>> listeners_;
};

}  // namespace tranche::inventory
