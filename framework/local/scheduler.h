// What the API server and the scheduler do for a claim, over a local directory: create, allocate, release, delete, explain. Each change reads, decides
// and writes under the directory's lock, so several processes never over-commit. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "capacity/placement.h"
#include "local/directory.h"
#include "model/claim.h"

namespace tranche::local {

struct AppliedClaim {
  std::string namespace_name, name, uid;
  bool created = false;  // false: it existed with the same spec
};

// Why a claim does not fit, or where it lies or would lie.
struct Explanation {
  Claim claim;                                // as stored
  bool fits = false;                          // true when it is allocated already
  std::optional<Allocation> allocation;       // the stored one, or the one that Allocate would write now (its share ids are made anew each time)
  absl::Status refused;                       // not ok: it cannot be placed at all (authority, unknown class, CEL)
  std::vector<capacity::Obstacle> obstacles;  // one per (request, device) that was tried
  std::string text;                           // the same for people, one line each
};

class Scheduler {
 public:
  explicit Scheduler(Directory directory) : directory_(std::move(directory)) {}

  // Creates the claims of a manifest, each with a new UID. All or none is checked first. FailedPrecondition when one exists with another
  // spec: a claim's spec cannot change.
  absl::StatusOr<std::vector<AppliedClaim>> Apply(std::string_view manifest) const;

  // Places the claim and reserves it for one pod. An allocated claim is returned as it is. PermissionDenied: a class does not allow the
  // namespace. OutOfRange: no device can ever serve it (above a maximum). ResourceExhausted: not with what is left now; the message says what is missing where.
  absl::StatusOr<Claim> Allocate(const std::string& namespace_name, const std::string& name) const;

  // Clears allocation and reservation. FailedPrecondition while the kubelet player holds the claim prepared. Repeating it is success.
  absl::Status Deallocate(const std::string& namespace_name, const std::string& name) const;

  // Deallocates and removes. An absent claim is success.
  absl::Status Delete(const std::string& namespace_name, const std::string& name) const;

  absl::StatusOr<Explanation> Explain(const std::string& namespace_name, const std::string& name) const;

 private:
  const Directory directory_;
};

}  // namespace tranche::local
