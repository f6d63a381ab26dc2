#include "proof/proof.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "base/status.h"
#include "proof/counters.h"
#include "proof/sampler.h"

namespace tranche::proof {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

absl::StatusOr<CounterSource> SourceOf(const Share& share, Direction direction) {
  const std::optional<CounterSource>& source = direction == Direction::kUp ? share.egress : share.ingress;
  if (source.has_value()) return *source;
  return absl::FailedPreconditionError(
      absl::StrCat("share ", share.name, " names no kernel counter for its ", direction == Direction::kUp ? "egress" : "ingress", ": it cannot be proved"));
}

absl::StatusOr<CounterReader> OpenReader(const Network& network, const std::vector<std::size_t>& shares, Direction direction) {
  std::vector<CounterSource> sources;
  for (const std::size_t index : shares) {
    TRANCHE_ASSIGN_OR_RETURN(CounterSource source, SourceOf(network.shares.at(index), direction));
    sources.push_back(std::move(source));
  }
  return CounterReader::Open(network.host_namespace, std::move(sources));
}

std::vector<Stream> StreamsOf(const Network& network, const std::vector<std::size_t>& shares, Traffic traffic, Direction direction) {
  std::vector<Stream> streams;
  for (const std::size_t index : shares) {
    const Share& share = network.shares.at(index);
    const double offered = static_cast<double>(share.limit_bits_per_second) * kUdpFactor;
    streams.push_back({share.network_namespace, share.address, traffic, direction, static_cast<std::int64_t>(offered)});
  }
  return streams;
}

// The steady window: sleeps it through, runs `during` in it, and watches that traffic flows.
absl::StatusOr<std::pair<SteadyTime, SteadyTime>> PassWindow(TrafficRun& traffic, const PhaseOptions& options) {
  std::this_thread::sleep_for(options.ramp);
  const SteadyTime begin = Clock::now();
  const SteadyTime planned = begin + options.window;
  if (options.during) {
    std::this_thread::sleep_for(options.window / 4);
    TRANCHE_RETURN_IF_ERROR(options.during());
  }
  std::this_thread::sleep_until(planned);
  const SteadyTime end = Clock::now();
  TRANCHE_RETURN_IF_ERROR(traffic.Check());
  return std::make_pair(begin, end);
}

absl::Status CheckMonotonic(const std::vector<Sample>& samples, std::size_t source, const Share& share) {
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (samples[i].values.at(source).bytes < samples[i - 1].values.at(source).bytes) {
      return absl::AbortedError(absl::StrCat("the counters of share ", share.name, " went back: its class or qdisc was made anew during traffic"));
    }
  }
  return absl::OkStatus();
}

Measurement Evaluate(const std::vector<Sample>& samples, std::size_t source, const Share& share, SteadyTime begin, SteadyTime end) {
  const std::vector<BytesAt> series = SeriesOf(samples, source);
  const double limit = static_cast<double>(share.limit_bits_per_second);
  Measurement result;
  result.seconds = std::chrono::duration<double>(end - begin).count();
  result.percent_of_limit = 100 * MeanBitsPerSecond(series, begin, end) / limit;
  result.worst_window_percent = 100 * WorstBitsPerSecond(series, begin, end, kWorstWindow) / limit;
  const Counters& first = samples.front().values.at(source);
  const Counters& last = samples.back().values.at(source);
  result.bytes = last.bytes - first.bytes;
  result.drops = last.drops - first.drops;
  result.overlimits = last.overlimits - first.overlimits;
  for (const Sample& sample : samples) result.backlog_max = std::max(result.backlog_max, sample.values.at(source).backlog);
  return result;
}

// Ends the traffic whatever happens after it began.
class StopTraffic {
 public:
  explicit StopTraffic(TrafficRun& run) : run_(run) {}
  ~StopTraffic() { run_.Stop(); }
  StopTraffic(const StopTraffic&) = delete;
  StopTraffic& operator=(const StopTraffic&) = delete;

 private:
  TrafficRun& run_;
};

std::string Percent(double value) { return absl::StrFormat("%.2f %%", value); }

std::string PhaseText(const Measurement& item) {
  return absl::StrCat(std::string(TrafficName(item.traffic)), " ", std::string(DirectionName(item.direction)), item.together ? " together" : " alone");
}

std::vector<std::size_t> AllShares(const Network& network) {
  std::vector<std::size_t> all(network.shares.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// One thing that Run does.
struct Step {
  std::string text;
  std::vector<std::size_t> shares;
  Traffic traffic = Traffic::kTcp;
  Direction direction = Direction::kUp;
  bool latency = false;
};

std::vector<Step> StepsOf(const Plan& plan) {
  std::vector<Step> steps;
  const std::vector<std::size_t> all = AllShares(plan.network);
  const auto add = [&](const std::string& who, const std::vector<std::size_t>& shares) {
    for (const Traffic traffic : plan.traffics) {
      for (const Direction direction : plan.directions) {
        const std::string kind = absl::StrCat(std::string(TrafficName(traffic)), " ", std::string(DirectionName(direction)));
        steps.push_back({absl::StrCat(who, ", ", kind), shares, traffic, direction, false});
      }
    }
  };
  for (const std::size_t index : all) {
    if (plan.alone) add(plan.network.shares[index].name + " alone", {index});
  }
  if (plan.together && all.size() > 1) add("all together", all);
  for (const std::size_t index : all) {
    if (plan.neighbour_rounds == 0 || all.size() < 2) continue;
    steps.push_back({absl::StrCat("latency of ", plan.network.shares[index].name, " while the others flood"), {index}, {}, {}, true});
  }
  return steps;
}

// Too little everywhere it fails, too much nowhere.
bool OnlyTooLittle(const std::vector<Measurement>& results, const Bounds& bounds) {
  const auto too_much = [&](const Measurement& item) {
    return item.percent_of_limit > bounds.high_percent || item.worst_window_percent > bounds.window_percent;
  };
  const auto too_little = [&](const Measurement& item) { return item.percent_of_limit < bounds.low_percent; };
  return std::none_of(results.begin(), results.end(), too_much) && std::any_of(results.begin(), results.end(), too_little);
}

absl::Status RunStep(const Plan& plan, const Step& step, Proof& proof) {
  if (step.latency) {
    TRANCHE_ASSIGN_OR_RETURN(Neighbour neighbour, MeasureNeighbour(plan.network, step.shares.front(), plan.neighbour_duration, plan.neighbour_rounds));
    proof.neighbours.push_back(std::move(neighbour));
    return absl::OkStatus();
  }
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Measurement> results, MeasurePhase(plan.network, step.shares, step.traffic, step.direction, plan.phase));
  if (plan.repeat_below && OnlyTooLittle(results, plan.bounds)) {
    TRANCHE_ASSIGN_OR_RETURN(results, MeasurePhase(plan.network, step.shares, step.traffic, step.direction, plan.phase));
    for (Measurement& item : results) item.attempt = 2;
  }
  proof.measurements.insert(proof.measurements.end(), results.begin(), results.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> MeasurePhase(const Network& network, const std::vector<std::size_t>& shares, Traffic traffic, Direction direction,
                                                      const PhaseOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(CounterReader reader, OpenReader(network, shares, direction));
  TRANCHE_ASSIGN_OR_RETURN(TrafficRun run, TrafficRun::Start(network.peer, StreamsOf(network, shares, traffic, direction),
                                                             options.ramp + options.window + (options.during ? milliseconds(30'000) : milliseconds(0))));
  const StopTraffic stop(run);
  Sampler sampler(std::move(reader), options.sample_interval);
  TRANCHE_ASSIGN_OR_RETURN(const auto window, PassWindow(run, options));
  std::this_thread::sleep_for(2 * options.sample_interval);  // a sample beyond the end of the window, to interpolate
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<Sample> samples, sampler.Stop());
  if (samples.size() < 2) return absl::UnavailableError("fewer than two samples of the counters were taken; the machine is too busy to measure");
  std::vector<Measurement> results;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const Share& share = network.shares.at(shares[i]);
    TRANCHE_RETURN_IF_ERROR(CheckMonotonic(samples, i, share));
    Measurement result = Evaluate(samples, i, share, window.first, window.second);
    result.share = shares[i];
    result.traffic = traffic;
    result.direction = direction;
    result.together = shares.size() > 1;
    results.push_back(result);
  }
  return results;
}

absl::StatusOr<Neighbour> MeasureNeighbour(const Network& network, std::size_t victim, milliseconds duration, std::size_t rounds) {
  std::vector<std::size_t> others = AllShares(network);
  std::erase(others, victim);
  const Share& share = network.shares.at(victim);
  std::vector<Neighbour> results;
  for (std::size_t round = 0; round < rounds; ++round) {
    Neighbour result{victim, {}, {}, 0, rounds};
    TRANCHE_ASSIGN_OR_RETURN(result.quiet, ProbeLatency(share.network_namespace, network.peer.address, duration));
    TRANCHE_ASSIGN_OR_RETURN(TrafficRun run,
                             TrafficRun::Start(network.peer, StreamsOf(network, others, Traffic::kUdp, Direction::kUp), duration + milliseconds(500)));
    const StopTraffic stop(run);
    std::this_thread::sleep_for(milliseconds(300));
    TRANCHE_ASSIGN_OR_RETURN(result.flooded, ProbeLatency(share.network_namespace, network.peer.address, duration));
    TRANCHE_RETURN_IF_ERROR(run.Check());
    result.shift_ms = result.flooded.p99_ms - result.quiet.p99_ms;
    results.push_back(result);
  }
  if (results.empty()) return absl::InvalidArgumentError("a latency measurement needs at least one round");
  std::sort(results.begin(), results.end(), [](const Neighbour& left, const Neighbour& right) { return left.shift_ms < right.shift_ms; });
  return results[results.size() / 2];
}

std::vector<std::string> CheckMeasurements(const Network& network, const std::vector<Measurement>& measurements, const Bounds& bounds) {
  std::vector<std::string> failures;
  for (const Measurement& item : measurements) {
    const std::string who = absl::StrCat(network.shares.at(item.share).name, ", ", PhaseText(item), ": ");
    if (item.percent_of_limit < bounds.low_percent) {
      failures.push_back(absl::StrCat(who, Percent(item.percent_of_limit), " of the limit, below ", Percent(bounds.low_percent)));
    }
    if (item.percent_of_limit > bounds.high_percent) {
      failures.push_back(absl::StrCat(who, Percent(item.percent_of_limit), " of the limit, above ", Percent(bounds.high_percent)));
    }
    if (item.worst_window_percent > bounds.window_percent) {
      failures.push_back(absl::StrCat(who, "a 100 ms window at ", Percent(item.worst_window_percent), ", above ", Percent(bounds.window_percent)));
    }
    if (item.traffic == Traffic::kUdp && item.drops + item.overlimits == 0) {
      failures.push_back(absl::StrCat(who, "nothing was dropped or held back at 1.3 times the limit: the sender limited itself, so this proves nothing"));
    }
  }
  return failures;
}

std::vector<std::string> CheckNeighbours(const Network& network, const std::vector<Neighbour>& neighbours, const Bounds& bounds,
                                         std::optional<double> unshaped_shift_ms) {
  std::vector<std::string> failures;
  const double allowed = std::max(bounds.shift_ms, unshaped_shift_ms.value_or(0) * bounds.shift_of_unshaped);
  for (const Neighbour& item : neighbours) {
    if (item.shift_ms <= allowed) continue;
    failures.push_back(
        absl::StrFormat("%s: p99 shifts by %.2f ms while the others flood, above %.2f ms", network.shares.at(item.share).name, item.shift_ms, allowed));
  }
  return failures;
}

absl::StatusOr<Proof> Run(const Plan& plan, const ProgressCallback& progress) {
  if (plan.network.shares.empty()) return absl::InvalidArgumentError("there is no share to prove");
  const std::vector<Step> steps = StepsOf(plan);
  std::vector<CounterSource> sources;
  for (const Share& share : plan.network.shares) {
    TRANCHE_ASSIGN_OR_RETURN(CounterSource source, SourceOf(share, Direction::kUp));
    sources.push_back(std::move(source));
  }
  TRANCHE_ASSIGN_OR_RETURN(CounterReader reader, CounterReader::Open(plan.network.host_namespace, std::move(sources)));
  TRANCHE_ASSIGN_OR_RETURN(const std::uint64_t direct_before, reader.DirectPackets());
  Proof proof;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (progress) progress({steps[i].text, i, steps.size()});
    if (absl::Status status = RunStep(plan, steps[i], proof); !status.ok()) return Annotate(status, steps[i].text);
  }
  if (progress) progress({"done", steps.size(), steps.size()});
  TRANCHE_ASSIGN_OR_RETURN(const std::uint64_t direct_after, reader.DirectPackets());
  proof.direct_packets = direct_after - direct_before;
  proof.failures = CheckMeasurements(plan.network, proof.measurements, plan.bounds);
  for (std::string& text : CheckNeighbours(plan.network, proof.neighbours, plan.bounds, std::nullopt)) proof.failures.push_back(std::move(text));
  if (proof.direct_packets != 0) {
    proof.failures.push_back(absl::StrCat(proof.direct_packets, " packets went out that no class shaped (direct_packets_stat grew)"));
  }
  return proof;
}

}  // namespace tranche::proof
