// Parts of the reader that are files of their own; internal to the room.
#pragma once

#include "config/config.h"
#include "config/place.h"

namespace tranche::config {

// One entry of an offer's `capacity`: policy and reserve. Checks what needs no device: min ≤ default ≤ max, the step's grid, validValues.
CapacityConfiguration ReadCapacity(const Place& at);

// Names that must be unique and names that must exist.
void CheckAcross(const HostConfiguration& configuration, const Place& root);

}  // namespace tranche::config
