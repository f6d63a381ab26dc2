#include "conformance/host.h"

#include "conformance/schema.h"
#include "conformance/text.h"

namespace tranche::conform {
namespace {

Host& Of(void* host) { return *static_cast<Host*>(host); }
Record& Of(tranche_call* call) { return *reinterpret_cast<Record*>(call); }

}  // namespace

Host::Host() {
  table_.head = {static_cast<std::uint32_t>(sizeof table_), TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  table_.host = this;
  table_.log = &Log;
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

Record& Host::Open(std::string function, std::chrono::steady_clock::time_point deadline) {
  auto record = std::make_unique<Record>();
  record->host = this;
  record->function = std::move(function);
  record->deadline = deadline;
  const std::lock_guard lock(mutex_);
  records_.push_back(std::move(record));
  return *records_.back();
}

void Host::Problem(std::string_view rule, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  if (problems_.size() < 1000) problems_.emplace_back(std::string(rule), detail);
}

std::vector<std::pair<std::string, std::string>> Host::TakeProblems() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

std::vector<std::string> Host::TakeVerdicts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(verdicts_, {});
}

bool Host::Alive(std::string_view service) {
  if (!ended_) return true;
  Problem("TB-046", std::string(service) + " was called after destroy had returned");
  return false;
}

// A payload or text of the backend: real, within bounds, UTF-8.
bool Host::TakeText(std::string_view where, tranche_str text, std::string& copy, Record* record) {
  const std::string place(where);
  std::string rule, why;
  if (text.data == nullptr && text.size != 0) {
    rule = "TB-047", why = place + " got a null string of " + std::to_string(text.size) + " bytes";
  } else if (text.size > kMaxPayload) {
    rule = "TB-049", why = place + " got " + std::to_string(text.size) + " bytes, more than 65536";
  } else if (record != nullptr && record->bytes + text.size > kMaxCall) {
    rule = "TB-049", why = record->function + " pushed more than 1 MiB";
  } else {
    if (text.data != nullptr) copy.assign(text.data, static_cast<std::size_t>(text.size));
    if (record != nullptr) record->bytes += copy.size();
    if (IsUtf8(copy)) return true;
    rule = "TB-047", why = place + " got text that is not UTF-8";
  }
  Problem(rule, why);
  if (record != nullptr) record->dropped = true;
  return false;
}

bool Host::Admit(Record& record, std::string_view sink, bool allowed) {
  const std::string what = std::string(sink) + " of " + record.function;
  if (!Alive(sink)) return false;
  if (record.closed) {
    Problem("TB-045", what + " was called after the call had returned");
    return false;
  }
  if (record.thread != std::this_thread::get_id()) {
    Problem("TB-045", what + " was called on another thread");
    return false;
  }
  if (!allowed) Problem("TB-045", std::string(sink) + " was called in " + record.function);
  return allowed;
}

void Host::Log(void* host, std::uint32_t level, tranche_str message) {
  if (!Of(host).Alive("log")) return;
  std::string text;
  Of(host).TakeText("log", message, text, nullptr);
  static_cast<void>(level);
}

std::int64_t Host::Now(void* host) {
  Of(host).Alive("now");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Host::ReportHealth(void* host, tranche_str text) {
  Host& self = Of(host);
  std::string verdict;
  if (!self.Alive("report_health") || !self.TakeText("report_health", text, verdict, nullptr)) return;
  if (const std::string why = WhyInvalid("health", verdict); !why.empty()) return self.Problem("TB-048", "report_health: " + why);
  const std::lock_guard lock(self.mutex_);
  self.verdicts_.push_back(std::move(verdict));
}

void Host::DevicesChanged(void* host) { Of(host).Alive("devices_changed"); }

void Host::ShareLost(void* host, tranche_str key) {
  Host& self = Of(host);
  std::string text;
  if (!self.Alive("share_lost") || !self.TakeText("share_lost", key, text, nullptr)) return;
  if (const std::string why = WhyInvalid("key", text); !why.empty()) self.Problem("TB-048", "share_lost: " + why);
}

void Host::RecordMetric(void* host, tranche_str name, std::int64_t) {
  Host& self = Of(host);
  std::string text;
  if (!self.Alive("record_metric") || !self.TakeText("record_metric", name, text, nullptr)) return;
  const bool valid = !text.empty() && text.size() <= 64 && text.front() >= 'a' && text.front() <= 'z' &&
                     text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (!valid) self.Problem("TB-077", "record_metric got the name \"" + text + "\"");
}

tranche_code Host::Fail(tranche_call* call, tranche_code code, tranche_str message) {
  Record& record = Of(call);
  if (!record.host->Admit(record, "fail", true)) return code;
  record.failed = code;
  record.message.clear();
  record.host->TakeText("fail", message, record.message, nullptr);
  if (code < TRANCHE_OK || code > TRANCHE_UNAUTHENTICATED) record.host->Problem("TB-040", "fail got code " + std::to_string(code));
  return code;
}

std::uint32_t Host::Cancelled(tranche_call* call) {
  Record& record = Of(call);
  record.host->Alive("cancelled");
  return std::chrono::steady_clock::now() >= record.deadline ? 1u : 0u;
}

void Host::AddDevice(tranche_call* call, tranche_str text) {
  Record& record = Of(call);
  std::string copy;
  if (!record.host->Admit(record, "add_device", record.function == "discover")) return;
  if (record.host->TakeText("add_device", text, copy, &record)) record.devices.push_back(std::move(copy));
}

void Host::AddShare(tranche_call* call, tranche_str text) {
  Record& record = Of(call);
  std::string copy;
  const bool allowed = record.function == "prepare" || record.function == "list_prepared" || record.function == "verify";
  if (!record.host->Admit(record, "add_share", allowed)) return;
  if (record.host->TakeText("add_share", text, copy, &record)) record.shares.push_back(std::move(copy));
}

void Host::AddResult(tranche_call* call, tranche_str key, tranche_code code, tranche_str message) {
  Record& record = Of(call);
  Record::Result result;
  result.code = code;
  if (!record.host->Admit(record, "add_result", record.function == "prepare" || record.function == "unprepare")) return;
  record.host->TakeText("add_result", message, result.message, nullptr);
  if (code < TRANCHE_OK || code > TRANCHE_UNAUTHENTICATED) record.host->Problem("TB-040", "add_result got code " + std::to_string(code));
  if (record.host->TakeText("add_result", key, result.key, &record)) record.results.push_back(std::move(result));
}

}  // namespace tranche::conform
