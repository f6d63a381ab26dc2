// The kubelet's side of the protocol: find registration sockets, ask who is there, call prepare and unprepare. Knows nothing of claims beyond
// their references. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "claims/claims.h"

namespace tranche::local {

// A driver that answered on its registration socket.
struct Plugin {
  std::string driver, endpoint, registration_socket;
  std::vector<std::string> versions;  // services, in the plugin's order: "v1.DRAPlugin"
};

// Asks every *.sock of the registry directory (names that start with '.' are not looked at) and, when it is usable, tells it that it is registered, as
// the kubelet does. Sockets that do not answer are left out: a stopped host leaves none, a killed one leaves a dead one.
absl::StatusOr<std::vector<Plugin>> FindPlugins(const std::string& registry_directory, Deadline deadline);

enum class ProtocolVersion { kFirstSupported, kV1, kV1Beta1 };

class DraClient {
 public:
  // FailedPrecondition when the plugin does not serve the version.
  static absl::StatusOr<std::unique_ptr<DraClient>> Connect(const Plugin& plugin, ProtocolVersion version);
  ~DraClient();

  // Every reference has an answer; the answers of the call hold what the plugin said for each claim. A failure of the call itself fails every claim
  // with that status, and so does an entry that the plugin left out.
  claims::PrepareAnswers Prepare(const std::vector<ClaimReference>& claims, Deadline deadline) const;
  claims::UnprepareAnswers Unprepare(const std::vector<ClaimReference>& claims, Deadline deadline) const;

 private:
  class Impl;
  explicit DraClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::local
