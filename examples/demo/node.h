// The node under demonstration: tranched in local mode inside the node's namespace, driven by tranchectl as an operator would.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "proof/process.h"

namespace tranche::demo {

struct ClaimSpec {
  std::string tenant, name, asked;  // namespace, claim, bandwidth
  std::string Path() const { return tenant + "/" + name; }
};

class Node {
 public:
  // `programs`: the directory of tranched, tranchectl and vnic-attach; backends lie in ../backends. `directory` is made by Configure.
  Node(std::string programs, std::string directory, std::string network_namespace)
      : programs_(std::move(programs)), directory_(std::move(directory)), network_namespace_(std::move(network_namespace)) {}

  absl::Status Configure() const;  // writes DIR/host.yaml
  // Returns when it serves. The error carries the end of its log.
  absl::Status Start();
  void Kill();          // SIGKILL, as a crash
  absl::Status Stop();  // SIGTERM; an error when it does not end cleanly

  // One tranchectl command inside the node's namespace.
  absl::StatusOr<proof::Finished> Try(const std::vector<std::string>& arguments) const;
  absl::StatusOr<std::string> Ctl(const std::vector<std::string>& arguments) const;  // an error unless it exits with 0
  absl::StatusOr<boost::json::value> CtlJson(const std::vector<std::string>& arguments) const;

  absl::Status Apply(const ClaimSpec& claim) const;
  // apply, allocate, prepare, attach to the pod's namespace.
  absl::Status Grant(const ClaimSpec& claim, const std::string& pod_namespace) const;
  // Why the claim is refused; an error when it is granted. It is deleted again.
  absl::StatusOr<std::string> Refusal(const ClaimSpec& claim) const;
  absl::Status Release(const ClaimSpec& claim) const;  // unprepare and delete; repeatable

  const std::string& directory() const { return directory_; }
  const std::string& network_namespace() const { return network_namespace_; }

 private:
  std::string LogTail() const;
  const std::string programs_, directory_, network_namespace_;
  std::optional<proof::Process> process_;
};

}  // namespace tranche::demo
