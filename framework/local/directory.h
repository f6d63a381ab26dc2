// The directory that stands in for the API server in local mode. Objects are JSON files, replaced atomically; whoever reads, decides and writes
// holds the directory's lock meanwhile. Thread-safe and safe between processes.
//
//   DIR/claims/<namespace>_<name>.json   ResourceClaim objects, spec and status
//   DIR/slices/<driver>.json             what a driver publishes: devices and counter sets
//   DIR/classes.json                     device classes of all drivers: offer, allowed namespaces, parameters
//   DIR/kubelet.json                     what the kubelet player has prepared
//   DIR/{state,cdi,plugins,plugins_registry,run}/
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/files.h"
#include "capacity/placement.h"
#include "claims/claims.h"
#include "config/config.h"
#include "inventory/inventory.h"
#include "model/claim.h"

namespace tranche::local {

// A device class with the namespaces that may use it.
struct LocalClass {
  capacity::ClassView view;
  std::vector<std::string> namespaces;  // globs
};

struct Published {
  std::vector<PublishedDevice> devices;  // draining ones included
  std::vector<CounterSet> counter_sets;  // names qualified by driver: "<driver>/<set>", as are the devices' uses
};

class Directory {
 public:
  // Makes what is missing, mode 0750. InvalidArgument when `path` is not absolute.
  static absl::StatusOr<Directory> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string claims() const { return path_ + "/claims"; }
  std::string slices() const { return path_ + "/slices"; }
  std::string classes_file() const { return path_ + "/classes.json"; }
  std::string kubelet_file() const { return path_ + "/kubelet.json"; }
  std::string state() const { return path_ + "/state"; }
  std::string cdi() const { return path_ + "/cdi"; }
  std::string plugins() const { return path_ + "/plugins"; }
  std::string plugins_registry() const { return path_ + "/plugins_registry"; }
  std::string run() const { return path_ + "/run"; }

  absl::StatusOr<FileLock> Lock() const;

  // NotFound names the claim. The write is durable. Removal of an absent claim is success.
  absl::StatusOr<Claim> ReadClaim(std::string_view namespace_name, std::string_view name) const;
  absl::StatusOr<std::vector<Claim>> ReadClaims() const;
  absl::Status WriteClaim(const Claim& claim) const;
  absl::Status RemoveClaim(std::string_view namespace_name, std::string_view name) const;

  // The host publishes here. Drivers that the snapshot no longer has lose their file.
  absl::Status PublishSlices(const inventory::Snapshot& snapshot) const;
  absl::Status PublishClasses(const config::HostConfiguration& configuration) const;
  absl::StatusOr<Published> ReadSlices() const;
  absl::StatusOr<std::map<std::string, LocalClass>> ReadClasses() const;  // empty when nothing was published yet

 private:
  explicit Directory(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<std::string> ClaimPath(std::string_view namespace_name, std::string_view name) const;
  std::string path_;
};

// Reads claims for claims::Claims.
class LocalClaimReader final : public claims::ClaimReader {
 public:
  explicit LocalClaimReader(Directory directory) : directory_(std::move(directory)) {}
  absl::StatusOr<Claim> ReadClaim(const ClaimReference& reference, Deadline deadline) override;

 private:
  const Directory directory_;
};

}  // namespace tranche::local
