// tranchectl prove: sends more than each share may carry and compares what the kernel let through with the limit in force.
#pragma once

#include <string>
#include <vector>

#include "ctl/output.h"
#include "ctl/target.h"

namespace tranche::ctl {

struct ProveOptions {
  std::vector<std::string> pods;  // NAMESPACE/CLAIM=NETNS[,INTERFACE]
  std::string peer_namespace, peer_address;
  std::string host_namespace;  // where the uplink is; empty: this one
  double seconds = 5;          // of each measurement
  bool latency = true;
};

// Prints progress to standard error and one table; kFailure when a bound does not hold.
int Prove(const Target& target, Format format, const ProveOptions& options);

}  // namespace tranche::ctl
