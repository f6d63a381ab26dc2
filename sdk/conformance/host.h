// The host that a backend meets in the kit: every service records, and notes what breaks a rule.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tranche/backend.h>

namespace tranche::conform {

constexpr std::size_t kMaxPayload = 64 * 1024, kMaxCall = 1024 * 1024, kMaxState = 4096;

class Host;

// One call, as the backend's tranche_call. Records are kept for ever, so that a late use is seen and not a crash.
struct Record {
  struct Result {
    std::string key, message;
    tranche_code code = TRANCHE_OK;
  };
  Host* host = nullptr;
  std::string function;
  std::thread::id thread = std::this_thread::get_id();
  std::chrono::steady_clock::time_point deadline;
  std::atomic<bool> closed = false;
  std::vector<std::string> devices, shares;
  std::vector<Result> results;
  tranche_code failed = TRANCHE_OK;
  std::string message;
  std::size_t bytes = 0;
  bool dropped = false;  // a payload was refused: what follows from its absence is no finding
};

class Host {
 public:
  Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const tranche_host_api* table() const { return &table_; }
  Record& Open(std::string function, std::chrono::steady_clock::time_point deadline);
  static tranche_call* Handle(Record& record) { return reinterpret_cast<tranche_call*>(&record); }
  // destroy has returned: from here every service call is a finding.
  void End() { ended_ = true; }

  void Problem(std::string_view rule, const std::string& detail);
  std::vector<std::pair<std::string, std::string>> TakeProblems();
  std::vector<std::string> TakeVerdicts();

 private:
  static void Log(void* host, std::uint32_t level, tranche_str message);
  static std::int64_t Now(void* host);
  static void ReportHealth(void* host, tranche_str text);
  static void DevicesChanged(void* host);
  static void ShareLost(void* host, tranche_str key);
  static void RecordMetric(void* host, tranche_str name, std::int64_t value);
  static tranche_code Fail(tranche_call* call, tranche_code code, tranche_str message);
  static std::uint32_t Cancelled(tranche_call* call);
  static void AddDevice(tranche_call* call, tranche_str text);
  static void AddShare(tranche_call* call, tranche_str text);
  static void AddResult(tranche_call* call, tranche_str key, tranche_code code, tranche_str message);

  bool Alive(std::string_view service);
  bool Admit(Record& record, std::string_view sink, bool allowed);
  bool TakeText(std::string_view where, tranche_str text, std::string& copy, Record* record);

  tranche_host_api table_{};
  std::atomic<bool> ended_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::pair<std::string, std::string>> problems_;
  std::vector<std::string> verdicts_;
};

}  // namespace tranche::conform
