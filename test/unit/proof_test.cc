// The arithmetic of the proof, what it takes from the admin socket, what it reports, and that its children never outlive it.
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <string>

#include <boost/json.hpp>

#include "model/json.h"
#include "proof/process.h"
#include "proof/proof.h"
#include "proof/sampler.h"

namespace tranche::proof {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
constexpr SteadyTime kStart{};

// One sample every 20 ms at 1000 bytes a millisecond (8 Mbit/s), and `burst` bytes more at 500 ms.
std::vector<BytesAt> SteadySeries(double burst) {
  std::vector<BytesAt> series;
  for (int at = 0; at <= 1000; at += 20) series.push_back({kStart + milliseconds(at), 1000.0 * at + (at >= 500 ? burst : 0)});
  return series;
}

TEST(SamplerArithmetic, InterpolatesBetweenSamplesAndHoldsTheEnds) {
  const auto series = SteadySeries(0);
  EXPECT_DOUBLE_EQ(BytesAtTime(series, kStart + milliseconds(30)), 30'000);
  EXPECT_DOUBLE_EQ(BytesAtTime(series, kStart + milliseconds(2000)), 1'000'000);
  EXPECT_DOUBLE_EQ(BytesAtTime({}, kStart), 0);
}

TEST(SamplerArithmetic, MeanUsesTimeStampsNotTheNumberOfSamples) {
  auto series = SteadySeries(0);
  series.erase(series.begin() + 10, series.begin() + 30);  // the sampler was late
  EXPECT_NEAR(MeanBitsPerSecond(series, kStart + milliseconds(100), kStart + milliseconds(900)), 8e6, 1);
  EXPECT_EQ(MeanBitsPerSecond(series, kStart + milliseconds(100), kStart + milliseconds(100)), 0);
}

TEST(SamplerArithmetic, WorstWindowFindsABurst) {
  // 20,000 bytes more within one window of 100,000: 20 % above.
  EXPECT_NEAR(WorstBitsPerSecond(SteadySeries(20'000), kStart, kStart + milliseconds(1000), milliseconds(100)), 9.6e6, 1);
  // Windows that reach outside the measured time are not looked at.
  EXPECT_NEAR(WorstBitsPerSecond(SteadySeries(20'000), kStart, kStart + milliseconds(450), milliseconds(100)), 8e6, 1);
}

TEST(Latency, PercentilesAndLoss) {
  std::vector<double> times;
  for (int i = 100; i >= 1; --i) times.push_back(i);
  const Latency latency = Summarise(times, 110);
  EXPECT_EQ(latency.p50_ms, 50);
  EXPECT_EQ(latency.p99_ms, 99);
  EXPECT_EQ(latency.max_ms, 100);
  EXPECT_EQ(latency.lost, 10U);
  EXPECT_EQ(Summarise({}, 3).lost, 3U);
}

AppliedShare Applied() {
  AppliedShare share;
  share.key = {"uid-1", "nic", "vnic.tranche.dev", "node", "up0", "share-1"};
  share.limits = {{"bandwidth", "egress", 50'000'000, 50'000'000, Enforcement::kHard, {}, "htb"},
                  {"bandwidth", "ingress", 50'000'000, 50'000'000, Enforcement::kHard, {}, "tbf"}};
  share.usage = {{"bandwidth", "egress", 0, 0, 0, CounterSource{"up0", 0x7a60010}}, {"bandwidth", "ingress", 0, 0, 0, CounterSource{"vs1", 0}}};
  share.network = NetworkData{"net1", {"10.99.0.2/24"}, "02:00:00:00:00:01"};
  return share;
}

json::value AdminAnswer() {
  return json::object{{"shares", json::array{json::object{{"namespace", "team-a"},
                                                          {"claim", "small"},
                                                          {"shareID", "share-1"},
                                                          {"consumedCapacity", json::object{{"bandwidth", "50M"}}},
                                                          {"applied", EncodeAppliedShare(Applied())}}}}};
}

TEST(SharesFromAdmin, TakesLimitAddressAndCounters) {
  const auto shares = SharesFromAdmin(AdminAnswer(), {{"team-a/small", {"pod-1", ""}}});
  ASSERT_TRUE(shares.ok()) << shares.status();
  ASSERT_EQ(shares->size(), 1U);
  const Share& share = shares->front();
  EXPECT_EQ(share.name, "team-a/small");
  EXPECT_EQ(share.consumed, "50M");
  EXPECT_EQ(share.limit_bits_per_second, 50'000'000);
  EXPECT_EQ(share.address, "10.99.0.2");
  EXPECT_EQ(share.network_namespace, "pod-1");
  EXPECT_EQ(share.interface, "net1");
  EXPECT_EQ(share.egress, (CounterSource{"up0", 0x7a60010}));
  EXPECT_EQ(share.ingress, (CounterSource{"vs1", 0}));
}

TEST(SharesFromAdmin, SaysWhyNothingCanBeProved) {
  EXPECT_EQ(SharesFromAdmin(json::value("text"), {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto none = SharesFromAdmin(AdminAnswer(), {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(none.status().message().find("team-a/small: no pod namespace"), absl::string_view::npos);
  json::value without_limit = AdminAnswer();
  without_limit.as_object()["shares"].as_array()[0].as_object()["applied"].as_object().erase("limits");
  EXPECT_EQ(SharesFromAdmin(without_limit, {{"team-a/small", {"pod-1", ""}}}).status().code(), absl::StatusCode::kNotFound);
}

Network OneShare() {
  Network network;
  network.shares = *SharesFromAdmin(AdminAnswer(), {{"team-a/small", {"pod-1", ""}}});
  network.shares[0].asked = "50M";
  return network;
}

TEST(Bounds, EachIsChecked) {
  const Network network = OneShare();
  Measurement good{0, Traffic::kUdp, Direction::kUp, true, 5, 99.5, 110, 1000, 5, 5, 0, 1};
  EXPECT_TRUE(CheckMeasurements(network, {good}, Bounds()).empty());
  Measurement low = good, high = good, window = good, idle = good;
  low.percent_of_limit = 97.9;
  high.percent_of_limit = 101.6;
  window.worst_window_percent = 115.1;
  idle.drops = idle.overlimits = 0;
  EXPECT_EQ(CheckMeasurements(network, {low, high, window, idle}, Bounds()).size(), 4U);
  Neighbour neighbour;
  neighbour.shift_ms = 2;
  EXPECT_EQ(CheckNeighbours(network, {neighbour}, Bounds(), std::nullopt).size(), 1U);
  EXPECT_TRUE(CheckNeighbours(network, {neighbour}, Bounds(), 30.0).empty());
  EXPECT_EQ(CheckNeighbours(network, {neighbour}, Bounds(), 15.0).size(), 1U);
}

TEST(Report, HasOneEntryAShareWithEachFigure) {
  const Network network = OneShare();
  Proof proof;
  proof.measurements = {{0, Traffic::kTcp, Direction::kUp, false, 5, 99.871, 103, 1, 2, 3, 4, 1},
                        {0, Traffic::kUdp, Direction::kDown, true, 5, 100.1, 104, 1, 5, 3, 4, 1}};
  Neighbour neighbour;
  neighbour.flooded.p99_ms = 0.43;
  proof.neighbours = {neighbour};
  const json::value report = EncodeProof(network, proof);
  const json::object& share = report.as_object().at("shares").as_array().at(0).as_object();
  EXPECT_EQ(share.at("share").as_string(), "share-1");
  EXPECT_EQ(share.at("limitInForce").as_int64(), 50'000'000);
  EXPECT_DOUBLE_EQ(share.at("percentOfLimit").as_object().at("tcp_up_alone").as_double(), 99.87);
  EXPECT_DOUBLE_EQ(share.at("percentOfLimit").as_object().at("udp_down_together").as_double(), 100.1);
  EXPECT_EQ(share.at("drops").as_uint64(), 7U);
  EXPECT_DOUBLE_EQ(share.at("p99_ms").as_double(), 0.43);
  const std::string table = FormatTable(network, proof);
  EXPECT_NE(table.find("team-a/small"), std::string::npos);
  EXPECT_NE(table.find("99.9/-"), std::string::npos);
}

TEST(Process, OutputExitCodeAndDeadline) {
  const auto finished = RunCommand({{"sh", "-c", "echo out; echo error >&2; exit 3"}, "", ""}, milliseconds(5000));
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(finished->exit_code, 3);
  EXPECT_EQ(finished->output, "out\nerror\n");
  EXPECT_EQ(RunCommand({{"sleep", "60"}, "", ""}, milliseconds(50)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunCommand({{"true"}, "no-such-namespace-here", ""}, milliseconds(50)).status().code(), absl::StatusCode::kNotFound);
}

TEST(Process, EndsItsChildEvenWhenItIgnoresTheTerminationSignal) {
  pid_t pid = 0;
  {
    auto process = Process::Start({{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, "", ""});
    ASSERT_TRUE(process.ok());
    pid = process->pid();
    EXPECT_TRUE(process->Running());
  }
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace tranche::proof
