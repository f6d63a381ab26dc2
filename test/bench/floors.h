// What a prepare cannot be faster than on this machine, measured in the same run: an RPC that does nothing, an fsync, a durable commit.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "results.h"

namespace tranche::bench {

struct Floors {
  double echo_ms = 0, commit_ms = 0;  // p50, one at a time
};
// `directory` is on the disk that the host's state lies on.
absl::StatusOr<Floors> MeasureFloors(const std::string& directory, Results& results);

}  // namespace tranche::bench
