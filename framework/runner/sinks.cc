#include "runner/sinks.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tranche::runner {
namespace {

constexpr std::size_t kMaxMessageBytes = 4096;
constexpr std::size_t kMaxEntries = 32 * 1024;

bool IsText(tranche_str text) { return text.data != nullptr || text.size == 0; }
std::string Copy(tranche_str text, std::uint64_t limit) {
  return text.data == nullptr ? std::string() : std::string(text.data, static_cast<std::size_t>(std::min(text.size, limit)));
}
CallState& State(tranche_call* call) { return *reinterpret_cast<CallState*>(call); }

void Violate(CallState& state, std::string what) {
  if (state.done.violation.empty()) state.done.violation = std::move(what);
}

// What was pushed is lost: the call must not look complete.
void OutOfMemory(tranche_call* call) { Violate(State(call), "out of memory"); }  // fits into a string without memory

// What a sink may record: the call's own thread, a real string, within the bounds.
bool Admit(CallState& state, tranche_str text, const std::string& what, std::size_t entries) {
  if (state.thread != std::this_thread::get_id()) return false;
  if (!IsText(text)) {
    Violate(state, what + " got a null string with a length");
  } else if (text.size > state.limits.device_bytes) {
    Violate(state, what + " got " + std::to_string(text.size) + " bytes; the limit of one item is " + std::to_string(state.limits.device_bytes));
  } else if (text.size > state.limits.call_bytes - state.bytes) {
    Violate(state, what + ": the call pushed more than " + std::to_string(state.limits.call_bytes) + " bytes");
  } else if (entries >= kMaxEntries) {
    Violate(state, what + ": the call pushed more than " + std::to_string(kMaxEntries) + " items");
  } else {
    state.bytes += text.size;
    return true;
  }
  return false;
}

}  // namespace

Sinks::Sinks(Limits limits, std::function<void(FrameType, std::string)> send) : limits_(limits), send_(std::move(send)) {
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

// A text that is no text or too long is reported as a log line of the host's own.
void Sinks::SendText(FrameType type, const char* what, tranche_str text) const {
  if (IsText(text) && text.size <= limits_.device_bytes) return send_(type, Copy(text, text.size));
  send_(FrameType::kLog, Encode(Log{TRANCHE_LOG_WARNING, std::string(what) + " got an invalid or oversized string"}));
}

void Sinks::LogLine(void* host, std::uint32_t level, tranche_str message) noexcept {
  try {
    const auto& self = *static_cast<const Sinks*>(host);
    if (!IsText(message)) return self.SendText(FrameType::kLog, "log", message);
    self.send_(FrameType::kLog, Encode(Log{level, Copy(message, kMaxMessageBytes)}));
  } catch (...) {}
}

std::int64_t Sinks::Now(void*) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Sinks::ReportHealth(void* host, tranche_str text) noexcept {
  try {
    static_cast<const Sinks*>(host)->SendText(FrameType::kHealth, "report_health", text);
  } catch (...) {}
}

void Sinks::DevicesChanged(void* host) noexcept {
  try {
    static_cast<const Sinks*>(host)->send_(FrameType::kDevicesChanged, "");
  } catch (...) {}
}

void Sinks::ShareLost(void* host, tranche_str key) noexcept {
  try {
    static_cast<const Sinks*>(host)->SendText(FrameType::kShareLost, "share_lost", key);
  } catch (...) {}
}

void Sinks::RecordMetric(void* host, tranche_str name, std::int64_t value) noexcept {
  try {
    const auto& self = *static_cast<const Sinks*>(host);
    if (!IsText(name) || name.size > self.limits_.device_bytes) return self.SendText(FrameType::kLog, "record_metric", name);
    self.send_(FrameType::kMetric, Encode(Metric{Copy(name, name.size), value}));
  } catch (...) {}
}

tranche_code Sinks::Fail(tranche_call* call, tranche_code code, tranche_str message) noexcept {
  try {
    CallState& state = State(call);
    if (state.thread != std::this_thread::get_id()) return code;
    state.done.failed = code;
    state.done.message = IsText(message) ? Copy(message, kMaxMessageBytes) : "(a null string with a length)";
  } catch (...) {}
  return code;
}

std::uint32_t Sinks::Cancelled(tranche_call* call) noexcept {
  const CallState& state = State(call);
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return state.cancelled || now >= state.deadline_ns ? 1u : 0u;
}

void Sinks::AddDevice(tranche_call* call, tranche_str text) noexcept {
  try {
    CallState& state = State(call);
    if (Admit(state, text, "add_device", state.done.devices.size())) state.done.devices.push_back(Copy(text, text.size));
  } catch (...) { OutOfMemory(call); }
}

void Sinks::AddShare(tranche_call* call, tranche_str text) noexcept {
  try {
    CallState& state = State(call);
    if (Admit(state, text, "add_share", state.done.shares.size())) state.done.shares.push_back(Copy(text, text.size));
  } catch (...) { OutOfMemory(call); }
}

void Sinks::AddResult(tranche_call* call, tranche_str key, tranche_code code, tranche_str message) noexcept {
  try {
    CallState& state = State(call);
    if (!Admit(state, key, "add_result", state.done.results.size())) return;
    const std::uint64_t left = state.limits.call_bytes - state.message_bytes;
    std::string text = IsText(message) ? Copy(message, std::min<std::uint64_t>(kMaxMessageBytes, left)) : std::string();
    state.message_bytes += text.size();
    state.done.results.push_back({Copy(key, key.size), code, std::move(text)});
  } catch (...) { OutOfMemory(call); }
}

}  // namespace tranche::runner
