// tranched under load, through the kubelet's socket.
#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/client.h"
#include "bench/floor.h"
#include "bench/node.h"

namespace tranche::bench {
namespace {

constexpr auto kIdle = std::chrono::seconds(2);
constexpr int kInFlight[] = {8, 64};  // after one at a time
constexpr std::size_t kBatch = 100;

using Call = absl::Status (Client::*)(const std::vector<ClaimReference>&) const;

struct Load {
  std::vector<Microseconds> samples;
  Microseconds total{};
};

// One claim per call, `in_flight` calls at a time on one channel, as the kubelet has one.
absl::StatusOr<Load> Run(const Client& client, Call call, const std::vector<ClaimReference>& claims, int in_flight) {
  Load load;
  absl::Status failure;
  std::mutex mutex;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < claims.size(); i = next++) {
      const auto start = std::chrono::steady_clock::now();
      const absl::Status status = (client.*call)({claims[i]});
      const Microseconds time = Since(start);
      const std::lock_guard lock(mutex);
      load.samples.push_back(time);
      failure.Update(status);
      if (!status.ok()) next = claims.size();
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < in_flight; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  load.total = Since(start);
  if (!failure.ok()) return failure;
  return load;
}

absl::Status AddSample(std::vector<Microseconds>& samples, const std::function<absl::Status()>& operation) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = operation();
  samples.push_back(Since(start));
  return status;
}

// Each prepare right after one of each floor: what disturbs the machine disturbs them alike.
absl::Status MeasureInTurn(const Node& node, const Client& client, Floor& floor, int claims, std::vector<Measurement>& report) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ClaimReference> references, node.WriteClaims("turn", claims, UplinkShare()));
  std::vector<Microseconds> echo, sync, commit, prepare, backend, unprepare;
  TRANCHE_ASSIGN_OR_RETURN(Microseconds before, node.BackendPrepareTime());
  for (const ClaimReference& reference : references) {
    TRANCHE_RETURN_IF_ERROR(AddSample(echo, [&] { return floor.Echo(); }));
    TRANCHE_RETURN_IF_ERROR(AddSample(sync, [&] { return floor.Sync(); }));
    TRANCHE_RETURN_IF_ERROR(AddSample(commit, [&] { return floor.Commit(); }));
    TRANCHE_RETURN_IF_ERROR(AddSample(prepare, [&] { return client.Prepare({reference}); }));
    TRANCHE_ASSIGN_OR_RETURN(const Microseconds after, node.BackendPrepareTime());
    backend.push_back(after - before);
    before = after;
  }
  for (const ClaimReference& reference : references) TRANCHE_RETURN_IF_ERROR(AddSample(unprepare, [&] { return client.Unprepare({reference}); }));
  for (Measurement& line : std::vector<Measurement>{Series("rpc_echo", echo), Series("fsync", sync), Series("sqlite_commit", commit),
                                                    Series("prepare_1", prepare), Series("backend_prepare_1", backend), Series("unprepare_1", unprepare)}) {
    report.push_back(std::move(line));
  }
  return node.RemoveClaims(references);
}

double Milliseconds(Microseconds time) { return time.count() / 1000; }

absl::Status MeasureInFlight(const Node& node, const Client& client, int claims, int in_flight, std::vector<Measurement>& report) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ClaimReference> references, node.WriteClaims(Cat("flight-", in_flight), claims, UplinkShare()));
  TRANCHE_ASSIGN_OR_RETURN(Load prepared, Run(client, &Client::Prepare, references, in_flight));
  TRANCHE_ASSIGN_OR_RETURN(Load unprepared, Run(client, &Client::Unprepare, references, in_flight));
  report.push_back(Series(Cat("prepare_", in_flight), std::move(prepared.samples)));
  report.push_back(Series(Cat("unprepare_", in_flight), std::move(unprepared.samples)));
  return node.RemoveClaims(references);
}

absl::Status MeasureManyShares(const Node& node, const Client& client, const Sizes& sizes, std::vector<Measurement>& report) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ClaimReference> references, node.WriteClaims("many", sizes.shares, UplinkShare()));
  TRANCHE_ASSIGN_OR_RETURN(Load load, Run(client, &Client::Prepare, references, 1));
  report.push_back(Series(Cat("prepare_", sizes.shares, "_shares"), std::move(load.samples)));
  report.push_back(Single(Cat("prepare_", sizes.shares, "_shares_total"), "ms", Milliseconds(load.total), sizes.shares));

  const auto drained_end = references.begin() + sizes.drained;
  const std::vector<ClaimReference> drained(references.begin(), drained_end);
  const auto start = std::chrono::steady_clock::now();
  TRANCHE_RETURN_IF_ERROR(client.Unprepare(drained));
  report.push_back(Single(Cat("drain_", sizes.drained), "ms", Milliseconds(Since(start)), sizes.drained));

  std::vector<ClaimReference> rest(drained_end, references.end());
  while (!rest.empty()) {
    const auto first = rest.end() - static_cast<std::ptrdiff_t>(std::min(rest.size(), kBatch));
    TRANCHE_RETURN_IF_ERROR(client.Unprepare({first, rest.end()}));
    rest.erase(first, rest.end());
  }
  return node.RemoveClaims(references);
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> MeasureHost(const std::string& directory, const Sizes& sizes) {
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<Node> node, Node::Start(directory + "/host", UplinkNode()));
  std::vector<Measurement> report = {Single("start_to_serving", "us", node->start_to_serving().count())};
  std::this_thread::sleep_for(kIdle);
  TRANCHE_ASSIGN_OR_RETURN(const double resident, node->ResidentKilobytes());
  report.push_back(Single("rss_idle", "KiB", resident));
  TRANCHE_ASSIGN_OR_RETURN(const std::string socket, node->ServiceSocket(kDriver));
  const Client client(socket);
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<Floor> floor, Floor::Make(directory));
  // The first share makes the uplink's tree, the first call the connection.
  std::vector<Measurement> warm_up;
  TRANCHE_RETURN_IF_ERROR(MeasureInTurn(*node, client, *floor, 8, warm_up));
  TRANCHE_RETURN_IF_ERROR(MeasureInTurn(*node, client, *floor, sizes.claims, report));
  for (const int in_flight : kInFlight) TRANCHE_RETURN_IF_ERROR(MeasureInFlight(*node, client, sizes.claims, in_flight, report));
  TRANCHE_RETURN_IF_ERROR(MeasureManyShares(*node, client, sizes, report));
  TRANCHE_ASSIGN_OR_RETURN(const double loaded, node->ResidentKilobytes());
  report.push_back(Single("rss_after_load", "KiB", loaded));
  TRANCHE_RETURN_IF_ERROR(node->Stop());
  return report;
}

}  // namespace tranche::bench
