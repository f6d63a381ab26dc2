// Who works on an uplink. Hosts that share one runtime directory may overlap (a rolling update); hosts with different ones would take each
// other's shares for orphans, so the second is refused while the first lives.
#pragma once

#include <string>
#include <vector>

#include "plugins/vnic_tc/kernel/result.h"

namespace vnic {

// Holds the mark of one instance on its uplinks: an abstract unix socket each, whose name carries the interface and the identity of the runtime
// directory. Abstract names belong to the network namespace, as interfaces do, and end with the process however it ends.
class Claimant {
 public:
  // FAILED_PRECONDITION when a host with another runtime directory holds one of the interfaces.
  static Result<Claimant> Claim(const std::vector<std::string>& interfaces, const std::string& runtime_directory);
  Claimant(Claimant&& other) noexcept : sockets_(std::move(other.sockets_)) { other.sockets_.clear(); }
  Claimant& operator=(Claimant&&) = delete;
  ~Claimant();

 private:
  Claimant() = default;
  std::vector<int> sockets_;
};

}  // namespace vnic
