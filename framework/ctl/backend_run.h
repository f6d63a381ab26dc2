// backend run FILE: local mode around one backend, from discovery to the end of a claim. Prints and returns the exit code.
#pragma once

#include <string>

#include "ctl/output.h"

namespace tranche::ctl {

struct RunOptions {
  std::string library;      // NAME.so or its manifest
  std::string config;       // a JSON file with the operator's configuration; "" is {}
  std::string directory;    // kept when named; else a temporary one
  bool in_process = false;  // instead of in a process of its own
};

// Writes a host configuration that offers every device in every mode and allows every container edit, starts tranched on it, and per mode allocates,
// prepares, shows and releases one claim. Ends what it started.
int RunBackend(const RunOptions& options, Format format);

}  // namespace tranche::ctl
