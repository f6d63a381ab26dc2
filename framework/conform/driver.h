// The sockets of a driver as a kubelet uses them, with every answer as it came: nothing is judged, corrected or left out. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "model/claim.h"

namespace tranche::dra_conform {

enum class Version { kV1, kV1Beta1 };
std::string_view ServiceName(Version version);  // "v1.DRAPlugin", as GetInfo lists it

// GetInfo.
struct Info {
  std::string type, name, endpoint;
  std::vector<std::string> versions;
  friend bool operator==(const Info&, const Info&) = default;
};

struct Device {
  std::vector<std::string> request_names;
  std::string pool, device;
  std::vector<std::string> cdi_ids;
  std::optional<std::string> share_id;  // of v1 only
  friend auto operator<=>(const Device&, const Device&) = default;
};

// What is said of one claim.
struct Entry {
  std::string error;            // empty: granted, or undone
  std::vector<Device> devices;  // of prepare only, sorted
};

struct Reply {
  absl::Status status;                   // of the call; entries are to be ignored unless OK
  std::map<std::string, Entry> entries;  // by claim UID

  bool Ok(const std::string& uid) const;                      // the call and the entry are there and without an error
  std::string Why(const std::string& uid) const;              // what is wrong with it; "" when Ok
  std::vector<Device> Devices(const std::string& uid) const;  // empty unless Ok
};

class Registration {
 public:
  // Opens a connection of its own.
  explicit Registration(const std::string& socket);
  ~Registration();
  absl::StatusOr<Info> GetInfo(Deadline deadline) const;
  absl::Status Notify(const std::string& error, Deadline deadline) const;  // empty: registered

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Plugin {
 public:
  explicit Plugin(const std::string& endpoint);
  ~Plugin();
  Reply Prepare(Version version, const std::vector<ClaimReference>& claims, Deadline deadline) const;
  Reply Unprepare(Version version, const std::vector<ClaimReference>& claims, Deadline deadline) const;
  // Calls NodeWatchResources of a service ("v1.DRAResourceHealth") and awaits its first message: the number of devices in it. Unimplemented where the
  // driver says so, DataLoss for a message that is none, DeadlineExceeded for none at all.
  absl::StatusOr<int> FirstHealth(const std::string& service, Deadline deadline) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether somebody listens on a unix socket.
absl::Status TryConnect(const std::string& socket);
// Connects, writes `bytes`, and closes. An error only when nobody listens.
absl::Status WriteRaw(const std::string& socket, std::string_view bytes);

}  // namespace tranche::dra_conform
