#include "proof/sampler.h"

#include <algorithm>
#include <utility>

#include <pthread.h>
#include <sched.h>

namespace tranche::proof {
namespace {

double Seconds(SteadyTime::duration duration) { return std::chrono::duration<double>(duration).count(); }

// A reading during which this thread lost the processor has no time stamp worth the name.
constexpr std::chrono::milliseconds kMaxUncertainty(1);

// A late sample only blurs the windows, so a refusal (no CAP_SYS_NICE) is ignored.
void PreferThisThread() {
  sched_param parameter{};
  parameter.sched_priority = 1;
  static_cast<void>(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter));
}

}  // namespace

double BytesAtTime(const std::vector<BytesAt>& series, SteadyTime at) {
  if (series.empty()) return 0;
  const auto after = std::lower_bound(series.begin(), series.end(), at, [](const BytesAt& item, SteadyTime time) { return item.at < time; });
  if (after == series.begin()) return series.front().bytes;
  if (after == series.end()) return series.back().bytes;
  const BytesAt& left = *(after - 1);
  const double whole = Seconds(after->at - left.at);
  if (whole <= 0) return after->bytes;
  return left.bytes + (after->bytes - left.bytes) * Seconds(at - left.at) / whole;
}

double MeanBitsPerSecond(const std::vector<BytesAt>& series, SteadyTime from, SteadyTime to) {
  const double seconds = Seconds(to - from);
  if (seconds <= 0) return 0;
  return (BytesAtTime(series, to) - BytesAtTime(series, from)) * 8 / seconds;
}

double WorstBitsPerSecond(const std::vector<BytesAt>& series, SteadyTime from, SteadyTime to, std::chrono::milliseconds window) {
  double worst = 0;
  const auto consider = [&](SteadyTime begin) {
    if (begin < from || begin + window > to) return;
    worst = std::max(worst, MeanBitsPerSecond(series, begin, begin + window));
  };
  for (const BytesAt& item : series) {
    consider(item.at);
    consider(item.at - window);
  }
  return worst;
}

Sampler::Sampler(CounterReader reader, std::chrono::milliseconds interval) : reader_(std::move(reader)), interval_(interval), thread_([this] { Loop(); }) {}

Sampler::~Sampler() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Sampler::Loop() {
  PreferThisThread();
  for (SteadyTime next = std::chrono::steady_clock::now(); !stop_; next = std::max(next + interval_, std::chrono::steady_clock::now())) {
    std::this_thread::sleep_until(next);
    absl::StatusOr<Sample> sample = reader_.Read();
    if (!sample.ok()) {
      status_ = sample.status();
      return;
    }
    if (sample->uncertainty <= kMaxUncertainty) samples_.push_back(*std::move(sample));
  }
}

absl::StatusOr<std::vector<Sample>> Sampler::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  if (!status_.ok()) return status_;
  return std::move(samples_);
}

std::vector<BytesAt> SeriesOf(const std::vector<Sample>& samples, std::size_t source) {
  std::vector<BytesAt> series;
  series.reserve(samples.size());
  for (const Sample& sample : samples) series.push_back({sample.at, static_cast<double>(sample.values.at(source).bytes)});
  return series;
}

}  // namespace tranche::proof
