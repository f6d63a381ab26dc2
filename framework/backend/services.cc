#include "backend/services.h"

#include <chrono>
#include <utility>

#include <absl/strings/str_cat.h>

#include "backend/payload.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {

constexpr std::size_t kMaxMetrics = 64, kMaxMetricName = 64;

bool IsText(tranche_str text) { return text.data != nullptr || text.size == 0; }
std::string_view View(tranche_str text) { return text.data == nullptr ? std::string_view() : std::string_view(text.data, static_cast<std::size_t>(text.size)); }

// What a sink may record: the call's own thread, a real string, within the bounds.
bool Admit(CallRecord& record, tranche_str text, std::string_view what) {
  if (record.thread != std::this_thread::get_id()) return false;  // another thread must not touch the record at all
  if (!IsText(text)) {
    record.Violate(absl::StrCat(std::string(what), " got a null string with a length"));
    return false;
  }
  if (text.size > record.limits.device_bytes) {
    record.Violate(absl::StrCat(std::string(what), " got ", text.size, " bytes; the limit of one item is ", record.limits.device_bytes));
    return false;
  }
  if (text.size > record.limits.call_bytes - record.bytes) {
    record.Violate(absl::StrCat(std::string(what), ": the call pushed more than ", record.limits.call_bytes, " bytes"));
    return false;
  }
  record.bytes += static_cast<std::size_t>(text.size);
  return true;
}

CallRecord& Record(tranche_call* call) { return *reinterpret_cast<CallRecord*>(call); }

}  // namespace

absl::StatusCode ToStatusCode(tranche_code code) {
  if (code < TRANCHE_OK || code > TRANCHE_UNAUTHENTICATED) return absl::StatusCode::kInternal;
  return static_cast<absl::StatusCode>(code);
}

absl::Status StatusOfCall(tranche_code code, tranche_code failed, const std::string& message) {
  if (code == TRANCHE_OK) return absl::OkStatus();
  const bool explained = failed == code && !message.empty();
  return absl::Status(ToStatusCode(code), explained ? message : absl::StrCat("failed with code ", code, " and gave no reason"));
}

absl::Status StatusOfException(std::string_view what) {
  return absl::InternalError(absl::StrCat("threw an exception through the ABI", what.empty() ? "" : ": ", CleanText(what)));
}

void CallRecord::Violate(std::string_view what) noexcept {
  try {
    if (violation.empty()) violation = what;
  } catch (...) {}
}

Services::Services(std::string backend_name, Events events, PayloadLimits limits)
    : name_(std::move(backend_name)), events_(std::move(events)), limits_(limits) {
  table_.head = {static_cast<std::uint32_t>(sizeof table_), TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  table_.host = this;
  table_.log = &LogLine;
  table_.now = &Now;
  table_.report_health = &ReportHealth;
  table_.devices_changed = &DevicesChanged;
  table_.share_lost = &ShareLost;
  table_.fail = &Fail;
  table_.cancelled = &Cancelled;
  table_.add_device = &AddDevice;
  table_.add_share = &AddShare;
  table_.add_result = &AddResult;
  table_.record_metric = &RecordMetric;
}

void Services::Complain(std::string_view what) const {
  std::uint64_t dropped = 0;
  {
    const std::lock_guard lock(complaints_mutex_);
    if (!complaints_.Take()) return;
    dropped = complaints_.TakeDropped();
  }
  LogWarning("a backend broke a rule of the ABI", {{"backend", name_}, {"what", std::string(what)}, {"dropped", absl::StrCat(dropped)}});
}

void Services::OnLog(std::uint32_t level, std::string_view message) const {
  const LogLevel ours = level == TRANCHE_LOG_DEBUG     ? LogLevel::kDebug
                        : level == TRANCHE_LOG_INFO    ? LogLevel::kInfo
                        : level == TRANCHE_LOG_WARNING ? LogLevel::kWarning
                                                       : LogLevel::kError;
  Log(ours, CleanText(message), {{"backend", name_}});
}

void Services::OnHealth(std::string_view json) const {
  if (const absl::Status status = CheckHealthText(json); !status.ok()) { return Complain(absl::StrCat("report_health: ", std::string(status.message()))); }
  if (events_.health) events_.health(std::string(json));
}

void Services::OnDevicesChanged() const {
  if (events_.devices_changed) events_.devices_changed();
}

void Services::OnShareLost(std::string_view key_json) const {
  absl::StatusOr<ShareKey> key = ReadKey(key_json);
  if (!key.ok()) return Complain(absl::StrCat("share_lost: ", std::string(key.status().message())));
  if (events_.share_lost) events_.share_lost(*key);
}

void Services::OnMetric(std::string_view name, std::int64_t value) const {
  const bool valid = !name.empty() && name.size() <= kMaxMetricName && name.front() >= 'a' && name.front() <= 'z' &&
                     name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  if (!valid) return Complain("record_metric: a name must match [a-z][a-z0-9_]{0,63}");
  const std::lock_guard lock(metrics_mutex_);
  const auto found = metrics_.find(std::string(name));
  if (found != metrics_.end()) {
    found->second = value;
  } else if (metrics_.size() < kMaxMetrics) {
    metrics_.emplace(name, value);
  }
}

std::map<std::string, std::int64_t> Services::Metrics() const {
  const std::lock_guard lock(metrics_mutex_);
  return metrics_;
}

void Services::OnAvailability(const absl::Status& status) const {
  if (events_.availability) events_.availability(status);
}

void Services::LogLine(void* host, std::uint32_t level, tranche_str message) noexcept {
  try {
    const auto& self = *static_cast<const Services*>(host);
    if (!IsText(message)) return self.Complain("log got a null string with a length");
    self.OnLog(level, View(message));
  } catch (...) {}
}

std::int64_t Services::Now(void*) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Services::ReportHealth(void* host, tranche_str text) noexcept {
  try {
    const auto& self = *static_cast<const Services*>(host);
    if (!IsText(text) || text.size > self.limits_.device_bytes) return self.Complain("report_health got an invalid or oversized string");
    self.OnHealth(View(text));
  } catch (...) {}
}

void Services::DevicesChanged(void* host) noexcept {
  try {
    static_cast<const Services*>(host)->OnDevicesChanged();
  } catch (...) {}
}

void Services::ShareLost(void* host, tranche_str text) noexcept {
  try {
    const auto& self = *static_cast<const Services*>(host);
    if (!IsText(text) || text.size > self.limits_.device_bytes) return self.Complain("share_lost got an invalid or oversized string");
    self.OnShareLost(View(text));
  } catch (...) {}
}

void Services::RecordMetric(void* host, tranche_str name, std::int64_t value) noexcept {
  try {
    const auto& self = *static_cast<const Services*>(host);
    if (!IsText(name)) return self.Complain("record_metric got a null string with a length");
    self.OnMetric(View(name), value);
  } catch (...) {}
}

tranche_code Services::Fail(tranche_call* call, tranche_code code, tranche_str message) noexcept {
  try {
    CallRecord& record = Record(call);
    if (record.thread != std::this_thread::get_id()) return code;
    record.failed = code;
    record.message = IsText(message) ? CleanText(View(message)) : "(a null string with a length)";
  } catch (...) {}
  return code;
}

tranche_code Services::Unimplemented(tranche_call* call) noexcept {
  constexpr std::string_view kWhy = "the backend does not have this function";
  return Fail(call, TRANCHE_UNIMPLEMENTED, {kWhy.data(), kWhy.size()});
}

std::uint32_t Services::Cancelled(tranche_call* call) noexcept { return Passed(Record(call).deadline) ? 1u : 0u; }

void Services::AddDevice(tranche_call* call, tranche_str text) noexcept {
  try {
    if (Admit(Record(call), text, "add_device")) Record(call).devices.emplace_back(View(text));
  } catch (...) { Record(call).Violate("out of memory in add_device"); }
}

void Services::AddShare(tranche_call* call, tranche_str text) noexcept {
  try {
    if (Admit(Record(call), text, "add_share")) Record(call).shares.emplace_back(View(text));
  } catch (...) { Record(call).Violate("out of memory in add_share"); }
}

void Services::AddResult(tranche_call* call, tranche_str key, tranche_code code, tranche_str message) noexcept {
  try {
    CallRecord& record = Record(call);
    if (!Admit(record, key, "add_result")) return;
    const std::string text = IsText(message) ? CleanText(View(message)) : std::string();
    record.results.push_back({std::string(View(key)), code, text});
  } catch (...) { Record(call).Violate("out of memory in add_result"); }
}

}  // namespace tranche::backend
