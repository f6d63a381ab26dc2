// Readers of parts that the objects of this room share (json.cc); internal to the room.
#pragma once

#include <vector>

#include "model/device.h"
#include "model/json_reader.h"

namespace tranche {

Quantities ReadQuantities(const JsonReader& at);
RequestPolicy ReadRequestPolicy(const JsonReader& at);
Attributes ReadAttributes(const JsonReader& at);
std::vector<CounterUse> ReadCounterUses(const JsonReader& at);
Enforcement ReadEnforcement(const JsonReader& at);  // absent: none
Mode ReadMode(const JsonReader& at);                // absent: whole

}  // namespace tranche
