// Proves that shares are really limited (CAP-14): sends more traffic than each share may carry, reads what the kernel let through from its own
// counters, and measures what a share's neighbours notice. The shares exist and are attached already; nothing here changes a limit.
//
// Percentages are L2 bytes of the kernel's class or root qdisc against the limit in force. Blocks; needs root and iperf3.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "model/share.h"
#include "proof/probe.h"
#include "proof/traffic.h"

namespace tranche::proof {

struct Share {
  std::string name;  // for tables: "team-a/small"
  std::string tenant, claim, share_id;
  std::string asked, consumed;                        // Kubernetes text; asked may be unknown
  std::int64_t limit_bits_per_second = 0;             // in force
  std::string network_namespace, address, interface;  // the pod's
  std::optional<CounterSource> egress, ingress;       // what leaves the pod, what reaches it
};

struct Network {
  std::string host_namespace;  // where the counters are
  Peer peer;                   // behind the uplink
  std::vector<Share> shares;
};

// One share in one phase.
struct Measurement {
  std::size_t share = 0;
  Traffic traffic = Traffic::kTcp;
  Direction direction = Direction::kUp;
  bool together = false;  // with every other share
  double seconds = 0;
  double percent_of_limit = 0;      // mean of the steady window
  double worst_window_percent = 0;  // highest 100 ms
  std::uint64_t bytes = 0, drops = 0, overlimits = 0, backlog_max = 0;
  int attempt = 1;  // 2: measured again, see Plan::repeat_below
};

struct PhaseOptions {
  std::chrono::milliseconds ramp{1000}, window{5000}, sample_interval{20};
  // Called once in the caller's thread while the steady window is measured; the window lasts at least until it returns.
  std::function<absl::Status()> during;
};

inline constexpr double kUdpFactor = 1.3;  // of the limit, offered
inline constexpr std::chrono::milliseconds kWorstWindow{100};

// Sends on the named shares at once and measures each. `together` of the results is whether there was more than one.
absl::StatusOr<std::vector<Measurement>> MeasurePhase(const Network& network, const std::vector<std::size_t>& shares, Traffic traffic, Direction direction,
                                                      const PhaseOptions& options);

// What `victim`, idle but for the probe, notices of the others flooding (UDP at 1.3 times their limits, upward).
struct Neighbour {
  std::size_t share = 0;
  Latency quiet, flooded;  // of the round with the median shift
  double shift_ms = 0;     // flooded p99 − quiet p99; median of the rounds
  std::size_t rounds = 0;
};
absl::StatusOr<Neighbour> MeasureNeighbour(const Network& network, std::size_t victim, std::chrono::milliseconds duration, std::size_t rounds);

struct Bounds {
  double low_percent = 98.0, high_percent = 101.5, window_percent = 115.0;
  double shift_ms = 1.0;
  double shift_of_unshaped = 0.1;  // alternatively: at most this part of the shift without shaping
};

struct Plan {
  Network network;
  PhaseOptions phase;
  Bounds bounds;
  bool alone = true, together = true;
  std::vector<Traffic> traffics = {Traffic::kTcp, Traffic::kUdp};
  std::vector<Direction> directions = {Direction::kUp, Direction::kDown};
  // A phase in which a share stayed below the lower bound is measured once more: too little traffic on a busy machine says nothing of a limit. Never
  // repeated because of too much.
  bool repeat_below = true;
  std::size_t neighbour_rounds = 3;  // 0: no latency
  std::chrono::milliseconds neighbour_duration{1500};
};

struct Proof {
  std::vector<Measurement> measurements;
  std::vector<Neighbour> neighbours;  // one per share
  std::uint64_t direct_packets = 0;   // growth of direct_packets_stat: traffic that no class shaped
  std::vector<std::string> failures;  // every bound that does not hold
  bool held() const { return failures.empty(); }
};

struct Progress {
  std::string step;  // "alone, udp down: team-a/small"
  std::size_t done = 0, total = 0;
};
using ProgressCallback = std::function<void(const Progress&)>;

absl::StatusOr<Proof> Run(const Plan& plan, const ProgressCallback& progress);

// Every bound of `bounds` that a measurement breaks, as sentences. `unshaped_shift_ms`: the shift measured without shaping, where there is one.
std::vector<std::string> CheckMeasurements(const Network& network, const std::vector<Measurement>& measurements, const Bounds& bounds);
std::vector<std::string> CheckNeighbours(const Network& network, const std::vector<Neighbour>& neighbours, const Bounds& bounds,
                                         std::optional<double> unshaped_shift_ms);

// ---- Shares of a running host.

struct PodPlace {
  std::string network_namespace;
  std::string interface;  // "": the one that the backend names
};
// `shares`: the admin socket's answer ({"shares": […]} or the array itself). `pods` by "namespace/claim". Shares of other claims, and shares
// without network, limit or counters, are left out. NotFound when none is left, with the reason of each.
absl::StatusOr<std::vector<Share>> SharesFromAdmin(const boost::json::value& shares, const std::map<std::string, PodPlace>& pods);

// ---- Results (report.cc).

// {"shares": [{"share", "claim", "tenant", "asked", "consumed", "limitInForce", "percentOfLimit": {"tcp_up_alone": …}, "worstWindowPercent": {…},
// "drops", "p99_ms", "p99_shift_ms"}], "directPackets", "failures"}
boost::json::value EncodeProof(const Network& network, const Proof& proof);
// One line per share: asked, consumed, limit, measured alone and together, drops, p99.
std::string FormatTable(const Network& network, const Proof& proof);

}  // namespace tranche::proof
