// Command line of tranched.
#pragma once

#include <optional>

#include "host/host.h"

namespace tranche::host {

struct ParsedOptions {
  std::optional<Options> options;  // absent: the program ends with exit_code (help, version, usage error)
  int exit_code = 0;
};

// Prints help and usage errors. With --local every path defaults inside that directory, else to a node's usual places. Exit code 2 for a usage error.
ParsedOptions ParseOptions(int argc, char** argv);

}  // namespace tranche::host
