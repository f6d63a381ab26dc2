// A child process that this process started and always ends by its own id. Output goes to a temporary file that is never visible in a
// directory, so no pipe can fill up. The child dies with the thread that started it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche::proof {

struct Command {
  std::vector<std::string> arguments;  // arguments[0]: program, found in PATH
  std::string network_namespace;       // "" for the caller's
  std::string output_path;             // append standard output and error here instead of keeping them
};

class Process {
 public:
  static absl::StatusOr<Process> Start(const Command& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // SIGTERM, then SIGKILL after a moment

  pid_t pid() const { return pid_; }
  // Whether it still runs. Reaps it when it has ended.
  bool Running();
  // The exit status as wait(2) has it. DeadlineExceeded when it still runs after `timeout`; it is not ended then.
  absl::StatusOr<int> Wait(std::chrono::milliseconds timeout);
  void Signal(int signal);
  // SIGTERM, SIGKILL after `patience`; reaps.
  void Stop(std::chrono::milliseconds patience = std::chrono::milliseconds(500));
  // What it wrote so far, standard output and error together, at most 4 MiB.
  std::string Output() const;

 private:
  Process(pid_t pid, int output) : pid_(pid), output_(output) {}
  pid_t pid_ = -1;
  int output_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

struct Finished {
  int exit_code = 0;  // 128 + signal when it was ended by one
  std::string output;
};
// Starts, waits at most `timeout`, returns what it wrote. DeadlineExceeded names the command; it is ended then.
absl::StatusOr<Finished> RunCommand(const Command& command, std::chrono::milliseconds timeout);

}  // namespace tranche::proof
