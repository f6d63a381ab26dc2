// The kubelet's calls with nothing around them: one channel, the v1 service, references in, errors out. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "bench/bench.h"
#include "model/claim.h"

namespace tranche::bench {

inline constexpr std::chrono::seconds kCallTime{120};  // a drain of hundreds on a slow machine included

class Client {
 public:
  explicit Client(const std::string& socket, std::chrono::milliseconds call_time = kCallTime);
  ~Client();
  // Ok only when the call succeeded and no claim of it has an error.
  absl::Status Prepare(const std::vector<ClaimReference>& claims) const;
  absl::Status Unprepare(const std::vector<ClaimReference>& claims) const;
  // A call without claims: the transport alone.
  absl::Status Echo() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A server of the same service that answers at once with nothing, on `socket`, until it is destroyed.
class EchoServer {
 public:
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(const std::string& socket);
  ~EchoServer();

 private:
  struct Impl;
  explicit EchoServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::bench
