// The kernel's and the backend's own part, without a host around it: traffic-control classes over netlink, and vnic_tc loaded in this process.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "results.h"

namespace tranche::bench {

// `shares` HTB classes on a veth pair of its own: add, change, delete, one request each.
absl::Status MeasureClasses(int shares, Results& results);

// Prepares and unprepares shares one at a time and in one batch through the backend's table. `uplink` exists and is free. Returns the p50 of one
// prepare, in milliseconds.
absl::StatusOr<double> MeasureBackend(const std::string& backend_directory, const std::string& runtime_directory, const std::string& uplink,
                                      const std::string& hook, int batch, Results& results);

}  // namespace tranche::bench
