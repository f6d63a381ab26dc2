// The host's side of the ABI: the service table that a backend calls, and what one call collects. Nothing here throws into a backend.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <absl/status/status.h>

#include <tranche/backend.h>

#include "backend/backend.h"
#include "backend/in_process.h"
#include "backend/runner_output.h"

namespace tranche::backend {

// Code of the ABI to status code; what is not canonical is INTERNAL.
absl::StatusCode ToStatusCode(tranche_code code);

// What a function returned, as a status: with the reason that fail() recorded for this very code.
absl::Status StatusOfCall(tranche_code code, tranche_code failed, const std::string& message);
absl::Status StatusOfException(std::string_view what);

// Everything that a backend pushed in one call, as texts: read after the call returned.
struct CallRecord {
  CallRecord(Deadline call_deadline, PayloadLimits payload_limits) : deadline(call_deadline), limits(payload_limits) {}

  struct Result {
    std::string key;
    tranche_code code = TRANCHE_OK;
    std::string message;
  };

  const Deadline deadline;
  const PayloadLimits limits;
  const std::thread::id thread = std::this_thread::get_id();
  std::vector<std::string> devices, shares;
  std::vector<Result> results;
  tranche_code failed = TRANCHE_OK;
  std::string message;    // what fail() said
  std::string violation;  // the first rule that the backend broke in this call, "" for none
  std::size_t bytes = 0;

  // Records a violation unless one is there.
  void Violate(std::string_view what) noexcept;
};

// One per instance; its table must outlive the instance.
class Services {
 public:
  Services(std::string backend_name, Events events, PayloadLimits limits);
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  const tranche_host_api* table() const { return &table_; }

  // What a backend says outside calls, from wherever it runs: judged, then logged or handed to Events. Any thread.
  void OnLog(std::uint32_t level, std::string_view message) const;
  void OnHealth(std::string_view json) const;
  void OnDevicesChanged() const;
  void OnShareLost(std::string_view key_json) const;
  void OnMetric(std::string_view name, std::int64_t value) const;
  std::map<std::string, std::int64_t> Metrics() const;
  void OnAvailability(const absl::Status& status) const;
  // Fails the call because the library does not have the function.
  static tranche_code Unimplemented(tranche_call* call) noexcept;
  static tranche_call* Handle(CallRecord& record) { return reinterpret_cast<tranche_call*>(&record); }

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

  // Not more often than a log bears: a backend may break a rule in a loop.
  void Complain(std::string_view what) const;

  const std::string name_;
  const Events events_;
  const PayloadLimits limits_;
  tranche_host_api table_{};
  mutable std::mutex complaints_mutex_;
  mutable Bucket complaints_;
  mutable std::mutex metrics_mutex_;
  mutable std::map<std::string, std::int64_t> metrics_;
};

}  // namespace tranche::backend
