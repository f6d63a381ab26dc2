// The kernel's own traffic-control counters, read by dump over netlink. One reader is used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "model/share.h"

namespace tranche::proof {

struct Counters {
  std::uint64_t bytes = 0, packets = 0, drops = 0, overlimits = 0, backlog = 0;  // bytes are L2 bytes; backlog in bytes
  friend bool operator==(const Counters&, const Counters&) = default;
};

// All values were read between `at` − `uncertainty` and `at` + `uncertainty`.
struct Sample {
  std::chrono::steady_clock::time_point at{};
  std::chrono::steady_clock::duration uncertainty{};
  std::vector<Counters> values;  // in the order of the sources
};

class CounterReader {
 public:
  // Resolves the interfaces inside `network_namespace` now. NotFound names an interface that is absent.
  static absl::StatusOr<CounterReader> Open(const std::string& network_namespace, std::vector<CounterSource> sources);
  CounterReader(CounterReader&&) noexcept;
  CounterReader& operator=(CounterReader&&) noexcept;
  ~CounterReader();

  // NotFound names a source whose class or qdisc is gone.
  absl::StatusOr<Sample> Read();
  // Σ direct_packets_stat of the HTB root qdiscs of the sources' interfaces: packets that no class shaped.
  absl::StatusOr<std::uint64_t> DirectPackets();

 private:
  struct State;
  explicit CounterReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Bytes of an interface as its namespace counts them.
struct InterfaceBytes {
  std::uint64_t received = 0, sent = 0;
};
absl::StatusOr<InterfaceBytes> ReadInterfaceBytes(const std::string& network_namespace, const std::string& interface);

}  // namespace tranche::proof
