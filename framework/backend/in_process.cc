#include "backend/in_process.h"

#include <chrono>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "backend/payload.h"
#include "backend/services.h"
#include "base/files.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {

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
template <class Function>
absl::Status Invoke(CallRecord& record, const Function& function) {
  tranche_code code = TRANCHE_INTERNAL;
  try {
    code = function(Services::Handle(record));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("threw an exception through the ABI: ", CleanText(error.what())));
  } catch (...) {
    return absl::InternalError("threw an exception through the ABI");
  }
  if (code != TRANCHE_OK) {
    const bool explained = record.failed == code && !record.message.empty();
    return absl::Status(ToStatusCode(code), explained ? record.message : absl::StrCat("failed with code ", code, " and gave no reason"));
  }
  return absl::OkStatus();
}

// What one prepare or unprepare said, by key.
struct Answers {
  std::map<ShareKey, absl::Status> results;
  std::map<ShareKey, absl::StatusOr<AppliedShare>> shares;
  std::string violation;  // "" for none
};

Answers ReadAnswers(const CallRecord& record) {
  Answers answers;
  answers.violation = record.violation;
  const auto violate = [&](const std::string& what) {
    if (answers.violation.empty()) answers.violation = what;
  };
  for (const CallRecord::Result& result : record.results) {
    absl::StatusOr<ShareKey> key = ReadKey(result.key);
    if (!key.ok()) {
      violate(absl::StrCat("add_result: key ", std::string(key.status().message())));
      continue;
    }
    absl::Status status(ToStatusCode(result.code), result.code == TRANCHE_OK ? "" : result.message);
    const auto [place, added] = answers.results.emplace(*key, status);
    if (!added && place->second.ok()) place->second = status;  // said twice: the worse word counts
  }
  for (const std::string& text : record.shares) {
    absl::StatusOr<AppliedShare> share = ReadShare(text);
    if (!share.ok()) {
      violate(absl::StrCat("add_share: ", std::string(share.status().message())));
      continue;
    }
    const ShareKey key = share->key;
    answers.shares.insert_or_assign(key, std::move(share));
  }
  return answers;
}

class InProcessBackend : public Backend {
 public:
  InProcessBackend(const LoadedLibrary& library, const CreateOptions& options, Events events)
      : library_(library), name_(options.name), limits_(options.limits), services_(options.name, std::move(events), options.limits) {}

  ~InProcessBackend() override {
    if (instance_ == nullptr) return;
    try {
      library_.table.destroy(instance_);
    } catch (...) {
      LogError("a backend threw from destroy", {{"backend", name_}});
    }
  }
  InProcessBackend(const InProcessBackend&) = delete;
  InProcessBackend& operator=(const InProcessBackend&) = delete;

  absl::Status Create(const CreateOptions& options) {
    TRANCHE_ASSIGN_OR_RETURN(const std::string argument, WriteCreate(options.config, options.runtime_directory));
    CallRecord record(DeadlineIn(options.timeout), limits_);
    tranche_instance* instance = nullptr;
    const absl::Status status = Invoke(record, [&](tranche_call* call) {
      return library_.table.create(services_.table(), call, Borrow(argument), &instance);
    });
    TRANCHE_RETURN_IF_ERROR(Annotate(status, Where("create")));
    if (instance == nullptr) return absl::InternalError(absl::StrCat(Where("create"), ": said OK without an instance"));
    instance_ = instance;
    return absl::OkStatus();
  }

  const std::string& name() const override { return name_; }

  absl::StatusOr<std::vector<PhysicalDevice>> Discover(Deadline deadline) override {
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(Call("discover", record, [&](tranche_call* call) { return library_.table.discover(instance_, call); }));
    if (!record.violation.empty()) return absl::InternalError(absl::StrCat(Where("discover"), ": ", record.violation));
    std::vector<PhysicalDevice> devices;
    std::set<std::string> names;
    absl::Status wrong;
    for (const std::string& text : record.devices) {
      absl::StatusOr<PhysicalDevice> device = ReadDevice(text);
      if (device.ok() && !names.insert(device->name).second) {
        device = absl::InvalidArgumentError(absl::StrCat("device ", device->name, " was pushed twice"));
      }
      if (device.ok()) {
        devices.push_back(*std::move(device));
        continue;
      }
      wrong = absl::InternalError(absl::StrCat(Where("discover"), ": invalid device: ", std::string(device.status().message())));
      LogError("a backend's device is left out", {{"backend", name_}, {"why", std::string(wrong.message())}});
    }
    if (devices.empty() && !wrong.ok()) return wrong;
    return devices;
  }

  std::vector<PrepareOutcome> Prepare(const std::vector<PrepareItem>& items, Deadline deadline) override {
    std::vector<PrepareOutcome> outcomes;
    std::vector<const PrepareItem*> sent;
    for (const PrepareItem& item : items) {
      const absl::Status status = CheckPrepareItem(item);
      outcomes.push_back({item.key, Annotate(status, Where("prepare", item.key)), std::nullopt});
      if (status.ok()) sent.push_back(&item);
    }
    if (sent.empty()) return outcomes;
    const std::string list = WritePrepareList(sent);
    CallRecord record(deadline, limits_);
    const absl::Status call = Call("prepare", record, [&](tranche_call* handle) {
      const auto start = std::chrono::steady_clock::now();
      const tranche_code code = library_.table.prepare(instance_, handle, Borrow(list));
      prepare_time_ += std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
      ++prepare_calls_;
      return code;
    });
    Answers answers = ReadAnswers(record);
    for (PrepareOutcome& outcome : outcomes) {
      if (outcome.status.ok()) Settle(outcome, call, answers);
    }
    return outcomes;
  }

  CallTimes PrepareTimes() const override { return {prepare_calls_, std::chrono::microseconds(prepare_time_)}; }

  std::vector<UnprepareOutcome> Unprepare(const std::vector<UnprepareItem>& items, Deadline deadline) override {
    if (items.empty()) return {};
    const std::string list = WriteUnprepareList(items);
    CallRecord record(deadline, limits_);
    const absl::Status call =
        Call("unprepare", record, [&](tranche_call* handle) { return library_.table.unprepare(instance_, handle, Borrow(list)); });
    const Answers answers = ReadAnswers(record);
    std::vector<UnprepareOutcome> outcomes;
    for (const UnprepareItem& item : items) outcomes.push_back({item.key, ResultOf("unprepare", item.key, call, answers)});
    return outcomes;
  }

  absl::StatusOr<std::vector<AppliedShare>> ListPrepared(Deadline deadline) override {
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(Call("list_prepared", record, [&](tranche_call* call) { return library_.table.list_prepared(instance_, call); }));
    if (!record.violation.empty()) return absl::InternalError(absl::StrCat(Where("list_prepared"), ": ", record.violation));
    std::vector<AppliedShare> shares;
    for (const std::string& text : record.shares) {
      // An incomplete list would make reconcile undo what it cannot see: one bad share fails the call.
      absl::StatusOr<AppliedShare> share = ReadShare(text);
      if (!share.ok()) {
        return absl::InternalError(absl::StrCat(Where("list_prepared"), ": invalid share: ", std::string(share.status().message())));
      }
      shares.push_back(*std::move(share));
    }
    return shares;
  }

  absl::StatusOr<AppliedShare> Verify(const ShareKey& key, const std::string& state, Deadline deadline) override {
    const std::string where = Where("verify", key);
    if (library_.table.verify == nullptr) return absl::UnimplementedError(absl::StrCat(where, ": the backend cannot verify"));
    const std::string reference = WriteReference(key, state);
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(
        Call("verify", record, [&](tranche_call* call) { return library_.table.verify(instance_, call, Borrow(reference)); }));
    if (!record.violation.empty()) return absl::InternalError(absl::StrCat(where, ": ", record.violation));
    if (record.shares.size() != 1) return absl::InternalError(absl::StrCat(where, ": pushed ", record.shares.size(), " shares instead of one"));
    absl::StatusOr<AppliedShare> share = ReadShare(record.shares.front());
    if (!share.ok()) return absl::InternalError(absl::StrCat(where, ": invalid share: ", std::string(share.status().message())));
    if (share->key != key) return absl::InternalError(absl::StrCat(where, ": answered for another key, ", Describe(share->key)));
    return share;
  }

 private:
  std::string Where(std::string_view function) const { return absl::StrCat("backend ", name_, ", ", std::string(function)); }
  std::string Where(std::string_view function, const ShareKey& key) const { return absl::StrCat(Where(function), ", ", Describe(key)); }

  template <class Function>
  absl::Status Call(std::string_view name, CallRecord& record, const Function& function) {
    const bool alone = !library_.Concurrent();
    if (alone && !gate_.Enter(record.deadline)) {
      return absl::DeadlineExceededError(absl::StrCat(Where(name), ": an earlier call on this backend has not returned; retry"));
    }
    const absl::Status status = Invoke(record, function);
    if (alone) gate_.Leave();
    return Annotate(status, Where(name));
  }

  // The status of one key: its own result, else the call's failure, else that nothing was said.
  absl::Status ResultOf(std::string_view function, const ShareKey& key, const absl::Status& call, const Answers& answers) const {
    const auto result = answers.results.find(key);
    if (result != answers.results.end()) return Annotate(result->second, Where(function, key));
    if (!call.ok()) return call;
    return absl::InternalError(absl::StrCat(Where(function, key), ": gave no result for this key", answers.violation.empty() ? "" : "; ", answers.violation));
  }

  void Settle(PrepareOutcome& outcome, const absl::Status& call, const Answers& answers) const {
    outcome.status = ResultOf("prepare", outcome.key, call, answers);
    if (!outcome.status.ok()) return;
    const auto share = answers.shares.find(outcome.key);
    if (share == answers.shares.end()) {
      outcome.status = absl::InternalError(absl::StrCat(Where("prepare", outcome.key), ": said OK without a valid share",
                                                        answers.violation.empty() ? "" : "; ", answers.violation));
      return;
    }
    outcome.share = *share->second;
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
  auto backend = std::make_shared<InProcessBackend>(library, options, std::move(events));
  TRANCHE_RETURN_IF_ERROR(backend->Create(options));
  return std::shared_ptr<Backend>(std::move(backend));
}

}  // namespace tranche::backend
