// Calls on one runner process, as the threads that make them see it: who waits for what, and what becomes of everybody when it ends. The thread
// that owns the process (runner_backend.cc) feeds it with what arrives.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "runner/wire.h"

namespace tranche::backend {

class RunnerLink {
 public:
  // Both are called from the calling thread: `entered` when a call is about to be sent, `abandoned` when it got no answer by its deadline.
  RunnerLink(std::function<void(runner::Function, std::size_t argument_bytes)> entered, std::function<void()> abandoned)
      : entered_(std::move(entered)), abandoned_(std::move(abandoned)) {}

  // For callers. Unavailable with the reason while the link is closed.
  absl::StatusOr<runner::Done> Call(runner::Function function, const std::string& argument, Deadline deadline);
  absl::Status Availability() const;

  // For the owner. Open: a socket of a process that was started; calls of the owner's own (create) go through Post. Serve: callers may call.
  void Open(int socket);
  void Serve(bool concurrent);
  absl::Status Send(runner::FrameType type, std::uint64_t call, const std::string& payload, Deadline deadline);
  // False: nobody made this call.
  bool Answer(std::uint64_t call, runner::Done done);
  // No new calls; those in progress may still end.
  void Refuse(const absl::Status& why);
  // Everybody who waits gets `why`.
  void Close(const absl::Status& why);
  bool Idle() const;
  // The deadline of the oldest call that was given up and has not been answered.
  std::optional<Deadline> OldestAbandoned() const;
  // By when every call in progress has been answered or given up.
  std::optional<Deadline> LatestDeadline() const;

 private:
  struct Pending {
    runner::Function function;
    Deadline deadline;
    bool abandoned = false;
    std::optional<absl::StatusOr<runner::Done>> outcome;
    std::condition_variable changed;
  };
  absl::Status Enter(runner::Function function, std::unique_lock<std::mutex>& lock, Deadline deadline);
  bool MayGo(runner::Function function) const;
  absl::Status SendTo(std::uint64_t generation, const std::string& frame, Deadline deadline);

  const std::function<void(runner::Function, std::size_t)> entered_;
  const std::function<void()> abandoned_;
  mutable std::mutex mutex_;
  std::condition_variable free_;  // a serialised backend may be called again, or nobody may
  bool serving_ = false, concurrent_ = false;
  absl::Status why_ = absl::UnavailableError("its process is being started; retry");
  std::uint64_t next_call_ = 2;  // 1 is the owner's
  std::map<std::uint64_t, std::shared_ptr<Pending>> calls_;

  std::mutex send_mutex_;  // what follows; waits with a deadline
  std::condition_variable send_free_;
  bool sending_ = false;
  int socket_ = -1;
  std::atomic<std::uint64_t> generation_ = 0;  // of the process: what was meant for one is not sent to the next
};

}  // namespace tranche::backend
