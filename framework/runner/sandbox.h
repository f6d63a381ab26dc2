// What tranche-runner gives up before the library is opened, for ever: priority, memory and descriptors, capabilities, new privileges, system
// calls that no device backend needs. What cannot be given up without a privilege that is not there is not held either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/wire.h"

namespace tranche::runner {

// "" or what could not be put in force, and why. Called by the only thread.
std::string EnterSandbox(const Start& start);

// Names that Start::capabilities and Start::system_calls take.
bool IsCapability(const std::string& name);
bool IsDeniedSystemCall(const std::string& name);
const std::vector<std::string>& DeniedSystemCalls();

// Descriptors or writable memory are nearly used up (nine tenths). Two system calls; memory is looked at only when asked.
enum class Look { kDescriptors, kMemoryToo };
bool NearlyExhausted(Look look);

}  // namespace tranche::runner
