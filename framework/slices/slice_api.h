// What the publisher needs of the API server: the ResourceSlices of one node and driver. kube/ serves it from a real server.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "slices/slice.h"

namespace tranche::slices {

// Called one after the other, from a thread of the API's own; they return quickly and do not call the API.
struct SliceWatchHandler {
  std::function<void(std::vector<Slice> slices)> on_list;  // everything, at the start and after each new beginning
  std::function<void(Slice slice)> on_changed;             // added or modified
  std::function<void(std::string name, std::string uid)> on_deleted;
  std::function<void(const absl::Status& problem)> on_problem;  // OK: works again
};

class SliceWatch {  // ends at destruction; no callback after that
 public:
  virtual ~SliceWatch() = default;
};

// Errors as kube/client.h maps them: NotFound, AlreadyExists, Aborted (conflict), InvalidArgument (refused by validation), Unavailable, …
// Thread-safe: calls run in parallel.
class SliceApi {
 public:
  virtual ~SliceApi() = default;
  virtual absl::StatusOr<NodeOwner> ReadNode(Deadline deadline) = 0;  // read again when slices vanish: a Node may have been re-created
  virtual std::unique_ptr<SliceWatch> Watch(const std::string& driver, SliceWatchHandler handler) = 0;
  virtual absl::StatusOr<Slice> Create(const Slice& slice, Deadline deadline) = 0;   // the object as the server stored it
  virtual absl::StatusOr<Slice> Replace(const Slice& slice, Deadline deadline) = 0;  // with its resourceVersion
  virtual absl::Status Delete(const Slice& slice, Deadline deadline) = 0;            // with UID and resourceVersion preconditions

  // The minor version of the server ("1.36" is 36), which decides the layout of slices. Unimplemented: the newest known is taken for granted.
  virtual absl::StatusOr<int> ServerMinor(Deadline deadline);
  // Create with dryRun=All: what the server would store, which tells what its feature gates drop. Unimplemented: the version decides.
  virtual absl::StatusOr<Slice> DryRunCreate(const Slice& slice, Deadline deadline);
};

}  // namespace tranche::slices
