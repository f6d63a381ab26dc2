#include "backend/runner_backend.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "backend/instance.h"
#include "backend/library_copy.h"
#include "backend/payload.h"
#include "backend/runner_link.h"
#include "backend/runner_output.h"
#include "backend/runner_priority.h"
#include "backend/runner_process.h"
#include "base/files.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {

using runner::FrameType;
using runner::Function;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint64_t kCreateCall = 1;
constexpr std::chrono::seconds kFallbackPoll{1};  // where the kernel cannot tell of a process's end
constexpr std::chrono::seconds kDrainPatience{5};
// How often the process's CPU time is looked at: while it is called, and else.
constexpr milliseconds kBusyLook{20}, kQuietLook{10000};
constexpr int kLongestProbation = 16;  // times the shortest

// Wakes the owner's poll.
class Bell {
 public:
  Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Bell() { ::close(fd_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  int fd() const { return fd_; }
  void Ring() const { ::eventfd_write(fd_, 1); }
  void Quiet() const {
    eventfd_t ignored = 0;
    ::eventfd_read(fd_, &ignored);
  }

 private:
  const int fd_;
};

class RunnerInstance : public Instance {
 public:
  RunnerInstance(const CheckedLibrary& library, LibraryCopy copy, const CreateOptions& options, RunnerOptions runner, std::string create, Events events)
      : library_(library),
        copy_(std::move(copy)),
        name_(options.name),
        limits_(options.limits),
        create_timeout_(options.timeout),
        runner_(std::move(runner)),
        create_argument_(std::move(create)),
        services_(options.name, std::move(events), options.limits),
        link_([this](Function function, std::size_t bytes) { Earn(WorthOf(function, bytes, last_answer_[Index(function)])); }, [this] { bell_.Ring(); }) {}

  ~RunnerInstance() override {
    stopping_ = true;
    bell_.Ring();
    if (owner_.joinable()) owner_.join();
  }
  RunnerInstance(const RunnerInstance&) = delete;
  RunnerInstance& operator=(const RunnerInstance&) = delete;

  // The first process and its instance.
  absl::Status Begin() {
    owner_ = std::thread([this] { Own(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return first_.has_value(); });
    return *first_;
  }

  absl::Status Call(Function function, const std::string& argument, CallRecord& record) override {
    absl::StatusOr<runner::Done> done = link_.Call(function, argument, record.deadline);
    if (!done.ok()) return done.status();
    if (function == Function::kPrepare) {
      prepare_time_ += static_cast<std::int64_t>(done->microseconds);
      ++prepare_calls_;
    }
    last_answer_[Index(function)] = SizeOf(*done);
    return Fill(*std::move(done), record);
  }

  std::map<std::string, std::int64_t> Metrics() const override { return services_.Metrics(); }
  CallTimes PrepareTimes() const override { return {prepare_calls_, std::chrono::microseconds(prepare_time_)}; }
  absl::Status Availability() const override { return link_.Availability(); }
  std::optional<ProcessStatus> Process() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  // The first call after a look at the CPU time asks for the next one.
  void Earn(microseconds worth) {
    if (earned_.fetch_add(worth.count()) == 0) bell_.Ring();
  }

  static std::size_t Index(Function function) { return static_cast<std::size_t>(function); }

  static std::size_t SizeOf(const runner::Done& done) {
    std::size_t bytes = 0;
    for (const std::string& device : done.devices) bytes += device.size();
    for (const std::string& share : done.shares) bytes += share.size();
    return bytes;
  }

  static absl::Status Fill(runner::Done done, CallRecord& record) {
    record.devices = std::move(done.devices);
    record.shares = std::move(done.shares);
    for (runner::Result& result : done.results) record.results.push_back({std::move(result.key), result.code, CleanText(result.message)});
    record.violation = CleanText(done.violation);
    record.failed = done.failed;
    record.message = CleanText(done.message);
    return done.threw ? StatusOfException(done.message) : StatusOfCall(done.code, done.failed, record.message);
  }

  // ---- the owner's thread: one process after the other

  void Own() {
    int failures = 0;
    while (!stopping_) {
      const auto served = Serve();
      const absl::Status& why = served.first;
      if (!IsFirstDone() && !why.ok()) return SetFirst(why);
      if (stopping_) return;
      was_stable_ = served.second >= runner_.stable_after;
      if (was_stable_) failures = 0;
      const milliseconds pause = BackOff(failures++);
      LogError("a backend's process is replaced", {{"backend", name_}, {"reason", std::string(why.message())}, {"milliseconds", absl::StrCat(pause.count())}});
      services_.OnAvailability(why);
      Sleep(pause);
    }
  }

  milliseconds BackOff(int failures) {
    const milliseconds whole = std::min(runner_.first_back_off * (1 << std::min(failures, 16)), runner_.last_back_off);
    return milliseconds(std::uniform_int_distribution<std::int64_t>(whole.count() * 3 / 4, whole.count() * 5 / 4)(random_));
  }

  void Sleep(milliseconds pause) {
    const Deadline end = DeadlineIn(pause);
    while (!stopping_ && !Passed(end)) {
      pollfd bell{bell_.fd(), POLLIN, 0};
      ::poll(&bell, 1, Until(end));
      bell_.Quiet();
      ForgetEnded();
    }
  }

  static int Until(std::optional<Deadline> end) {
    if (!end.has_value()) return -1;
    const auto left = std::chrono::ceil<milliseconds>(*end - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60000));
  }

  // Runs one process to its end: why it ended, and how long it served.
  std::pair<absl::Status, milliseconds> Serve() {
    absl::StatusOr<RunnerProcess> started = RunnerProcess::Start(runner_.program, name_);
    if (!started.ok()) {
      link_.Close(started.status());
      return {started.status(), milliseconds(0)};
    }
    process_ = *std::move(started);
    reader_.emplace(runner::LargestAnswer(limits_.device_bytes, limits_.call_bytes));
    output_.emplace(name_);
    serving_since_.reset();
    draining_until_.reset();
    SetPid(process_.pid());
    link_.Open(process_.socket());
    absl::Status why = Converse();
    const milliseconds served =
        serving_since_.has_value() ? std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - *serving_since_) : milliseconds(0);
    why = Finish(std::move(why));
    return {why, served};
  }

  runner::Start MakeStart() const {
    const ProcessLimits& limits = library_.manifest.process;
    return {.name = library_.manifest.name,
            .path = copy_.path(),
            .device_bytes = limits_.device_bytes,
            .call_bytes = limits_.call_bytes,
            .memory_bytes = limits.memory_bytes,
            .open_files = limits.open_files,
            .capabilities = limits.capabilities,
            .system_calls = limits.system_calls};
  }

  // Until the process ends, breaks a rule, hangs, or is not wanted any more: never OK unless stopping.
  absl::Status Converse() {
    const Deadline created_by = DeadlineIn(create_timeout_);
    TRANCHE_RETURN_IF_ERROR(link_.Send(FrameType::kStart, 0, runner::Encode(MakeStart()), created_by));
    while (!stopping_) {
      TRANCHE_RETURN_IF_ERROR(Wait(created_by));
      if (!serving_since_.has_value() && Passed(created_by)) {
        return absl::DeadlineExceededError(absl::StrCat("create did not return within ", create_timeout_.count(), " ms"));
      }
      LookAtCpu();
      if (draining_until_.has_value() && (link_.Idle() || Passed(*draining_until_))) return draining_why_;
      const std::optional<Deadline> abandoned = link_.OldestAbandoned();
      if (abandoned.has_value() && Passed(*abandoned + runner_.hang_grace)) {
        return absl::UnavailableError("a call did not return after its deadline; the process is killed and a new one started; retry");
      }
      ForgetEnded();
    }
    return absl::OkStatus();
  }

  // One look at everything that can happen.
  absl::Status Wait(Deadline created_by) {
    std::optional<Deadline> until = draining_until_;
    const auto sooner = [&](Deadline other) { until = until.has_value() ? std::min(*until, other) : other; };
    if (!serving_since_.has_value()) sooner(created_by);
    if (const std::optional<Deadline> abandoned = link_.OldestAbandoned(); abandoned.has_value()) sooner(*abandoned + runner_.hang_grace);
    if (process_.watch() < 0) sooner(DeadlineIn(kFallbackPoll));
    if (serving_since_.has_value()) sooner(next_look_);
    std::array<pollfd, 4> sources = {{{process_.socket(), POLLIN, 0}, {process_.output(), POLLIN, 0}, {process_.watch(), POLLIN, 0}, {bell_.fd(), POLLIN, 0}}};
    if (::poll(sources.data(), sources.size(), Until(until)) < 0) return absl::OkStatus();
    if (sources[3].revents != 0) bell_.Quiet();
    if (sources[1].revents != 0 && !output_->Read(process_.output())) process_.CloseOutput();
    if (sources[0].revents != 0) return Receive();
    if (sources[2].revents != 0) return absl::UnavailableError("");  // Finish says how it ended
    return absl::OkStatus();
  }

  // An endless loop, or a call that fills memory, keeps others from the CPUs for longer than a call may take, whatever its nice value: the process is put
  // behind everybody until it was good for a while.
  void LookAtCpu() {
    const Deadline now = std::chrono::steady_clock::now();
    if (earned_ != 0) next_look_ = std::min(next_look_, last_look_ + kBusyLook);
    if (!serving_since_.has_value() || now < next_look_) return;
    const std::optional<microseconds> used = CpuTimeOf(process_.pid());
    if (!used.has_value()) {  // it has ended, which others tell
      next_look_ = now + kQuietLook;
      return;
    }
    const microseconds earned(earned_.exchange(0));
    const microseconds elapsed = std::chrono::duration_cast<microseconds>(now - last_look_);
    if (!account_.Draw(*used - used_, earned, elapsed, link_.Idle())) Punish(now);
    used_ = *used;
    last_look_ = now;
    next_look_ = now + (link_.Idle() ? kQuietLook : kBusyLook);
    if (now < probation_until_) {
      next_look_ = std::min(next_look_, probation_until_);
      PutOnProbation();
    } else {
      EndProbation();
    }
  }

  // Longer each time for one that goes on as soon as it may: where its process is replaced at the end, not every minute.
  void Punish(Deadline now) {
    const bool again = now < probation_until_ + probation_;
    if (now >= probation_until_) probation_ = again ? std::min(probation_ * 2, runner_.probation * kLongestProbation) : runner_.probation;
    probation_until_ = now + probation_;
  }

  // At every look: threads of an idle one are idle too, but not those of one that was not yet found.
  void PutOnProbation() {
    const absl::Status set = SetPriority(process_.pid(), Priority::kIdle);
    if (IsGreedy()) return;
    LogWarning("a backend's process takes more CPU time than its calls are worth: for a while it runs only when nobody else wants to",
               {{"backend", name_}, {"pid", absl::StrCat(process_.pid())}, {"problem", std::string(set.message())}});
    SetGreedy(true);
  }

  // Without CAP_SYS_NICE a process that is at idle priority stays there: a new one takes its place.
  void EndProbation() {
    if (!IsGreedy() || draining_until_.has_value()) return;
    if (const absl::Status set = SetPriority(process_.pid(), Priority::kNormal); !set.ok()) {
      Drain("its process was put behind all others for its use of the CPUs, and is replaced by one with the usual priority; retry");
      return;
    }
    LogInfo("a backend's process has its usual priority again", {{"backend", name_}, {"pid", absl::StrCat(process_.pid())}});
    SetGreedy(false);
  }

  void SetGreedy(bool greedy) {
    const std::lock_guard lock(mutex_);
    status_.is_greedy = greedy;
  }
  bool IsGreedy() const {
    const std::lock_guard lock(mutex_);
    return status_.is_greedy;
  }

  // No new calls; the process is replaced when those in progress have ended or are given up.
  void Drain(const char* why) {
    draining_why_ = absl::UnavailableError(why);
    link_.Refuse(draining_why_);
    draining_until_ = std::max(DeadlineIn(kDrainPatience), link_.LatestDeadline().value_or(Deadline::min()));
  }

  absl::Status Receive() {
    const ssize_t count = ::recv(process_.socket(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR ? absl::OkStatus() : absl::UnavailableError("");
    if (count == 0) return absl::UnavailableError("");
    reader_->Append({buffer_.data(), static_cast<std::size_t>(count)});
    while (std::optional<runner::FrameReader::Received> frame = reader_->Next()) TRANCHE_RETURN_IF_ERROR(Take(*frame));
    return reader_->problem().empty() ? absl::OkStatus() : Broken(reader_->problem());
  }

  static absl::Status Broken(const std::string& what) {
    return absl::UnavailableError(absl::StrCat("its process sent ", what, ": the connection is closed and the process replaced; retry"));
  }

  absl::Status Take(const runner::FrameReader::Received& frame) {
    switch (frame.type) {
      case FrameType::kStarted: return TakeStarted(frame.payload);
      case FrameType::kRefused: {
        const std::optional<runner::Refused> refused = runner::DecodeRefused(frame.payload);
        return refused.has_value() ? RefusedByRunner(library_, refused->stage, CleanText(refused->why)) : Broken("an unreadable refusal");
      }
      case FrameType::kDone: return TakeDone(frame);
      case FrameType::kLog: {
        const std::optional<runner::Log> log = runner::DecodeLog(frame.payload);
        if (!log.has_value()) return Broken("an unreadable log line");
        if (output_->AdmitLog()) services_.OnLog(log->level, log->text);
        return absl::OkStatus();
      }
      case FrameType::kHealth:
      case FrameType::kDevicesChanged:
      case FrameType::kShareLost: return TakeNotice(frame);
      case FrameType::kMetric: {
        const std::optional<runner::Metric> metric = runner::DecodeMetric(frame.payload);
        if (!metric.has_value()) return Broken("an unreadable metric");
        services_.OnMetric(metric->name, metric->value);
        return absl::OkStatus();
      }
      default: return Broken("a frame that only the host sends");
    }
  }

  // None of these may be lost: a flood ends the process, and all that the notices would have said is asked anew of the next one.
  absl::Status TakeNotice(const runner::FrameReader::Received& frame) {
    if (!notices_.Take()) return Broken("thousands of notices of health, lost shares and changed devices at once");
    if (frame.type == FrameType::kHealth) services_.OnHealth(frame.payload);
    if (frame.type == FrameType::kDevicesChanged) services_.OnDevicesChanged();
    if (frame.type == FrameType::kShareLost) services_.OnShareLost(frame.payload);
    return absl::OkStatus();
  }

  absl::Status TakeStarted(const std::string& payload) {
    const std::optional<runner::Started> started = runner::DecodeStarted(payload);
    if (!started.has_value() || serving_since_.has_value()) return Broken("an unreadable start");
    concurrent_ = (started->flags & TRANCHE_FLAG_CONCURRENT) != 0;
    {
      const std::lock_guard lock(mutex_);
      status_.version = CleanText(started->version);
    }
    const Deadline deadline = DeadlineIn(create_timeout_);
    const std::int64_t deadline_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    return link_.Send(FrameType::kCall, kCreateCall, runner::Encode(runner::Call{Function::kCreate, deadline_ns, create_argument_}), deadline);
  }

  absl::Status TakeDone(const runner::FrameReader::Received& frame) {
    std::optional<runner::Done> done = runner::DecodeDone(frame.payload);
    if (!done.has_value()) return Broken("an unreadable answer");
    if (frame.call == kCreateCall && !serving_since_.has_value()) return TakeCreated(*std::move(done));
    const bool exhausted = done->exhausted;
    if (!link_.Answer(frame.call, *std::move(done))) return Broken("an answer to a call that nobody made");
    if (exhausted && !draining_until_.has_value()) Drain("its process has used up its descriptors or memory and is replaced; retry");
    return absl::OkStatus();
  }

  absl::Status TakeCreated(runner::Done done) {
    const bool instance = done.instance;
    CallRecord record(DeadlineIn(create_timeout_), limits_);
    const absl::Status created = Fill(std::move(done), record);
    if (!created.ok()) return Annotate(created, "create");
    if (!instance) return absl::InternalError("create: said OK without an instance");
    serving_since_ = last_look_ = next_look_ = std::chrono::steady_clock::now();
    used_ = CpuTimeOf(process_.pid()).value_or(microseconds(0));
    account_ = CpuAccount(was_stable_ ? CpuAccount::kStart : microseconds(0));
    SetGreedy(false);  // a new process; on probation all the same, if its backend is
    if (*serving_since_ < probation_until_) PutOnProbation();
    link_.Serve(concurrent_);
    if (IsFirstDone()) {
      const std::lock_guard lock(mutex_);
      ++status_.restarts;
    }
    if (IsFirstDone()) {
      LogInfo("a backend's process serves again", {{"backend", name_}, {"pid", absl::StrCat(process_.pid())}});
      services_.OnAvailability(absl::OkStatus());
    }
    SetFirst(absl::OkStatus());
    return absl::OkStatus();
  }

  // The process ends, if it has not: callers know at once, its last words are kept. The reason, with how it ended.
  absl::Status Finish(absl::Status why) {
    const absl::Status ended = absl::UnavailableError(stopping_ ? "the host ends or lets go of it" : "its process has ended and a new one is started; retry");
    const bool unexplained = !why.ok() && why.message().empty();
    // For those who wait, before the process is waited for.
    link_.Refuse(unexplained || why.ok() ? ended : Retryable(why));
    std::optional<std::string> end;
    if (why.ok()) end = Farewell();
    if (!end.has_value() && unexplained) end = process_.Reap(milliseconds(50));  // its own end, before a signal of ours could hide it
    if (unexplained && end.has_value()) why = absl::UnavailableError(absl::StrCat("its process ended: ", *end, "; a new one is started; retry"));
    if (unexplained && !end.has_value()) why = absl::UnavailableError("its process closed the connection; a new one is started; retry");
    link_.Close(why.ok() ? ended : Retryable(why));
    if (!end.has_value()) end = process_.End(runner_.kill_patience);
    if (process_.output() >= 0) output_->Read(process_.output());
    output_->Flush();
    if (!end.has_value()) ReportStuck();
    SetPid(0);
    process_ = RunnerProcess();
    return why;
  }

  // Whatever kept a process from serving, its callers may retry.
  static absl::Status Retryable(const absl::Status& why) { return absl::UnavailableError(std::string(why.message())); }

  // Not while a call that was given up still runs there: destroy does not overlap calls.
  std::optional<std::string> Farewell() {
    if (!link_.Idle()) return std::nullopt;
    link_.Send(FrameType::kStop, 0, "", DeadlineIn(milliseconds(100))).IgnoreError();
    return process_.Reap(runner_.stop_patience);
  }

  void ReportStuck() {
    const int pid = process_.pid();
    LogError("a backend's process survives SIGKILL, as in an uninterruptible sleep in the kernel; it is never used again, what it holds may need a reboot",
             {{"backend", name_}, {"pid", absl::StrCat(pid)}});
    const std::lock_guard lock(mutex_);
    status_.stuck.push_back(pid);
  }

  void ForgetEnded() {
    const std::lock_guard lock(mutex_);
    std::erase_if(status_.stuck, [](int pid) { return HasEnded(pid); });
  }

  void SetPid(int pid) {
    const std::lock_guard lock(mutex_);
    status_.pid = pid;
  }

  bool IsFirstDone() const {
    const std::lock_guard lock(mutex_);
    return first_.has_value();
  }
  void SetFirst(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (!first_.has_value()) first_ = status;
    }
    changed_.notify_all();
  }

  const CheckedLibrary library_;
  const LibraryCopy copy_;
  const std::string name_;
  const PayloadLimits limits_;
  const milliseconds create_timeout_;
  const RunnerOptions runner_;
  const std::string create_argument_;
  const Services services_;
  const Bell bell_;
  RunnerLink link_;
  std::atomic<std::uint64_t> prepare_calls_ = 0;
  std::atomic<std::int64_t> prepare_time_ = 0;                              // microseconds
  std::atomic<std::int64_t> earned_ = 0;                                    // microseconds of CPU time, since the last look
  std::array<std::atomic<std::size_t>, runner::kFunctions> last_answer_{};  // bytes, by function

  // The owner's thread's own.
  RunnerProcess process_;
  std::optional<runner::FrameReader> reader_;
  std::optional<RunnerOutput> output_;
  std::optional<Deadline> serving_since_, draining_until_;
  absl::Status draining_why_;
  bool concurrent_ = false;
  CpuAccount account_;
  bool was_stable_ = true;  // the process before this one; true for the first
  Bucket notices_{4096, 100};
  microseconds used_{};  // CPU time until the last look
  Deadline last_look_, next_look_, probation_until_;
  milliseconds probation_{0};
  std::array<char, 16 * 1024> buffer_;
  std::minstd_rand random_{static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count())};

  mutable std::mutex mutex_;  // what follows
  std::condition_variable changed_;
  std::optional<absl::Status> first_;
  ProcessStatus status_;

  std::atomic<bool> stopping_ = false;
  std::thread owner_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Backend>> CreateRunnerBackend(const CheckedLibrary& library, const CreateOptions& options, const RunnerOptions& runner,
                                                             Events events) {
  TRANCHE_RETURN_IF_ERROR(Annotate(CheckConfiguration(library.manifest, options.config), absl::StrCat("backend ", options.name)));
  if (!options.runtime_directory.empty()) TRANCHE_RETURN_IF_ERROR(MakeDirectories(options.runtime_directory, 0700));
  TRANCHE_ASSIGN_OR_RETURN(std::string argument, WriteCreate(options.config, options.runtime_directory));
  TRANCHE_ASSIGN_OR_RETURN(LibraryCopy copy, LibraryCopy::Make(library, runner.copies_directory));
  auto instance = std::make_unique<RunnerInstance>(library, std::move(copy), options, runner, std::move(argument), std::move(events));
  if (const absl::Status begun = instance->Begin(); !begun.ok()) {
    return StageOf(begun).has_value() ? begun : Annotate(begun, absl::StrCat("backend ", options.name));
  }
  return MakeCheckedBackend(options.name, options.limits, std::move(instance));
}

}  // namespace tranche::backend
