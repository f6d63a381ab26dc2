// What the benchmark measures and in which order main.cc asks for it. Times are wall-clock microseconds, measured where a caller would
// wait.
//
// The floors (one empty call, one fsync, one commit) are taken in turn with the prepares that they are compared with, on the same file
// system: a ratio between them says what the host adds, whatever else the machine does meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche::bench {

// One line of the report. `value` is the median for a series and the figure itself where there is one; then p50 and p99 equal it.
struct Measurement {
  std::string name, unit;
  double value = 0, p50 = 0, p99 = 0;
  std::int64_t n = 0;
};

using Microseconds = std::chrono::duration<double, std::micro>;

inline Microseconds Since(std::chrono::steady_clock::time_point start) { return std::chrono::steady_clock::now() - start; }

Measurement Series(std::string name, std::vector<Microseconds> samples);  // not empty
Measurement Single(std::string name, std::string unit, double value, std::int64_t n = 1);

// Runs `operation` `count` times one after the other; the first failure ends it.
absl::StatusOr<std::vector<Microseconds>> Repeat(int count, const std::function<absl::Status(int)>& operation);

struct Sizes {
  int claims = 256;   // per number of calls in flight
  int shares = 1000;  // prepared at once on one parent
  int drained = 300;  // of these, in one call
};

// Each returns what it measured. `directory` lies on the file system in question.
// The floors and the host: starts tranched in the network namespace of the calling thread, which has the uplink; it has ended when this
// returns.
absl::StatusOr<std::vector<Measurement>> MeasureHost(const std::string& directory, const Sizes& sizes);
// The backend alone, and its kernel operations, in the same namespace once tranched is gone.
absl::StatusOr<std::vector<Measurement>> MeasureBackend(const std::string& directory, const Sizes& sizes);
absl::StatusOr<std::vector<Measurement>> MeasureKernel(const Sizes& sizes);

// False when prepare_1 took less than the two commits inside it: the machine changed during the run and the ratio says nothing.
bool IsConsistent(const std::vector<Measurement>& report);
// prepare_1 over twice what it cannot avoid: one call, two commits; plus the backend's own time. NotFound names what is missing.
absl::StatusOr<Measurement> PrepareBoundRatio(const std::vector<Measurement>& report);

std::string ToJson(const std::vector<Measurement>& report);
std::string ToTable(const std::vector<Measurement>& report);

}  // namespace tranche::bench
