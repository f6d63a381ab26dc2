// Devices and counter sets spread over slices inside the limits of the API server. Internal to the room.
#pragma once

#include <vector>

#include "slices/planner.h"
#include "slices/problems.h"
#include "slices/slice.h"

namespace tranche::slices {

// `sets` that no device draws on are left out. The order of devices is kept (in 1.34, where devices sit with their counters, per counter set).
std::vector<SliceContent> LayOut(std::vector<SliceDevice> devices, const std::vector<CounterSet>& sets, const ServerFeatures& features, Problems& problems);

}  // namespace tranche::slices
