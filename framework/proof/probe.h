// Round-trip times by ICMP echo. The kernel answers at the other end, so no process there adds its own delay; arrival is the kernel's
// time stamp.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tranche::proof {

struct Latency {
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
  std::size_t sent = 0, lost = 0;
};

// `sorted_ms` ascending; the smallest value that is ≥ `fraction` of all. 0 for none.
double Percentile(const std::vector<double>& sorted_ms, double fraction);
Latency Summarise(std::vector<double> round_trips_ms, std::size_t sent);

// Sends an echo request every `interval` for `duration` from `network_namespace` to `address` (IPv4) and waits up to 200 ms more for the
// last answers. Needs CAP_NET_RAW. Unavailable when nothing came back at all.
absl::StatusOr<Latency> ProbeLatency(const std::string& network_namespace, const std::string& address, std::chrono::milliseconds duration,
                                     std::chrono::microseconds interval = std::chrono::milliseconds(2));

}  // namespace tranche::proof
