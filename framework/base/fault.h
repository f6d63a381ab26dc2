// Fault points: named places between durable steps where a test ends the process. They cost one relaxed load and exist only
// when the build defines TRANCHE_FAULT_POINTS (never in the release preset).
//
// Environment of the process under test:
//   TRANCHE_FAULT_TRACE=FILE   append the name of every point as it is passed, one a line: this is how the fault test
//                              enumerates the points, so no list is kept by hand
//   TRANCHE_FAULT_KILL=NAME[#N] raise SIGKILL when NAME is passed for the N-th time (default 1)
//   TRANCHE_FAULT_ERROR=NAME[#N] make the point return an error instead (TRANCHE_FAULT_STATUS only)
#pragma once

#include <absl/status/status.h>

namespace tranche::fault {
void Pass(const char* name);
absl::Status PassStatus(const char* name);
}  // namespace tranche::fault

#if defined(TRANCHE_FAULT_POINTS)
#define TRANCHE_FAULT_POINT(name) ::tranche::fault::Pass(name)
#define TRANCHE_FAULT_STATUS(name) ::tranche::fault::PassStatus(name)
#else
#define TRANCHE_FAULT_POINT(name) static_cast<void>(0)
#define TRANCHE_FAULT_STATUS(name) ::absl::OkStatus()
#endif
