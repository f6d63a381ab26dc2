// Where claims come from and what the node has goes to: a directory (local mode) or a Kubernetes API server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "claims/claims.h"
#include "claims/observer.h"
#include "inventory/inventory.h"

namespace tranche::host {

struct Options;

// What became of one driver's ResourceSlices.
struct PublishedStatus {
  std::string driver;
  std::int64_t generation = 0;
  int wanted = 0, published = 0;      // slices
  std::vector<std::string> problems;  // what was repaired or left out, what the server dropped
  absl::Status problem;               // of the last try; OK: the API has what it should
};

struct ControlPlaneStatus {
  std::string kind;      // "local" | "kubernetes"
  absl::Status problem;  // why the server cannot be reached; OK otherwise
  std::vector<PublishedStatus> drivers;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual claims::ClaimReader& claim_reader() = 0;
  virtual claims::Observer* observer() = 0;  // nullptr: nobody wants to know
  // Makes it equal to the snapshot, soon; level-triggered, returns at once. Drivers that the snapshot no longer has lose what they published.
  virtual void Publish(std::shared_ptr<const inventory::Snapshot> snapshot) = 0;
  // A configuration file was applied (OK) or refused.
  virtual void ReportConfiguration(const std::string& version, const absl::Status& outcome) = 0;
  virtual ControlPlaneStatus status() const = 0;
  // Before the servers end: nothing is published any more; what is published stays.
  virtual void Stop() = 0;
};

absl::StatusOr<std::unique_ptr<ControlPlane>> MakeLocalControlPlane(const Options& options);
// Does not wait for the API server: a node serves unprepare, and prepares again what it has, without it.
absl::StatusOr<std::unique_ptr<ControlPlane>> MakeClusterControlPlane(const Options& options);

}  // namespace tranche::host
