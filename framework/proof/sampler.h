// Reads counters every few milliseconds in a thread of its own, with its own time stamps, and the arithmetic over such a series.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>

#include "proof/counters.h"

namespace tranche::proof {

using SteadyTime = std::chrono::steady_clock::time_point;

// Bytes of one source at one moment.
struct BytesAt {
  SteadyTime at{};
  double bytes = 0;
};

// Bytes at `at`, interpolated between the neighbouring samples; the ends outside the series.
double BytesAtTime(const std::vector<BytesAt>& series, SteadyTime at);
// Mean bits per second between two moments. 0 for an empty interval.
double MeanBitsPerSecond(const std::vector<BytesAt>& series, SteadyTime from, SteadyTime to);
// The highest mean over any `window` that begins or ends at a sample's own time stamp and lies within [from, to].
double WorstBitsPerSecond(const std::vector<BytesAt>& series, SteadyTime from, SteadyTime to, std::chrono::milliseconds window);

class Sampler {
 public:
  Sampler(CounterReader reader, std::chrono::milliseconds interval);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Ends the thread. The first error of a reading ends the series and is returned here.
  absl::StatusOr<std::vector<Sample>> Stop();

 private:
  void Loop();
  CounterReader reader_;
  std::chrono::milliseconds interval_;
  std::atomic<bool> stop_{false};
  absl::Status status_;  // of the thread, read after the join
  std::vector<Sample> samples_;
  std::thread thread_;
};

std::vector<BytesAt> SeriesOf(const std::vector<Sample>& samples, std::size_t source);

}  // namespace tranche::proof
