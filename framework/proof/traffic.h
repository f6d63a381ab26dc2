// Traffic between pods and a peer: one iperf3 server in the peer's namespace and one client in the pod's for each stream. Every child is
// ended by its own id.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proof/process.h"

namespace tranche::proof {

enum class Traffic { kTcp, kUdp };
enum class Direction { kUp, kDown };                  // from the pod, to the pod
std::string_view TrafficName(Traffic traffic);        // tcp | udp
std::string_view DirectionName(Direction direction);  // up | down

struct Peer {
  std::string network_namespace, address;  // IPv4
};

struct Stream {
  std::string pod_namespace, pod_address;
  Traffic traffic = Traffic::kTcp;
  Direction direction = Direction::kUp;
  std::int64_t udp_bits_per_second = 0;  // payload; TCP sends what it can
};

class TrafficRun {
 public:
  // Returns once every client was started, which is a moment after every server listens. They would end by themselves after `duration` plus
  // some seconds; Stop ends them earlier. FailedPrecondition when iperf3 is not installed.
  static absl::StatusOr<TrafficRun> Start(const Peer& peer, const std::vector<Stream>& streams, std::chrono::milliseconds duration);

  // FailedPrecondition with iperf3's own words when a client has ended.
  absl::Status Check();
  void Stop();

 private:
  TrafficRun(std::vector<Process> servers, std::vector<Process> clients) : servers_(std::move(servers)), clients_(std::move(clients)) {}
  std::vector<Process> servers_, clients_;
};

}  // namespace tranche::proof
