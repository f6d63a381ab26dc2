// What a backend prints or logs from its own process, line by line into the host's log, bounded: a line is cut, a flood is counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tranche::backend {

// So many lines at once, so many a second on average.
class Bucket {
 public:
  bool Take();
  std::uint64_t TakeDropped() { return std::exchange(dropped_, 0); }

 private:
  static constexpr double kBurst = 200, kPerSecond = 50;
  double tokens_ = kBurst;
  std::uint64_t dropped_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class RunnerOutput {
 public:
  explicit RunnerOutput(std::string backend) : backend_(std::move(backend)) {}
  // Reads what is there; false at the end.
  bool Read(int fd);
  void Flush();
  // Whether one more line of log() may go to the host's log.
  bool AdmitLog();

 private:
  void Line(std::string_view line);
  const std::string backend_;
  std::string part_;
  Bucket bucket_;
};

}  // namespace tranche::backend
