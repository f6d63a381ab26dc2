// A node to measure: tranched of this build in local mode with one uplink, and allocated claims on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "bench/bench.h"
#include "local/directory.h"
#include "local/dra_client.h"
#include "support/process.h"

namespace tranche::bench {

inline constexpr char kDriver[] = "vnic.tranche.dev";
inline constexpr char kUplink[] = "up0";

// The backend's configuration as JSON: one parent of 40 Gbit/s, so that a thousand shares of 10 Mbit/s fit.
std::string BackendConfiguration();
// One share's bandwidth.
Quantity ShareBandwidth();

class Node {
 public:
  // Starts tranched and waits until its registration socket answers and its devices are published.
  static absl::StatusOr<std::unique_ptr<Node>> Start(const std::string& directory);

  Microseconds start_to_serving() const { return start_to_serving_; }
  const std::string& service_socket() const { return plugin_.endpoint; }
  absl::StatusOr<double> ResidentKilobytes() const;
  // Time spent so far inside the backend's own prepare, as the host counts it.
  absl::StatusOr<Microseconds> BackendPrepareTime() const;

  // Claims as the scheduler leaves them: allocated, one share each, reserved for a pod.
  absl::StatusOr<std::vector<ClaimReference>> WriteClaims(const std::string& prefix, int count) const;
  absl::Status RemoveClaims(const std::vector<ClaimReference>& claims) const;
  // Internal when tranched did not end with exit code 0.
  absl::Status Stop();

 private:
  Node(local::Directory directory, std::string log_path) : directory_(std::move(directory)), log_path_(std::move(log_path)) {}
  absl::Status WaitUntilServing(std::chrono::steady_clock::time_point started);
  absl::Status FindDevice();
  absl::Status Failed(const std::string& what) const;  // with the end of tranched's log

  const local::Directory directory_;
  const std::string log_path_;
  const test::TemporaryDirectory cdi_;  // on tmpfs, as a runtime's is; everything else lies on the disk
  std::unique_ptr<test::ChildProcess> process_;
  local::Plugin plugin_;
  PublishedDevice device_;
  Microseconds start_to_serving_{};
};

}  // namespace tranche::bench
