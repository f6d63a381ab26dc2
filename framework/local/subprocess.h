// Runs one program to its end with everything about it explicit. Blocks. Thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tranche::local {

struct Command {
  std::string path;                      // absolute
  std::vector<std::string> arguments;    // with argument 0
  std::vector<std::string> environment;  // "NAME=value"; nothing is inherited
  std::string input;                     // standard input
  std::chrono::milliseconds timeout{};
};

struct Outcome {
  int exit_code = 0;         // 128 + signal when it was killed
  bool timed_out = false;    // its process group was killed
  std::string error_output;  // standard error, at most 64 KiB
};

// An error only when the program could not be started.
absl::StatusOr<Outcome> RunCommand(const Command& command);

}  // namespace tranche::local
