#include "backend/runner_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

#include "base/status.h"

namespace tranche::backend {
namespace {

// A backend that notices its deadline answers just after it: its own words are better than ours.
constexpr std::chrono::milliseconds kLateAnswer{100};

int MillisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 60000));
}

absl::Status WriteAll(int socket, const std::string& bytes, Deadline deadline) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) sent += static_cast<std::size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return absl::UnavailableError(absl::StrCat("its process does not listen any more: ", std::strerror(errno)));
    if (Passed(deadline)) {
      if (sent > 0) ::shutdown(socket, SHUT_RDWR);  // what comes next would be read as the rest of this frame
      return absl::DeadlineExceededError("its process takes no more calls; it is replaced");
    }
    pollfd writable{socket, POLLOUT, 0};
    ::poll(&writable, 1, MillisecondsUntil(deadline));
  }
  return absl::OkStatus();
}

}  // namespace

// A prepare that was given up may still put its share in force, an unprepare still take it away: neither is overtaken by the other, which would leave
// the wrong one of the two. The owner bounds the wait (hang_grace).
bool RunnerLink::MayGo(runner::Function function) const {
  const auto changes = [](runner::Function one) { return one == runner::Function::kPrepare || one == runner::Function::kUnprepare; };
  if (!serving_) return true;
  if (!concurrent_) return calls_.empty();
  return !changes(function) ||
         std::none_of(calls_.begin(), calls_.end(), [&](const auto& call) { return call.second->abandoned && changes(call.second->function); });
}

absl::Status RunnerLink::Enter(runner::Function function, std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (!free_.wait_until(lock, deadline, [&] { return MayGo(function); })) {
    return absl::DeadlineExceededError("an earlier call on this backend has not returned; retry");
  }
  if (!serving_) return why_;
  if (Passed(deadline)) return absl::DeadlineExceededError("no time is left for this call, which was not made; retry");
  return absl::OkStatus();
}

absl::StatusOr<runner::Done> RunnerLink::Call(runner::Function function, const std::string& argument, Deadline deadline) {
  if (argument.size() > runner::kMaxCallBytes - 1024) {
    return absl::ResourceExhaustedError(absl::StrCat("a call of ", argument.size(), " bytes is too large; split it"));
  }
  const std::int64_t deadline_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
  const auto pending = std::make_shared<Pending>();
  pending->function = function;
  pending->deadline = deadline;
  std::unique_lock lock(mutex_);
  TRANCHE_RETURN_IF_ERROR(Enter(function, lock, deadline));
  const std::uint64_t generation = generation_;
  const std::uint64_t id = next_call_++;
  calls_.emplace(id, pending);
  lock.unlock();
  entered_(function, argument.size());
  const std::string frame = runner::Frame(runner::FrameType::kCall, id, runner::Encode(runner::Call{function, deadline_ns, argument}));
  const absl::Status sent = SendTo(generation, frame, deadline);
  lock.lock();
  const bool answered = sent.ok() && pending->changed.wait_until(lock, deadline + kLateAnswer, [&] { return pending->outcome.has_value(); });
  if (pending->outcome.has_value()) return *std::move(pending->outcome);
  if (!answered) pending->abandoned = true;  // stays, so that a serialised backend is not called meanwhile, until it answers or ends
  lock.unlock();
  abandoned_();
  if (!sent.ok()) return sent;
  SendTo(generation, runner::Frame(runner::FrameType::kCancel, id, ""), DeadlineIn(std::chrono::milliseconds(10))).IgnoreError();
  return absl::DeadlineExceededError("it did not answer by the deadline; unless it does so soon its process is replaced; retry");
}

absl::Status RunnerLink::Availability() const {
  const std::lock_guard lock(mutex_);
  return serving_ ? absl::OkStatus() : why_;
}

void RunnerLink::Open(int socket) {
  const std::lock_guard lock(send_mutex_);
  socket_ = socket;
}

void RunnerLink::Serve(bool concurrent) {
  const std::lock_guard lock(mutex_);
  concurrent_ = concurrent;
  serving_ = true;
}

absl::Status RunnerLink::Send(runner::FrameType type, std::uint64_t call, const std::string& payload, Deadline deadline) {
  return SendTo(generation_, runner::Frame(type, call, payload), deadline);
}

absl::Status RunnerLink::SendTo(std::uint64_t generation, const std::string& frame, Deadline deadline) {
  std::unique_lock lock(send_mutex_);
  if (!send_free_.wait_until(lock, deadline, [this] { return !sending_; })) {
    return absl::DeadlineExceededError("its process takes no more calls; it is replaced");
  }
  if (socket_ < 0 || generation != generation_) return absl::UnavailableError("its process has ended; retry");
  sending_ = true;
  const int socket = socket_;
  lock.unlock();
  const absl::Status written = WriteAll(socket, frame, deadline);
  lock.lock();
  sending_ = false;
  lock.unlock();
  send_free_.notify_all();
  return written;
}

bool RunnerLink::Answer(std::uint64_t call, runner::Done done) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return false;
  found->second->outcome = std::move(done);
  found->second->changed.notify_one();
  calls_.erase(found);
  free_.notify_all();
  return true;
}

void RunnerLink::Refuse(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    serving_ = false;
    why_ = why;
  }
  free_.notify_all();
}

void RunnerLink::Close(const absl::Status& why) {
  Refuse(why);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, pending] : calls_) {
      pending->outcome = why;
      pending->changed.notify_one();
    }
    calls_.clear();
  }
  std::unique_lock lock(send_mutex_);
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);  // whoever writes now stops
  send_free_.wait(lock, [this] { return !sending_; });
  socket_ = -1;
  ++generation_;
}

bool RunnerLink::Idle() const {
  const std::lock_guard lock(mutex_);
  return calls_.empty();
}

std::optional<Deadline> RunnerLink::LatestDeadline() const {
  const std::lock_guard lock(mutex_);
  std::optional<Deadline> latest;
  for (const auto& [id, pending] : calls_) latest = latest.has_value() ? std::max(*latest, pending->deadline) : pending->deadline;
  return latest;
}

std::optional<Deadline> RunnerLink::OldestAbandoned() const {
  const std::lock_guard lock(mutex_);
  std::optional<Deadline> oldest;
  for (const auto& [id, pending] : calls_) {
    if (pending->abandoned) oldest = oldest.has_value() ? std::min(*oldest, pending->deadline) : pending->deadline;
  }
  return oldest;
}

}  // namespace tranche::backend
