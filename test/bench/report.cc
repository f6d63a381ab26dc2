#include <algorithm>
#include <cmath>
#include <cstdio>

#include <boost/json.hpp>

#include "base/text.h"
#include "bench/bench.h"

namespace tranche::bench {
namespace {

namespace json = boost::json;

// The smallest sample that `share` of all samples do not exceed.
double Percentile(const std::vector<Microseconds>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1].count();
}

double Rounded(double value) { return std::round(value * 1000) / 1000; }

absl::StatusOr<double> MedianOf(const std::vector<Measurement>& report, const std::string& name) {
  const auto found = std::find_if(report.begin(), report.end(), [&](const Measurement& line) { return line.name == name; });
  if (found == report.end()) return absl::NotFoundError(Cat("the bound of prepare needs ", name, ", which was not measured"));
  return found->p50;
}

}  // namespace

Measurement Series(std::string name, std::vector<Microseconds> samples) {
  std::sort(samples.begin(), samples.end());
  const double median = Percentile(samples, 0.5);
  return {std::move(name), "us", median, median, Percentile(samples, 0.99), static_cast<std::int64_t>(samples.size())};
}

Measurement Rounds(std::string name, std::string unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  const double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
  return {std::move(name), std::move(unit), median, median, values.back(), static_cast<std::int64_t>(count)};
}

Measurement Single(std::string name, std::string unit, double value, std::int64_t n) { return {std::move(name), std::move(unit), value, value, value, n}; }

absl::StatusOr<std::vector<Microseconds>> Repeat(int count, const std::function<absl::Status(int)>& operation) {
  std::vector<Microseconds> samples;
  samples.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (absl::Status status = operation(i); !status.ok()) return status;
    samples.push_back(Since(start));
  }
  return samples;
}

bool IsConsistent(const std::vector<Measurement>& report) {
  const absl::StatusOr<double> prepare = MedianOf(report, "prepare_1"), commit = MedianOf(report, "sqlite_commit");
  return prepare.ok() && commit.ok() && *prepare >= 2 * *commit;
}

absl::StatusOr<Measurement> PrepareBoundRatio(const std::vector<Measurement>& report) {
  std::vector<double> medians;
  for (const char* name : {"prepare_1", "rpc_echo", "sqlite_commit", "backend_prepare_1"}) {
    const absl::StatusOr<double> median = MedianOf(report, name);
    if (!median.ok()) return median.status();
    medians.push_back(*median);
  }
  const double bound = 2 * (medians[1] + 2 * medians[2]) + medians[3];
  Measurement ratio = Single("prepare_bound_ratio", "ratio", medians[0] / bound);
  ratio.bound = 1;
  return ratio;
}

std::string ToJson(const std::vector<Measurement>& report) {
  std::string text = "[\n";
  for (const Measurement& line : report) {
    json::object object{{"name", line.name},        {"unit", line.unit},        {"value", Rounded(line.value)},
                        {"p50", Rounded(line.p50)}, {"p99", Rounded(line.p99)}, {"n", line.n}};
    if (line.bound.has_value()) {
      object["bound"] = *line.bound;
      object["ok"] = line.Keeps();
    }
    Append(text, "  ", json::serialize(object), &line == &report.back() ? "\n" : ",\n");
  }
  return text + "]\n";
}

std::string ToTable(const std::vector<Measurement>& report) {
  std::string text;
  char row[160];
  std::snprintf(row, sizeof row, "%-28s %14s %14s %14s %8s  %-6s %s\n", "name", "value", "p50", "p99", "n", "unit", "bound");
  text += row;
  for (const Measurement& line : report) {
    std::snprintf(row, sizeof row, "%-28s %14.3f %14.3f %14.3f %8lld  %s", line.name.c_str(), line.value, line.p50, line.p99, static_cast<long long>(line.n),
                  line.unit.c_str());
    text += row;
    if (line.bound.has_value()) {
      std::snprintf(row, sizeof row, "%*s %g %s", std::max(0, 6 - static_cast<int>(line.unit.size())), "", *line.bound, line.Keeps() ? "ok" : "MISSED");
      text += row;
    }
    text += '\n';
  }
  return text;
}

}  // namespace tranche::bench
