// ResourceSlices of one node from and to the API server.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "kube/client.h"
#include "slices/slice_api.h"

namespace tranche::kube {

// Thread-safe; the client outlives it and its watches. A slice that cannot be decoded (a newer server's, never one that this code wrote) is left out
// of lists and events, with a warning in the log.
class ApiSliceApi : public slices::SliceApi {
 public:
  ApiSliceApi(Client& client, std::string node_name) : client_(client), node_name_(std::move(node_name)) {}

  absl::StatusOr<slices::NodeOwner> ReadNode(Deadline deadline) override;
  std::unique_ptr<slices::SliceWatch> Watch(const std::string& driver, slices::SliceWatchHandler handler) override;
  absl::StatusOr<slices::Slice> Create(const slices::Slice& slice, Deadline deadline) override;
  absl::StatusOr<slices::Slice> Replace(const slices::Slice& slice, Deadline deadline) override;
  absl::Status Delete(const slices::Slice& slice, Deadline deadline) override;
  absl::StatusOr<int> ServerMinor(Deadline deadline) override;
  absl::StatusOr<slices::Slice> DryRunCreate(const slices::Slice& slice, Deadline deadline) override;

 private:
  Client& client_;
  const std::string node_name_;
};

}  // namespace tranche::kube
