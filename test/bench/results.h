// Figures of a run: a list of {name, unit, value, p50, p99, n}. `value` is the mean of the samples, or the one figure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tranche::bench {

struct Figure {
  std::string name, unit;
  double value = 0, p50 = 0, p99 = 0;
  std::size_t n = 0;
};

using Clock = std::chrono::steady_clock;
inline double Milliseconds(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

class Results {
 public:
  const Figure& Add(const std::string& name, const std::string& unit, std::vector<double> samples);
  const Figure& AddOne(const std::string& name, const std::string& unit, double value) { return Add(name, unit, {value}); }
  absl::Status Write(const std::string& path) const;

 private:
  std::vector<Figure> figures_;
};

}  // namespace tranche::bench
