// One tranche-runner process: started with a socket pair on its descriptor 3 and one pipe for what it prints, in a process group of its own, without
// any other descriptor of the host. Owned by the thread that starts it: when that thread ends, so does the process.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <sys/types.h>

#include <absl/status/statusor.h>

namespace tranche::backend {

class RunnerProcess {
 public:
  static absl::StatusOr<RunnerProcess> Start(const std::string& program, const std::string& name);
  RunnerProcess() = default;
  RunnerProcess(RunnerProcess&& other) noexcept { Swap(other); }
  RunnerProcess& operator=(RunnerProcess&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~RunnerProcess();  // closes descriptors; End comes first

  pid_t pid() const { return pid_; }
  int socket() const { return socket_; }
  int output() const { return output_; }  // non-blocking; -1 once it ended
  int watch() const { return watch_; }    // readable once the process ended; -1 where the kernel has no such descriptor
  void CloseOutput();

  // SIGKILL to its group, then waits up to `patience` to reap it. What became of it: "signal 11 (Segmentation fault)", "exit code 3"; nullopt: it
  // survives (an uninterruptible sleep in the kernel) and is still a child.
  std::optional<std::string> End(std::chrono::milliseconds patience);
  // The same without a signal.
  std::optional<std::string> Reap(std::chrono::milliseconds patience);

 private:
  void Swap(RunnerProcess& other) noexcept;
  pid_t pid_ = -1;
  int socket_ = -1, output_ = -1, watch_ = -1;
};

// Whether the child has ended; reaps it.
bool HasEnded(pid_t pid);

}  // namespace tranche::backend
