// Examines one backend library by the rules of docs/backend-rules.md. The library is never opened in the calling process: every case runs in a
// child process, so that a crash, a hang or an exit is a finding. The calling process must have a single thread.
#pragma once

#include <chrono>
#include <string>

#include "conformance/report.h"

namespace tranche::conform {

struct Options {
  std::string library;                        // NAME.so, or its manifest
  std::string config = "{}";                  // the operator's configuration, a JSON object
  std::string parameters = "{}";              // `configuration` of every prepare, a JSON object
  std::string runtime_directory;              // "": a temporary one
  bool manifest_only = false;                 // files and symbols: no code of the library runs
  std::chrono::milliseconds deadline{10000};  // of each call
  int cycles = 20;                            // of prepare and unprepare
};

Report Examine(const Options& options);

}  // namespace tranche::conform
