// What an API server left out of a slice that it took. Internal to the room.
#pragma once

#include "slices/planner.h"
#include "slices/slice.h"

namespace tranche::slices {

struct Dropped {
  bool taints = false;    // DRADeviceTaints
  bool counters = false;  // DRAPartitionableDevices
  bool sharing = false;   // DRAConsumableCapacity
  bool other = false;     // changed by something else: an admission webhook, a gate of a newer release
  bool any_gate() const { return taints || counters || sharing; }
};

Dropped FindDropped(const SliceContent& sent, const SliceContent& stored);
// A slice with one of everything that a gate decides on, for a dry run.
Slice GateProbe(const std::string& driver, const std::string& node, const NodeOwner& owner, int minor);
ServerFeatures Without(ServerFeatures features, const Dropped& dropped);

}  // namespace tranche::slices
