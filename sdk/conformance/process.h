// What a backend could change of the process that it runs in.
#pragma once

#include <map>
#include <string>

#include "conformance/sandbox.h"

namespace tranche::conform {

struct ProcessState {
  int threads = 0;
  std::map<int, std::string> descriptors;
  std::string surroundings;  // environment, directory, umask, locale, signals
};
ProcessState ReadProcess();
long ResidentKilobytes();
long PeakKilobytes();

// Rules TB-033, TB-034, TB-036, TB-037: the process is as it was `before` the instance. `moment` is for the message.
void JudgeProcess(Reporter& reporter, const ProcessState& before, std::string_view moment);

}  // namespace tranche::conform
