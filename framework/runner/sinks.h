// The host's side of the ABI inside tranche-runner: the services that a backend calls, and what one call collects. Bounded, and judged by nobody here:
// everything goes to tranched as it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include <tranche/backend.h>

#include "runner/wire.h"

namespace tranche::runner {

struct Limits {
  std::uint64_t device_bytes = 0, call_bytes = 0;
};

// One call in progress. Sinks are taken from its own thread only.
struct CallState {
  CallState(std::int64_t deadline, Limits call_limits) : deadline_ns(deadline), limits(call_limits) {}
  const std::int64_t deadline_ns;  // CLOCK_MONOTONIC
  const Limits limits;
  const std::thread::id thread = std::this_thread::get_id();
  std::atomic<bool> cancelled = false;
  std::uint64_t bytes = 0, message_bytes = 0;
  Done done;

  tranche_call* handle() { return reinterpret_cast<tranche_call*>(this); }
};

class Sinks {
 public:
  // `send` is called from any thread, also at the same time.
  Sinks(Limits limits, std::function<void(FrameType, std::string payload)> send);
  Sinks(const Sinks&) = delete;
  Sinks& operator=(const Sinks&) = delete;
  const tranche_host_api* table() const { return &table_; }

 private:
  static void LogLine(void* host, std::uint32_t level, tranche_str message) noexcept;
  static std::int64_t Now(void* host) noexcept;
  static void ReportHealth(void* host, tranche_str text) noexcept;
  static void DevicesChanged(void* host) noexcept;
  static void ShareLost(void* host, tranche_str key) noexcept;
  static tranche_code Fail(tranche_call* call, tranche_code code, tranche_str message) noexcept;
  static std::uint32_t Cancelled(tranche_call* call) noexcept;
  static void AddDevice(tranche_call* call, tranche_str text) noexcept;
  static void AddShare(tranche_call* call, tranche_str text) noexcept;
  static void AddResult(tranche_call* call, tranche_str key, tranche_code code, tranche_str message) noexcept;
  static void RecordMetric(void* host, tranche_str name, std::int64_t value) noexcept;
  void SendText(FrameType type, const char* what, tranche_str text) const;

  const Limits limits_;
  const std::function<void(FrameType, std::string)> send_;
  tranche_host_api table_{};
};

}  // namespace tranche::runner
