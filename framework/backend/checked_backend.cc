#include <atomic>
#include <map>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "backend/instance.h"
#include "backend/payload.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {

using runner::Function;

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

class CheckedBackend : public Backend {
 public:
  CheckedBackend(std::string name, PayloadLimits limits, std::unique_ptr<Instance> instance)
      : name_(std::move(name)), limits_(limits), instance_(std::move(instance)) {}

  const std::string& name() const override { return name_; }

  absl::StatusOr<std::vector<PhysicalDevice>> Discover(Deadline deadline) override {
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(Call(Function::kDiscover, "discover", "", record));
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
    const absl::Status call = Call(Function::kPrepare, "prepare", list, record);
    Answers answers = ReadAnswers(record);
    for (PrepareOutcome& outcome : outcomes) {
      if (outcome.status.ok()) Settle(outcome, call, answers);
    }
    return outcomes;
  }

  std::map<std::string, std::int64_t> Metrics() const override { return instance_->Metrics(); }
  CallTimes PrepareTimes() const override { return instance_->PrepareTimes(); }
  absl::Status Availability() const override { return Annotate(instance_->Availability(), absl::StrCat("backend ", name_)); }
  std::optional<ProcessStatus> Process() const override { return instance_->Process(); }

  std::vector<UnprepareOutcome> Unprepare(const std::vector<UnprepareItem>& items, Deadline deadline) override {
    if (items.empty()) return {};
    const std::string list = WriteUnprepareList(items);
    CallRecord record(deadline, limits_);
    const absl::Status call = Call(Function::kUnprepare, "unprepare", list, record);
    const Answers answers = ReadAnswers(record);
    std::vector<UnprepareOutcome> outcomes;
    for (const UnprepareItem& item : items) outcomes.push_back({item.key, ResultOf("unprepare", item.key, call, answers)});
    return outcomes;
  }

  absl::StatusOr<std::vector<AppliedShare>> ListPrepared(Deadline deadline) override {
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(Call(Function::kListPrepared, "list_prepared", "", record));
    if (!record.violation.empty()) return absl::InternalError(absl::StrCat(Where("list_prepared"), ": ", record.violation));
    std::vector<AppliedShare> shares;
    for (const std::string& text : record.shares) {
      // An incomplete list would make reconcile undo what it cannot see: one bad share fails the call.
      absl::StatusOr<AppliedShare> share = ReadShare(text);
      if (!share.ok()) { return absl::InternalError(absl::StrCat(Where("list_prepared"), ": invalid share: ", std::string(share.status().message()))); }
      shares.push_back(*std::move(share));
    }
    Sweep(deadline);
    return shares;
  }

  absl::StatusOr<AppliedShare> Verify(const ShareKey& key, const std::string& state, Deadline deadline) override {
    const std::string where = Where("verify", key);
    const std::string reference = WriteReference(key, state);
    CallRecord record(deadline, limits_);
    TRANCHE_RETURN_IF_ERROR(Call(Function::kVerify, "verify", reference, record));
    if (!record.violation.empty()) return absl::InternalError(absl::StrCat(where, ": ", record.violation));
    if (record.shares.size() != 1) return absl::InternalError(absl::StrCat(where, ": pushed ", record.shares.size(), " shares instead of one"));
    absl::StatusOr<AppliedShare> share = ReadShare(record.shares.front());
    if (!share.ok()) return absl::InternalError(absl::StrCat(where, ": invalid share: ", std::string(share.status().message())));
    if (share->key != key) return absl::InternalError(absl::StrCat(where, ": answered for another key, ", Describe(share->key)));
    return share;
  }

 private:
  // Takes away what has no key. Its failure is no failure of the list: the next one tries again.
  void Sweep(Deadline deadline) {
    if (!sweeps_) return;
    CallRecord record(deadline, limits_);
    const absl::Status status = Call(Function::kSweep, "sweep", "", record);
    if (absl::IsUnimplemented(status)) {
      sweeps_ = false;
    } else if (!status.ok()) {
      LogWarning("a backend could not take away what it had left", {{"backend", name_}, {"why", std::string(status.message())}});
    }
  }

  std::string Where(std::string_view function) const { return absl::StrCat("backend ", name_, ", ", std::string(function)); }
  std::string Where(std::string_view function, const ShareKey& key) const { return absl::StrCat(Where(function), ", ", Describe(key)); }

  absl::Status Call(Function function, std::string_view name, const std::string& argument, CallRecord& record) {
    if (Passed(record.deadline)) return absl::DeadlineExceededError(absl::StrCat(Where(name), ": no time is left for this call, which was not made; retry"));
    return Annotate(instance_->Call(function, argument, record), Where(name));
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
      outcome.status = absl::InternalError(
          absl::StrCat(Where("prepare", outcome.key), ": said OK without a valid share", answers.violation.empty() ? "" : "; ", answers.violation));
      return;
    }
    outcome.share = *share->second;
  }

  std::atomic<bool> sweeps_ = true;  // until it says that it cannot
  const std::string name_;
  const PayloadLimits limits_;
  const std::unique_ptr<Instance> instance_;
};

}  // namespace

std::shared_ptr<Backend> MakeCheckedBackend(std::string name, PayloadLimits limits, std::unique_ptr<Instance> instance) {
  return std::make_shared<CheckedBackend>(std::move(name), limits, std::move(instance));
}

}  // namespace tranche::backend
