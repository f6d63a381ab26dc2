// What a backend prints or logs from its own process, line by line into the host's log, bounded: a line is cut, a flood is counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tranche::backend {

// So many at once, so many a second on average; a log's, if not said otherwise.
class Bucket {
 public:
  explicit Bucket(double burst = 200, double per_second = 50) : burst_(burst), per_second_(per_second), tokens_(burst) {}
  bool Take();
  std::uint64_t TakeDropped() { return std::exchange(dropped_, 0); }

 private:
  const double burst_, per_second_;
  double tokens_;
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
