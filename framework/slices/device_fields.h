// One published device as an entry of a slice. Internal to the room.
#pragma once

#include <optional>

#include "model/device.h"
#include "slices/planner.h"
#include "slices/problems.h"
#include "slices/slice.h"

namespace tranche::slices {

// nullopt: nothing of it can be published; the reason is among the problems. Counters are taken over as they are.
std::optional<SliceDevice> MakeDevice(const PublishedDevice& device, const std::vector<DeviceTaint>& taints, const ServerFeatures& features,
                                      Problems& problems);

}  // namespace tranche::slices
