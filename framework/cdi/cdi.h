// CDI specs: one transient file per claim and driver in the runtime's CDI directory (a tmpfs on nodes), rebuilt from the store.
// Names carry the claim UID, device names the share's short id: a runtime caches by name, so none is ever used twice.
// Thread-safe; one instance per driver and directory.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "model/share.h"

namespace tranche::cdi {

struct Device {
  std::string name;  // "<claimUID>-<short id>"
  ContainerEdits edits;
  friend bool operator==(const Device&, const Device&) = default;
};

struct Spec {
  std::string kind;  // "vnic.tranche.dev/claim"
  std::vector<Device> devices;
  friend bool operator==(const Spec&, const Spec&) = default;
};

// The lowest CDI version that every used field needs (names that start with a digit 0.5.0, intelRdt none, netDevices 1.1.0, …).
std::string MinimumVersion(const Spec& spec);
// InvalidArgument for a kind or name that a runtime would drop, and for edits that are empty.
absl::StatusOr<std::string> EncodeSpec(const Spec& spec);
absl::StatusOr<Spec> DecodeSpec(std::string_view json);  // for the local container-runtime player and tests

std::string DeviceName(const ShareKey& key);
std::string DeviceId(std::string_view driver, const ShareKey& key);  // "vnic.tranche.dev/claim=<name>": what the kubelet gets

class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  // Writes (temp + rename in the same directory) or replaces the claim's spec. Devices without edits are left out; with none left no file is
  // written and an old one is removed.
  absl::Status Write(const std::string& driver, const std::string& claim_uid, const std::vector<Device>& devices) const;
  absl::Status Remove(const std::string& driver, const std::string& claim_uid) const;  // absent is success
  // Claim UIDs that have a file of `driver`, for reconcile. Temporary files that a crash left are removed.
  absl::StatusOr<std::vector<std::string>> ListClaims(const std::string& driver) const;
  absl::StatusOr<Spec> Read(const std::string& driver, const std::string& claim_uid) const;
  std::string FilePath(const std::string& driver, const std::string& claim_uid) const;  // "<driver>_claim_<uid>.json"

 private:
  std::string path_;
};

}  // namespace tranche::cdi
