// What vnic-attach does: gives a share's parked interface to a pod. Nothing is shaped here: all limits are in force on the host end before
// this runs. Fails closed: a container whose interface cannot be given does not start.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "plugins/vnic_tc/kernel/links.h"

namespace vnic {

struct AttachRequest {
  std::string host_end, pod_end;  // names in the host's network namespace
  std::string name;               // in the pod
  InterfaceAddress address;
  Mac mac{};
  std::uint32_t mtu = 0;  // 0: as it is
};

// From the hook's arguments (without the program's name).
Result<AttachRequest> ParseAttachArguments(const std::vector<std::string>& arguments);
// The pid of an OCI state object.
Result<int> PidOfState(const std::string& json);

// Moves, names, addresses and raises the interface in the network namespace behind `namespace_path`. Idempotent: what is there is checked and
// completed. A share that is being made again is waited for, at most `patience`. A failure leaves the interface parked.
Status Attach(const AttachRequest& request, const std::string& namespace_path, std::chrono::milliseconds patience);

}  // namespace vnic
