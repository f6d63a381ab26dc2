#include "backend/runner_priority.h"

#include <dirent.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>

#include "base/status.h"

namespace tranche::backend {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowness = 10;
#else
constexpr int kSlowness = 1;
#endif

constexpr milliseconds kPerKibibyte{20 * kSlowness}, kPerOtherCall{100 * kSlowness}, kPerAnsweredKibibyte{2 * kSlowness};
constexpr int kBackgroundShare = 20;  // one of so many parts of a CPU

constexpr int kPasses = 8;  // over the threads, for those that start meanwhile

absl::Status SetThread(pid_t thread, Priority priority, bool& changed) {
  const sched_param none{};
  const int policy = priority == Priority::kIdle ? SCHED_IDLE : SCHED_OTHER;
  if (::sched_getscheduler(thread) == policy) return absl::OkStatus();
  changed = true;
  if (::sched_setscheduler(thread, policy, &none) == 0 || errno == ESRCH) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("thread ", thread, ": ", std::strerror(errno)));
}

absl::Status SetThreads(pid_t pid, Priority priority, bool& changed) {
  const std::string directory = absl::StrCat("/proc/", pid, "/task");
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir(directory.c_str()), ::closedir);
  if (tasks == nullptr) return errno == ENOENT ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(directory, ": ", std::strerror(errno)));
  absl::Status status;
  while (const dirent* entry = ::readdir(tasks.get())) {
    const std::string name = entry->d_name;
    pid_t thread = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), thread);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const absl::Status set = SetThread(thread, priority, changed); !set.ok() && status.ok()) status = set;
  }
  return status;
}

}  // namespace

microseconds WorthOf(runner::Function function, std::size_t argument_bytes, std::size_t last_answer_bytes) {
  if (function != runner::Function::kPrepare && function != runner::Function::kUnprepare) {
    return kPerOtherCall + kPerAnsweredKibibyte * static_cast<std::int64_t>(last_answer_bytes / 1024);
  }
  return kPerKibibyte * static_cast<std::int64_t>(argument_bytes / 1024 + 1);
}

bool CpuAccount::Draw(microseconds used, microseconds earned, microseconds elapsed, bool idle) {
  balance_ += earned + elapsed / kBackgroundShare - used;
  const microseconds taken = std::clamp<microseconds>(-balance_, microseconds(0), spare_);
  spare_ -= taken;
  balance_ += taken;
  const bool enough = balance_ >= microseconds(0);
  balance_ = std::max(balance_, microseconds(0));
  if (idle) balance_ = std::min<microseconds>(balance_, kMostSaved);
  return enough;
}

std::optional<microseconds> CpuTimeOf(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return std::nullopt;
  return std::chrono::seconds(time.tv_sec) + std::chrono::duration_cast<microseconds>(std::chrono::nanoseconds(time.tv_nsec));
}

absl::Status SetPriority(pid_t pid, Priority priority) {
  for (int pass = 0; pass < kPasses; ++pass) {
    bool changed = false;
    TRANCHE_RETURN_IF_ERROR(SetThreads(pid, priority, changed));
    if (!changed) break;
  }
  return absl::OkStatus();
}

}  // namespace tranche::backend
