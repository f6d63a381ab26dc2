// What `make demo` shows: tenants share one network device, each share is really limited, and a release leaves nothing.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "network.h"
#include "node.h"

namespace tranche::demo {

// The four tenants, in the order of the pods.
inline constexpr std::size_t kPods = 4;

// Prints its progress and one table; writes the report. Returns whether every bound held, each one that did not is printed. An error: the
// demonstration could not be carried out.
absl::StatusOr<bool> RunDemo(PrivateNetwork& network, Node& node, const std::string& report_path);

}  // namespace tranche::demo
