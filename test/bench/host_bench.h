// A tranched of this build in local mode with vnic_tc, driven over its DRA socket.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "results.h"

namespace tranche::bench {

struct HostSetup {
  std::string programs;    // directory of tranched and vnic-attach; backends lie in ../backends
  std::string directory;   // of local mode; made here
  std::string uplink;      // exists
};

// Returns the p50 of a prepare with one in flight, in milliseconds.
absl::StatusOr<double> MeasureHost(const HostSetup& setup, Results& results);

}  // namespace tranche::bench
