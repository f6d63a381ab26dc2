// A node to measure: tranched of this build in local mode, and allocated claims on its devices.
#pragma once

#include <cstddef>
#include <map>
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

struct NodeOptions {
  std::string configuration;  // a HostConfiguration, YAML
  std::size_t drivers = 1;    // of it, each with a device
  std::string backend_directory = test::BackendDirectory();
  std::vector<std::string> arguments = {};  // more of tranched's
};
// One uplink, shared, by vnic_tc in the host's own process.
NodeOptions UplinkNode();

// What a claim has: one share of a driver's first device.
struct ShareRequest {
  std::string driver, device_class, capacity;
  Quantity amount;
};
ShareRequest UplinkShare();

class Node {
 public:
  // Starts tranched and waits until the registration sockets of its drivers answer and their devices are published.
  static absl::StatusOr<std::unique_ptr<Node>> Start(const std::string& directory, const NodeOptions& options);

  Microseconds start_to_serving() const { return start_to_serving_; }
  absl::StatusOr<std::string> ServiceSocket(const std::string& driver) const;
  absl::StatusOr<double> ResidentKilobytes() const;
  // Time spent so far inside the backend's own prepare, as the host counts it.
  absl::StatusOr<Microseconds> BackendPrepareTime() const;

  // Claims as the scheduler leaves them: allocated, one share each, reserved for a pod.
  absl::StatusOr<std::vector<ClaimReference>> WriteClaims(const std::string& prefix, int count, const ShareRequest& request) const;
  absl::Status RemoveClaims(const std::vector<ClaimReference>& claims) const;
  // Internal when tranched did not end with exit code 0.
  absl::Status Stop();
  absl::Status Failed(const std::string& what) const;  // with the end of tranched's log

 private:
  Node(local::Directory directory, std::string log_path) : directory_(std::move(directory)), log_path_(std::move(log_path)) {}
  absl::Status WaitUntilServing(std::chrono::steady_clock::time_point started, std::size_t drivers);
  absl::Status FindDevices(std::size_t drivers);

  const local::Directory directory_;
  const std::string log_path_;
  const test::TemporaryDirectory cdi_;  // on tmpfs, as a runtime's is; everything else lies on the disk
  std::unique_ptr<test::ChildProcess> process_;
  std::vector<local::Plugin> plugins_;
  std::map<std::string, PublishedDevice> devices_;  // the first of each driver
  Microseconds start_to_serving_{};
};

}  // namespace tranche::bench
