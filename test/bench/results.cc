#include "results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <boost/json.hpp>

#include "base/files.h"
#include "model/json.h"

namespace tranche::bench {
namespace {

double Percentile(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

}  // namespace

const Figure& Results::Add(const std::string& name, const std::string& unit, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  const double mean = samples.empty() ? 0 : sum / static_cast<double>(samples.size());
  figures_.push_back({name, unit, mean, Percentile(samples, 0.50), Percentile(samples, 0.99), samples.size()});
  const Figure& figure = figures_.back();
  std::printf("%-44s %10.3f %-5s", name.c_str(), figure.value, unit.c_str());
  if (figure.n > 1) std::printf("  p50 %9.3f  p99 %9.3f  n %zu", figure.p50, figure.p99, figure.n);
  std::printf("\n");
  std::fflush(stdout);
  return figure;
}

absl::Status Results::Write(const std::string& path) const {
  boost::json::array list;
  for (const Figure& figure : figures_) {
    list.push_back(boost::json::object{{"name", figure.name},
                                       {"unit", figure.unit},
                                       {"value", Rounded(figure.value)},
                                       {"p50", Rounded(figure.p50)},
                                       {"p99", Rounded(figure.p99)},
                                       {"n", figure.n}});
  }
  return WriteFileAtomically(path, ToPrettyJson(list), 0644, Durability::kVisible);
}

}  // namespace tranche::bench
