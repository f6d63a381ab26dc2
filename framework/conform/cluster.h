// The API server's part: the driver's slices, and claims as the scheduler would leave them. What it makes carries the label
// app.kubernetes.io/managed-by=dra-conform and is removed again. One thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "conform/devices.h"
#include "kube/client.h"
#include "model/claim.h"
#include "slices/slice.h"

namespace tranche::dra_conform {

struct ClusterOptions {
  std::string kubeconfig, context;
  std::string node, namespace_name;
  std::string parameters;  // JSON text of an object for the driver's opaque configuration; empty: none
};

// A claim to be made. Wants with one base request are one request of that many devices.
struct ClaimSpec {
  std::vector<Want> wants;
  bool is_allocated = true, is_reserved = true;
};

class Cluster {
 public:
  // Asks the server for its version.
  static absl::StatusOr<std::unique_ptr<Cluster>> Connect(const ClusterOptions& options);
  ~Cluster();  // removes what is left

  const std::string& server_version() const { return server_version_; }

  // Of the node, sorted by name.
  absl::StatusOr<std::vector<slices::Slice>> Slices(const std::string& driver);
  absl::Status DeleteSlice(const std::string& name);
  absl::StatusOr<std::string> NodeUid();
  // Devices that any claim of the cluster is allocated.
  absl::StatusOr<std::set<DeviceKey>> Taken(const std::string& driver);

  // Creates the claim and writes what the scheduler writes: finalizer, status.allocation, status.reservedFor. `name`: empty for a new one.
  absl::StatusOr<ClaimReference> Make(const ClaimSpec& spec, const std::string& name = "");
  // Whatever holds it. Absent is success.
  absl::Status Remove(const ClaimReference& claim);

 private:
  Cluster(const ClusterOptions& options, std::unique_ptr<kube::Client> client) : options_(options), client_(std::move(client)) {}
  std::string ClaimPath(const std::string& name) const;
  const ConsumerReference& Consumer();
  void RemoveConsumer();

  const ClusterOptions options_;
  const std::unique_ptr<kube::Client> client_;
  std::string server_version_;
  ConsumerReference consumer_;  // the pod that claims are reserved for
  bool is_consumer_real_ = false;
  std::vector<ClaimReference> made_;
};

}  // namespace tranche::dra_conform
