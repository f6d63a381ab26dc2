// Slices on real API servers of 1.37 and 1.36: every count of devices is accepted, and whatever happens to slices they come out right.
#include <array>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "kube/client.h"
#include "kube/slice_api.h"
#include "slices/publisher.h"
#include "support/api_server.h"
#include "unit/slices_fixture.h"

namespace tranche::slices {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";
constexpr char kNodeObject[] = R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"}})";

// One host's way to the server.
struct Connection {
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<kube::ApiSliceApi> api;
};

class SlicesOnApiServer : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string missing = test::ApiServer::Missing(GetParam()); !missing.empty()) {
      std::cerr << "SKIPPED: " << missing << "\n";
      GTEST_SKIP() << missing;
    }
  }
  void StartServer(const std::vector<std::string>& flags = {}) {
    server_ = test::ApiServer::Start(flags, GetParam());
    ASSERT_NE(server_, nullptr);
    ASSERT_EQ(server_->Request("POST", "/api/v1/nodes", kNodeObject).code, 201);
    hands_ = Connect();
    ASSERT_NE(hands_.client, nullptr);
  }
  Connection Connect() {
    absl::StatusOr<std::unique_ptr<kube::Client>> client = kube::Client::Create({.kubeconfig = server_->kubeconfig()});
    EXPECT_TRUE(client.ok()) << client.status();
    if (!client.ok()) return {};
    Connection connection{*std::move(client), nullptr};
    connection.api = std::make_unique<kube::ApiSliceApi>(*connection.client, kNode);
    return connection;
  }
  std::vector<Slice> All() {
    absl::StatusOr<std::vector<boost::json::object>> items = hands_.client->List(kSlices, DeadlineIn(5s));
    std::vector<Slice> all;
    if (!items.ok()) return all;
    for (boost::json::object& item : *items) {
      absl::StatusOr<Slice> slice = DecodeSlice(boost::json::value(std::move(item)));
      EXPECT_TRUE(slice.ok()) << slice.status();
      if (slice.ok()) all.push_back(*std::move(slice));
    }
    return all;
  }
  bool Becomes(const SlicePlan& plan) {
    return Eventually([&] { return IsExactly(All(), plan); });
  }
  bool IsQuiet() {
    const auto versions = [&] {
      std::map<std::string, std::string> seen;
      for (const Slice& slice : All()) seen[slice.name] = slice.resource_version;
      return seen;
    };
    std::this_thread::sleep_for(300ms);
    const auto before = versions();
    std::this_thread::sleep_for(500ms);
    return versions() == before;
  }
  void DeleteAll() { EXPECT_EQ(server_->Request("DELETE", std::string(kSlices) + "?fieldSelector=spec.nodeName%3Dnode-1").code, 200); }

  std::unique_ptr<test::ApiServer> server_;
  Connection hands_;
};

PublisherOptions Options() { return {.driver = kDriver, .node = kNode, .longest_wait = 500ms}; }

SlicePlan PlanFor(const Shape& shape, ServerFeatures features = {}) { return Plan(kDriver, kNode, MakeSnapshot(shape), {}, features); }

TEST_P(SlicesOnApiServer, TakesEveryCountOfDevicesOfEveryKind) {
  StartServer();
  const Connection connection = Connect();
  Publisher publisher(*connection.api, Options());
  std::int64_t revision = 0;
  for (const std::size_t devices : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 129U, 300U, 1000U}) {
    for (const unsigned kind : {0U, 1U, 2U, 3U}) {
      const Shape shape{.devices = devices, .taints = (kind & 1U) != 0, .counters = (kind & 2U) != 0, .sets = 20, .revision = ++revision};
      publisher.Publish({Shared(shape), {}});
      ASSERT_TRUE(Becomes(PlanFor(shape))) << devices << " devices, kind " << kind << ": " << publisher.Status().last_error;
      EXPECT_TRUE(publisher.Status().refused.empty() && publisher.Status().dropped_gates.empty());
    }
  }
  EXPECT_TRUE(IsQuiet());
}

TEST_P(SlicesOnApiServer, StartsWithinMilliseconds) {  // the figures are printed, not judged
  StartServer();
  for (const std::size_t devices : {300U, 1000U}) {
    const Connection connection = Connect();
    const auto input = Shared({.devices = devices});
    const std::size_t slices = PlanFor({.devices = devices}).slices.size();
    const Clock::time_point start = Clock::now();
    Publisher publisher(*connection.api, Options());
    publisher.Publish({input, {}});
    ASSERT_TRUE(Eventually([&] { return publisher.Status().slices_published == slices; }));
    std::cout << devices << " devices visible after " << std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count() << " ms, "
              << publisher.Status().writes << " writes\n";
    EXPECT_EQ(publisher.Withdraw(DeadlineIn(10s)), absl::OkStatus());
  }
}

TEST_P(SlicesOnApiServer, EveryRepairOfAVendorStringIsAccepted) {
  StartServer();
  const Connection connection = Connect();
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 3, .taints = true});
  std::minstd_rand random(7);
  for (PublishedDevice& device : snapshot.devices) {
    for (int i = 0; i < 12; ++i) {
      std::string text, name;
      for (unsigned length = static_cast<unsigned>(random()) % 90; length > 0; --length) text += static_cast<char>(random());
      for (unsigned length = static_cast<unsigned>(random()) % 60; length > 0; --length) name += "aZ09._-/ \xff"[static_cast<unsigned>(random()) % 10];
      device.attributes[name] = text;
      constexpr std::array<const char*, 8> kVersions = {"6.10.5.1", "v1", "550.054.15", "1.2.3-", "1.2.3rc1~x", "1.0+é", "5.15.0-91-generic", "1.2.3-007.00a"};
      device.attributes[Cat("version", i)] = VersionValue{kVersions[static_cast<unsigned>(random()) % kVersions.size()]};
    }
  }
  Publisher publisher(*connection.api, Options());
  publisher.Publish({std::make_shared<const inventory::Snapshot>(snapshot), {}});
  EXPECT_TRUE(Becomes(Plan(kDriver, kNode, snapshot, {}, {}))) << publisher.Status().last_error;
  EXPECT_TRUE(publisher.Status().refused.empty()) << publisher.Status().refused[0];
}

TEST_P(SlicesOnApiServer, GatesThatAreOffAreFoundAndPlannedAround) {
  const bool taints_can_be_off = GetParam() == "1.36";  // GA later
  StartServer({std::string("--feature-gates=DRAConsumableCapacity=false,DRAPartitionableDevices=false") +
               (taints_can_be_off ? ",DRADeviceTaints=false,DRADeviceTaintRules=false" : "")});
  const Connection connection = Connect();
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 20, .taints = true, .counters = true});
  snapshot.devices.push_back(MakePublished("share", Mode::kShare));
  Publisher publisher(*connection.api, Options());
  publisher.Publish({std::make_shared<const inventory::Snapshot>(snapshot), {}});
  const ServerFeatures features{37, false, false, !taints_can_be_off};
  EXPECT_TRUE(Becomes(Plan(kDriver, kNode, snapshot, {}, features))) << publisher.Status().last_error;
  EXPECT_TRUE(IsQuiet());
  EXPECT_EQ(publisher.Status().dropped_gates.size(), taints_can_be_off ? 3U : 2U);
  EXPECT_LE(publisher.Status().writes, 10U);
}

TEST_P(SlicesOnApiServer, AThousandRandomStepsOfTwoHostsEndWithExactlyTheRightSlices) {
  StartServer();
  const std::array<Connection, 2> connections = {Connect(), Connect()};
  std::array<std::unique_ptr<Publisher>, 2> hosts;
  std::minstd_rand random(42);
  const auto pick = [&](unsigned below) { return static_cast<unsigned>(random()) % below; };
  const auto shape = [&]() -> Shape {
    constexpr std::array<std::size_t, 8> kCounts = {0, 1, 63, 65, 129, 200, 260, 300};
    return {.devices = kCounts[pick(kCounts.size())], .taints = pick(2) == 0, .counters = pick(2) == 0, .sets = 1 + pick(20), .revision = pick(3)};
  };
  const auto publish = [&](std::size_t host, const Shape& what) {
    if (hosts[host] == nullptr) hosts[host] = std::make_unique<Publisher>(*connections[host].api, Options());
    hosts[host]->Publish({Shared(what), {}});
  };
  const auto any = [&](const std::function<void(Slice&)>& touch) {
    std::vector<Slice> all = All();
    if (!all.empty()) touch(all[pick(static_cast<unsigned>(all.size()))]);
  };
  for (int step = 0; step < 1000; ++step) {
    switch (pick(8)) {
      case 0: any([&](Slice& slice) { (void)hands_.api->Delete(slice, DeadlineIn(5s)); }); break;
      case 1:
        any([&](Slice& slice) {
          slice.content = std::make_shared<const SliceContent>();
          (void)hands_.api->Replace(slice, DeadlineIn(5s));
        });
        break;
      case 2:
        if (pick(8) == 0) DeleteAll();
        break;
      case 3: hosts[pick(2)].reset(); break;
      default: publish(pick(2), shape());
    }
    if (pick(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(pick(8)));
  }
  const Shape last = shape();
  publish(0, last);
  publish(1, last);
  ASSERT_TRUE(Becomes(PlanFor(last)));
  hosts[0].reset();
  EXPECT_TRUE(IsQuiet());
  EXPECT_TRUE(Becomes(PlanFor(last)));
}

INSTANTIATE_TEST_SUITE_P(Version, SlicesOnApiServer, ::testing::Values("1.37", "1.36"),
                         [](const auto& version) { return "V" + version.param.substr(0, 1) + "_" + version.param.substr(2); });

}  // namespace
}  // namespace tranche::slices
