#include "backend/in_process.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>

#include "backend/instance.h"
#include "backend/payload.h"
#include "backend/services.h"
#include "base/files.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {

using runner::Function;

// Lets one call in at a time and gives up at a deadline.
class Gate {
 public:
  bool Enter(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!free_.wait_until(lock, deadline, [this] { return !taken_; })) return false;
    taken_ = true;
    return true;
  }
  void Leave() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = false;
    }
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

tranche_str Borrow(const std::string& text) { return {text.data(), static_cast<std::uint64_t>(text.size())}; }

// Runs a function of the table. A library that throws through the ABI is wrong, and still no reason to end the host.
template <class Callable>
absl::Status Invoke(CallRecord& record, const Callable& callable) {
  tranche_code code = TRANCHE_INTERNAL;
  try {
    code = callable(Services::Handle(record));
  } catch (const std::exception& error) { return StatusOfException(error.what()); } catch (...) {
    return StatusOfException("");
  }
  return StatusOfCall(code, record.failed, record.message);
}

class InProcessInstance : public Instance {
 public:
  InProcessInstance(const LoadedLibrary& library, const CreateOptions& options, Events events)
      : library_(library), name_(options.name), limits_(options.limits), services_(options.name, std::move(events), options.limits) {}

  ~InProcessInstance() override {
    if (instance_ == nullptr) return;
    try {
      library_.table.destroy(instance_);
    } catch (...) { LogError("a backend threw from destroy", {{"backend", name_}}); }
  }
  InProcessInstance(const InProcessInstance&) = delete;
  InProcessInstance& operator=(const InProcessInstance&) = delete;

  absl::Status Create(const CreateOptions& options) {
    TRANCHE_ASSIGN_OR_RETURN(const std::string argument, WriteCreate(options.config, options.runtime_directory));
    CallRecord record(DeadlineIn(options.timeout), limits_);
    tranche_instance* instance = nullptr;
    TRANCHE_RETURN_IF_ERROR(Invoke(record, [&](tranche_call* call) { return library_.table.create(services_.table(), call, Borrow(argument), &instance); }));
    if (instance == nullptr) return absl::InternalError("said OK without an instance");
    instance_ = instance;
    return absl::OkStatus();
  }

  absl::Status Call(Function function, const std::string& argument, CallRecord& record) override {
    const bool alone = !library_.Concurrent();
    if (alone && !gate_.Enter(record.deadline)) { return absl::DeadlineExceededError("an earlier call on this backend has not returned; retry"); }
    const absl::Status status =
        Invoke(record, [&](tranche_call* call) { return function == Function::kPrepare ? TimedPrepare(call, argument) : Dispatch(function, call, argument); });
    if (alone) gate_.Leave();
    return status;
  }

  std::map<std::string, std::int64_t> Metrics() const override { return services_.Metrics(); }
  CallTimes PrepareTimes() const override { return {prepare_calls_, std::chrono::microseconds(prepare_time_)}; }

 private:
  tranche_code Dispatch(Function function, tranche_call* call, const std::string& argument) const {
    const tranche_backend_api& table = library_.table;
    const auto missing = [&] { return Services::Unimplemented(call); };
    switch (function) {
      case Function::kDiscover: return table.discover(instance_, call);
      case Function::kPrepare: return table.prepare(instance_, call, Borrow(argument));
      case Function::kUnprepare: return table.unprepare(instance_, call, Borrow(argument));
      case Function::kListPrepared: return table.list_prepared(instance_, call);
      case Function::kVerify: return table.verify == nullptr ? missing() : table.verify(instance_, call, Borrow(argument));
      case Function::kCheckHealth: return table.check_health == nullptr ? missing() : table.check_health(instance_, call);
      case Function::kRecover: return table.recover == nullptr ? missing() : table.recover(instance_, call, Borrow(argument));
      case Function::kReleaseHandles: return table.release_handles == nullptr ? missing() : table.release_handles(instance_, call);
      case Function::kSelfTest: return table.self_test == nullptr ? missing() : table.self_test(instance_, call);
      case Function::kSweep: return table.sweep == nullptr ? missing() : table.sweep(instance_, call);
      case Function::kCreate: break;  // once, by Create
    }
    return missing();
  }

  tranche_code TimedPrepare(tranche_call* call, const std::string& argument) {
    const auto start = std::chrono::steady_clock::now();
    const tranche_code code = Dispatch(Function::kPrepare, call, argument);
    prepare_time_ += std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
    ++prepare_calls_;
    return code;
  }

  const LoadedLibrary library_;
  const std::string name_;
  const PayloadLimits limits_;
  Services services_;
  Gate gate_;
  tranche_instance* instance_ = nullptr;
  std::atomic<std::uint64_t> prepare_calls_ = 0;
  std::atomic<std::int64_t> prepare_time_ = 0;  // microseconds
};

}  // namespace

absl::StatusOr<std::shared_ptr<Backend>> CreateBackend(const LoadedLibrary& library, const CreateOptions& options, Events events) {
  TRANCHE_RETURN_IF_ERROR(Annotate(CheckConfiguration(library.manifest, options.config), absl::StrCat("backend ", options.name)));
  if (!options.runtime_directory.empty()) TRANCHE_RETURN_IF_ERROR(MakeDirectories(options.runtime_directory, 0700));
  auto instance = std::make_unique<InProcessInstance>(library, options, std::move(events));
  TRANCHE_RETURN_IF_ERROR(Annotate(instance->Create(options), absl::StrCat("backend ", options.name, ", create")));
  return MakeCheckedBackend(options.name, options.limits, std::move(instance));
}

}  // namespace tranche::backend
