// A backend's process and the CPUs: what its calls are worth in CPU time, whether it takes more, and the priority that it has then.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include <sys/types.h>

#include <absl/status/status.h>

#include "runner/wire.h"

namespace tranche::backend {

// CPU time that a call may take, by far more than a backend needs that waits for a device: 20 ms for each KiB of arguments (a share has about a half) of
// prepare and unprepare; for the others 100 ms, and 2 ms for each KiB that their last answer had. Ten times as much under a sanitizer.
std::chrono::microseconds WorthOf(runner::Function function, std::size_t argument_bytes, std::size_t last_answer_bytes);

// An account: calls pay in, CPU time is drawn, and time itself pays in 5 % of one CPU for what a backend does between calls. Little is kept once no call is in
// progress, and debts are forgotten: every look says anew whether more was drawn than there was. What `spare` holds is used up once: the host's own first
// questions to a process (which devices, which shares) may take longer than any later call.
class CpuAccount {
 public:
  static constexpr std::chrono::milliseconds kStart{1000};
  explicit CpuAccount(std::chrono::microseconds spare = {}) : spare_(spare) {}
  // One look, `elapsed` after the one before. False: more was used than there was.
  bool Draw(std::chrono::microseconds used, std::chrono::microseconds earned, std::chrono::microseconds elapsed, bool idle);

 private:
  static constexpr std::chrono::milliseconds kMostSaved{20};
  std::chrono::microseconds balance_ = kMostSaved;
  std::chrono::microseconds spare_;
};

// CPU time of all threads of a process until now; nullopt: it has ended.
std::optional<std::chrono::microseconds> CpuTimeOf(pid_t pid);

// kIdle (SCHED_IDLE): only what no other process in the cgroup wants; any other process that wakes up comes first.
enum class Priority { kNormal, kIdle };

// For every thread of a process, also those that start meanwhile. A thread that ends is no error. PermissionDenied: kNormal needs CAP_SYS_NICE.
absl::Status SetPriority(pid_t pid, Priority priority);

}  // namespace tranche::backend
