// What no host can be faster than on this machine: one empty call, one fsync, one commit. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "bench/client.h"

namespace tranche::bench {

class Floor {
 public:
  // Makes its files in `directory`, which has none of them.
  static absl::StatusOr<std::unique_ptr<Floor>> Make(const std::string& directory);
  ~Floor();
  absl::Status Echo();    // one call in this process over a unix socket
  absl::Status Sync();    // append one page, fdatasync
  absl::Status Commit();  // one row; WAL, synchronous=FULL

 private:
  struct Impl;
  explicit Floor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::bench
