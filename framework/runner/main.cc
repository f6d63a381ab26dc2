// tranche-runner: one backend in a process of its own. Started by tranched with a socket pair on descriptor 3 (runner/wire.h); of no use by hand.
//
// Threads take turns at the socket: one reads a frame, lets the next one read, and runs the call itself. When the socket ends, so does the process.
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "runner/library.h"
#include "runner/sandbox.h"
#include "runner/sinks.h"
#include "runner/wire.h"

namespace tranche::runner {
namespace {

constexpr int kMaxThreads = 64;
constexpr std::size_t kStackBytes = 1024 * 1024;

tranche_str Borrow(const std::string& text) { return {text.data(), static_cast<std::uint64_t>(text.size())}; }

class Runner {
 public:
  // Reads `start`, answers, and serves. Does not return: the process ends with its socket.
  [[noreturn]] void Run() {
    const std::optional<FrameReader::Received> first = Receive();
    const std::optional<Start> start = first.has_value() && first->type == FrameType::kStart ? DecodeStart(first->payload) : std::nullopt;
    if (!start.has_value()) Refuse("start", "the first frame is not a start");
    limits_ = {start->device_bytes, start->call_bytes};
    if (const std::string why = EnterSandbox(*start); !why.empty()) Refuse("sandbox", why);
    OpenedLibrary opened = OpenLibrary(start->path, start->name);
    if (!opened.problem.empty()) Refuse(opened.stage, opened.problem);
    api_ = opened.api;
    sinks_ = std::make_unique<Sinks>(limits_, [this](FrameType type, std::string payload) { Send(type, 0, payload); });
    Send(FrameType::kStarted, 0, Encode(Started{opened.version, opened.abi_minor, api_.flags, Provided()}));
    Serve();
  }

 private:
  [[noreturn]] void Refuse(const std::string& stage, const std::string& why) {
    Send(FrameType::kRefused, 0, Encode(Refused{stage, why}));
    ::_exit(1);
  }

  std::uint32_t Provided() const {
    std::uint32_t bits = 0x1f;  // create to list_prepared are required
    const std::array<bool, 6> optional = {api_.verify != nullptr,          api_.check_health != nullptr, api_.recover != nullptr,
                                          api_.release_handles != nullptr, api_.self_test != nullptr,    api_.sweep != nullptr};
    for (std::size_t index = 0; index < optional.size(); ++index) bits |= optional[index] ? 1u << (index + 5) : 0u;
    return bits;
  }

  // By one thread at a time. Does not return when the other end is gone or says what cannot be read.
  std::optional<FrameReader::Received> Receive() {
    while (true) {
      if (std::optional<FrameReader::Received> frame = reader_.Next(); frame.has_value()) return frame;
      if (!reader_.problem().empty()) ::_exit(1);
      const ssize_t count = ::recv(kSocketFd, buffer_.data(), buffer_.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) ::_exit(0);
      reader_.Append({buffer_.data(), static_cast<std::size_t>(count)});
    }
  }

  void Send(FrameType type, std::uint64_t call, const std::string& payload) {
    const std::string frame = Frame(type, call, payload);
    const std::lock_guard lock(send_mutex_);
    for (std::size_t sent = 0; sent < frame.size();) {
      const ssize_t count = ::send(kSocketFd, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) ::_exit(0);
      sent += static_cast<std::size_t>(count);
    }
  }

  [[noreturn]] void Serve() {
    while (true) {
      std::unique_lock turn(turn_mutex_);
      const std::optional<FrameReader::Received> frame = Receive();
      if (frame->type == FrameType::kStop) Stop();
      if (frame->type == FrameType::kCancel) Cancel(frame->call);
      if (frame->type != FrameType::kCall) continue;
      std::optional<Call> call = DecodeCall(frame->payload);
      if (!call.has_value()) ::_exit(1);
      if (--waiting_ == 0 && threads_ < kMaxThreads) AddThread();
      turn.unlock();
      Execute(frame->call, *call);
      turn.lock();
      ++waiting_;
    }
  }

  // With the turn. Without another thread calls wait for this one.
  void AddThread() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const auto serve = [](void* self) -> void* { static_cast<Runner*>(self)->Serve(); };
    if (::pthread_create(&thread, &attributes, serve, this) == 0) {
      ++threads_;
      ++waiting_;
    }
    pthread_attr_destroy(&attributes);
  }

  // Prepared shares stay in force. tranched waits only so long for the backend's threads.
  [[noreturn]] void Stop() {
    {
      const std::lock_guard lock(calls_mutex_);  // what the last call wrote is seen by destroy, not only by way of the socket
    }
    try {
      if (instance_ != nullptr) api_.destroy(instance_);
    } catch (...) { Send(FrameType::kLog, 0, Encode(Log{TRANCHE_LOG_ERROR, "threw an exception from destroy"})); }
    ::_exit(0);
  }

  void Cancel(std::uint64_t call) {
    const std::lock_guard lock(calls_mutex_);
    const auto found = calls_.find(call);
    if (found != calls_.end()) found->second->cancelled = true;
  }

  void Execute(std::uint64_t id, const Call& call) {
    CallState state(call.deadline_ns, limits_);
    {
      const std::lock_guard lock(calls_mutex_);
      calls_.emplace(id, &state);
    }
    Invoke(call, state);
    {
      const std::lock_guard lock(calls_mutex_);
      calls_.erase(id);
    }
    const bool failed = state.done.code != TRANCHE_OK || state.done.threw || !state.done.violation.empty();
    state.done.exhausted = NearlyExhausted(failed ? Look::kMemoryToo : Look::kDescriptors);
    try {
      Send(FrameType::kDone, id, Encode(state.done));
    } catch (const std::bad_alloc&) {
      ::_exit(1);  // tranched sees the end of this process and says so
    }
  }

  void Invoke(const Call& call, CallState& state) {
    const auto start = std::chrono::steady_clock::now();
    try {
      state.done.code = Dispatch(call, state);
    } catch (const std::exception& error) {
      state.done.threw = true;
      state.done.message = std::string(error.what()).substr(0, 1024);
    } catch (...) {
      state.done.threw = true;
      state.done.message.clear();
    }
    state.done.microseconds =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
  }

  tranche_code Dispatch(const Call& call, CallState& state) {
    const tranche_str argument = Borrow(call.argument);
    tranche_call* const handle = state.handle();
    switch (call.function) {
      case Function::kCreate: return Create(argument, state);
      case Function::kDiscover: return api_.discover(instance_, handle);
      case Function::kPrepare: return api_.prepare(instance_, handle, argument);
      case Function::kUnprepare: return api_.unprepare(instance_, handle, argument);
      case Function::kListPrepared: return api_.list_prepared(instance_, handle);
      case Function::kVerify: return api_.verify == nullptr ? Missing(state) : api_.verify(instance_, handle, argument);
      case Function::kCheckHealth: return api_.check_health == nullptr ? Missing(state) : api_.check_health(instance_, handle);
      case Function::kRecover: return api_.recover == nullptr ? Missing(state) : api_.recover(instance_, handle, argument);
      case Function::kReleaseHandles: return api_.release_handles == nullptr ? Missing(state) : api_.release_handles(instance_, handle);
      case Function::kSelfTest: return api_.self_test == nullptr ? Missing(state) : api_.self_test(instance_, handle);
      case Function::kSweep: return api_.sweep == nullptr ? Missing(state) : api_.sweep(instance_, handle);
    }
    return Missing(state);
  }

  static tranche_code Missing(CallState& state) {
    state.done.failed = TRANCHE_UNIMPLEMENTED;
    state.done.message = "the backend does not have this function";
    return TRANCHE_UNIMPLEMENTED;
  }

  // tranched makes no other call before this one has answered.
  tranche_code Create(tranche_str argument, CallState& state) {
    tranche_instance* instance = nullptr;
    const tranche_code code = api_.create(sinks_->table(), state.handle(), argument, &instance);
    if (code == TRANCHE_OK) instance_ = instance;
    state.done.instance = code == TRANCHE_OK && instance != nullptr;
    return code;
  }

  Limits limits_;
  tranche_backend_api api_{};
  std::unique_ptr<Sinks> sinks_;
  tranche_instance* instance_ = nullptr;

  std::mutex turn_mutex_;  // who reads, and what follows
  FrameReader reader_{kMaxCallBytes};
  std::array<char, 16 * 1024> buffer_{};
  int threads_ = 1, waiting_ = 1;

  std::mutex send_mutex_, calls_mutex_;
  std::map<std::uint64_t, CallState*> calls_;
};

}  // namespace
}  // namespace tranche::runner

int main() {
  mallopt(M_ARENA_MAX, 1);
  // The end of the socket says the same; this one also reaches a process whose threads are all busy.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  std::signal(SIGPIPE, SIG_IGN);
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(tranche::runner::kSocketFd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
    std::fputs("tranche-runner: is started by tranched for a backend with isolation: process; it does nothing by hand\n", stderr);
    return 2;
  }
  static tranche::runner::Runner runner;
  runner.Run();
}
