// What the benchmark measures and in which order main.cc asks for it. Times are wall-clock microseconds, measured where a caller would
// wait.
//
// The floors (one empty call, one fsync, one commit) are taken in turn with the prepares that they are compared with, on the same file
// system: a ratio between them says what the host adds, whatever else the machine does meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
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
  std::optional<double> bound = {};  // of the value, which must not be above it

  bool Keeps() const { return !bound.has_value() || value <= *bound; }
};

using Microseconds = std::chrono::duration<double, std::micro>;

inline Microseconds Since(std::chrono::steady_clock::time_point start) { return std::chrono::steady_clock::now() - start; }

Measurement Series(std::string name, std::vector<Microseconds> samples);  // not empty
// One figure a round: value and p50 are the median round, p99 is the worst. Not empty.
Measurement Rounds(std::string name, std::string unit, std::vector<double> values);
Measurement Single(std::string name, std::string unit, double value, std::int64_t n = 1);

// Runs `operation` `count` times one after the other; the first failure ends it.
absl::StatusOr<std::vector<Microseconds>> Repeat(int count, const std::function<absl::Status(int)>& operation);

struct Sizes {
  int claims = 256;   // per number of calls in flight
  int shares = 1000;  // prepared at once on one parent
  int drained = 300;  // of these, in one call
};

struct NeighbourOptions {
  int rounds = 5;
  int callers = 1;                  // of the faulty one at a time; the rate is the same
  std::vector<std::string> faults;  // of moody_backend; all of them when empty
};
const std::vector<std::string>& NeighbourFaults();

// Each returns what it measured. `directory` lies on the file system in question.
// The floors and the host: starts tranched in the network namespace of the calling thread, which has the uplink; it has ended when this
// returns.
absl::StatusOr<std::vector<Measurement>> MeasureHost(const std::string& directory, const Sizes& sizes);
// The backend alone, and its kernel operations, in the same namespace once tranched is gone.
absl::StatusOr<std::vector<Measurement>> MeasureBackend(const std::string& directory, const Sizes& sizes);
absl::StatusOr<std::vector<Measurement>> MeasureKernel(const Sizes& sizes);

// What a faulty backend costs the one beside it: a tranched with null_backend and moody_backend, each in a process of its own. For each
// fault the ratios `neighbour_p50_<fault>` and `neighbour_p99_<fault>` of null_backend's prepares while every prepare of the other has the fault,
// over those right before, while it behaves under the same rate of calls. A series over the rounds.
absl::StatusOr<std::vector<Measurement>> MeasureNeighbour(const std::string& directory, const NeighbourOptions& options);

// False when prepare_1 took less than the two commits inside it: the machine changed during the run and the ratio says nothing.
bool IsConsistent(const std::vector<Measurement>& report);
// prepare_1 over twice what it cannot avoid: one call, two commits; plus the backend's own time. NotFound names what is missing.
absl::StatusOr<Measurement> PrepareBoundRatio(const std::vector<Measurement>& report);

std::string ToJson(const std::vector<Measurement>& report);
std::string ToTable(const std::vector<Measurement>& report);

}  // namespace tranche::bench
