// The kubelet player: prepares and unprepares the claims of a local directory as the kubelet of a node would, over the same sockets, and remembers what
// is prepared in DIR/kubelet.json. Each call looks for the plugins anew, so that one process may do one step. Thread-safe and safe between
// processes: the file changes under the directory's lock, which is never held during a call to a plugin.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "claims/claims.h"
#include "local/directory.h"
#include "local/dra_client.h"

namespace tranche::local {

struct PreparedByDriver {
  std::string driver;
  std::vector<claims::PreparedDevice> devices;
  friend bool operator==(const PreparedByDriver&, const PreparedByDriver&) = default;
};

// A claim that was handed to plugins. `prepared` is false from before the first call until every plugin succeeded.
struct PreparedClaim {
  std::string namespace_name, name, uid;
  bool prepared = false;
  std::vector<PreparedByDriver> drivers;
  friend bool operator==(const PreparedClaim&, const PreparedClaim&) = default;
};

class Kubelet {
 public:
  explicit Kubelet(Directory directory, ProtocolVersion version = ProtocolVersion::kFirstSupported) : directory_(std::move(directory)), version_(version) {}

  absl::StatusOr<std::vector<Plugin>> Register(Deadline deadline) const;

  // Calls every driver of the allocation, also when the claim is prepared already (as for a new sandbox). FailedPrecondition: not allocated, not
  // reserved, another UID still prepared under the name, or a driver that is not registered.
  absl::StatusOr<PreparedClaim> Prepare(const std::string& namespace_name, const std::string& name, Deadline deadline) const;

  // Calls every driver that the file or, without an entry, the claim's allocation names. A claim that neither knows: success without a call.
  absl::Status Unprepare(const std::string& namespace_name, const std::string& name, Deadline deadline) const;

  absl::StatusOr<std::vector<PreparedClaim>> Prepared() const;
  // NotFound when it is not prepared.
  absl::StatusOr<PreparedClaim> FindPrepared(const std::string& namespace_name, const std::string& name) const;

 private:
  const Directory directory_;
  const ProtocolVersion version_;
};

// Whether the file has an entry for this UID, prepared or begun. The caller may hold the directory's lock.
absl::StatusOr<bool> IsPrepared(const Directory& directory, const std::string& claim_uid);

}  // namespace tranche::local
