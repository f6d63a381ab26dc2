// Claim statuses and Events on a real API server: server-side apply of status.devices, its preconditions and what its validation refuses.
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "kube/client.h"
#include "kube/events.h"
#include "kube/status_writer.h"
#include "model/json.h"
#include "support/api_server.h"

namespace tranche::kube {
namespace {

using namespace std::chrono_literals;
using claims::ClaimChange;
using claims::ClaimEvent;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace json = boost::json;

constexpr char kClaims[] = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
constexpr char kDriver[] = "nic.example.com";
constexpr char kShare[] = "4a49acf8-a6bd-4277-8849-5d1e541a8408";

Deadline Soon() { return DeadlineIn(30s); }

class ClaimStatusOnApiServer : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string missing = test::ApiServer::Missing(GetParam()); !missing.empty()) GTEST_SKIP() << "NOT TESTED: " << missing;
    std::unique_ptr<test::ApiServer>& server = servers_[GetParam()];
    if (server == nullptr) server = test::ApiServer::Start({}, GetParam());
    ASSERT_NE(server, nullptr);
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Create({.kubeconfig = server->kubeconfig()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    StatusWriterOptions options;
    options.prepared_delay = 0ms;
    options.removal_delay = 1ms;
    writer_ = std::make_unique<StatusWriter>(*client_, options);
  }

  static void TearDownTestSuite() { servers_.clear(); }

  static std::string Path(const std::string& name) { return Cat(kClaims, "/", name); }

  // An allocated claim: a share of ours, a whole device of ours and one of another driver.
  ClaimReference MakeClaim(const std::string& name) {
    const auto created = client_->Create(
        kClaims,
        json::parse(Cat(R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":")", name,
                        R"("},"spec":{"devices":{"requests":[{"name":"nic","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":3}}]}}})"))
            .as_object(),
        Soon());
    EXPECT_TRUE(created.ok()) << created.status();
    if (!created.ok()) return {};
    const json::value status = json::parse(Cat(R"({"status":{"allocation":{"devices":{"results":[
      {"request":"nic","driver":"nic.example.com","pool":"node-1","device":"eth1-shared","shareID":")",
                                               kShare, R"("},
      {"request":"nic","driver":"nic.example.com","pool":"node-1","device":"eth2-exclusive"},
      {"request":"nic","driver":"other.example.com","pool":"node-1","device":"x"}]}},
      "devices":[{"driver":"other.example.com","pool":"node-1","device":"x","data":{"foreign":true}}]}})"));
    const auto allocated = client_->Patch(Path(name) + "/status", PatchKind::kMerge, status, Soon());
    EXPECT_TRUE(allocated.ok()) << allocated.status();
    return {"default", name, std::string(created->at("metadata").at("uid").as_string())};
  }

  static ClaimEvent MakeEvent(ClaimChange change, const ClaimReference& claim, std::int64_t in_force = 50'000'000, absl::Status why = {}) {
    ClaimEvent event{change, kDriver, claim, "v1", {}, std::move(why)};
    if (change == ClaimChange::kReleased) return event;
    store::ShareRow share;
    share.key = {claim.uid, "nic", kDriver, "node-1", "eth1-shared", kShare};
    share.applied.emplace();
    share.applied->limits = {{"bandwidth", "egress", 50'000'000, in_force, Enforcement::kHard, std::chrono::system_clock::now(), "htb class 1 on eth1"}};
    share.applied->network = NetworkData{"net1", {"10.0.0.2/24", "fd00::2/64"}, "02:00:00:00:00:01"};
    if (in_force != 50'000'000) share.applied->applied = AppliedState::kPartial;
    store::ShareRow whole;
    whole.key = {claim.uid, "nic", kDriver, "node-1", "eth2-exclusive", ""};
    whole.mode = Mode::kWhole;
    whole.applied.emplace();
    event.shares = {share, whole};
    return event;
  }

  void Tell(const ClaimEvent& event) {
    writer_->OnClaim(event);
    ASSERT_TRUE(writer_->WaitUntilWritten(Soon())) << writer_->state().problem;
    ASSERT_TRUE(writer_->state().problem.ok()) << writer_->state().problem;
  }

  json::array Devices(const std::string& name) {
    const auto claim = client_->Get(Path(name), Soon());
    EXPECT_TRUE(claim.ok()) << claim.status();
    if (!claim.ok() || !claim->at("status").as_object().contains("devices")) return {};
    return claim->at("status").at("devices").as_array();
  }
  static std::string Enforced(const json::array& devices) {
    for (const json::value& device : devices) {
      if (device.at("device").as_string() == "eth1-shared") return std::string(device.at("conditions").at(1).at("status").as_string());
    }
    return "absent";
  }

  inline static std::map<std::string, std::unique_ptr<test::ApiServer>> servers_;  // by version
  std::unique_ptr<Client> client_;
  std::unique_ptr<StatusWriter> writer_;
};

TEST_P(ClaimStatusOnApiServer, IsWrittenComparedAndRemoved) {
  const ClaimReference claim = MakeClaim("one");
  Tell(MakeEvent(ClaimChange::kPrepared, claim));
  ASSERT_THAT(Devices("one"), SizeIs(3));
  EXPECT_EQ(Enforced(Devices("one")), "True");
  EXPECT_EQ(writer_->state().written, 1U);
  Tell(MakeEvent(ClaimChange::kDrifted, claim, 1, absl::FailedPreconditionError("changed by hand")));
  EXPECT_EQ(Enforced(Devices("one")), "False");
  Tell(MakeEvent(ClaimChange::kRepaired, claim));
  EXPECT_EQ(Enforced(Devices("one")), "True");

  // Another host takes over: what it finds is what it would write.
  writer_ = std::make_unique<StatusWriter>(*client_, StatusWriterOptions{});
  Tell(MakeEvent(ClaimChange::kVerified, claim));
  EXPECT_EQ(writer_->state().written, 0U);
  Tell(MakeEvent(ClaimChange::kReleased, claim));
  ASSERT_THAT(Devices("one"), SizeIs(1));
  EXPECT_EQ(ToJsonText(Devices("one")[0].at("data")), R"({"foreign":true})");
}

TEST_P(ClaimStatusOnApiServer, WhatTheServerWouldRefuseIsLeftOut) {
  const ClaimReference claim = MakeClaim("two");
  ClaimReference stranger = claim;
  stranger.uid = "7d0ad5b5-9f0e-4f0e-8f3d-000000000000";
  Tell(MakeEvent(ClaimChange::kPrepared, stranger));
  EXPECT_THAT(Devices("two"), SizeIs(1));
  EXPECT_EQ(writer_->state().claims, 0U);

  ClaimEvent event = MakeEvent(ClaimChange::kPrepared, claim);
  event.shares[1].key.device = "not-allocated";
  event.shares[0].applied->network->ips = {"not an address", "10.0.0.2/99"};
  Tell(event);
  EXPECT_THAT(Devices("two"), SizeIs(2));

  ASSERT_TRUE(client_
                  ->Patch(Path("two") + "/status", PatchKind::kJson,
                          json::parse(R"([{"op":"remove","path":"/status/devices"},{"op":"remove","path":"/status/allocation"}])"), Soon())
                  .ok());
  Tell(MakeEvent(ClaimChange::kRefused, claim, 1, absl::ResourceExhaustedError("held")));
  Tell(MakeEvent(ClaimChange::kReleased, claim));
  EXPECT_EQ(writer_->state().claims, 0U);

  ASSERT_TRUE(client_->Delete(Path("two"), {}, Soon()).ok());
  Tell(MakeEvent(ClaimChange::kPrepared, claim));
  EXPECT_EQ(client_->Get(Path("two"), Soon()).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ClaimStatusOnApiServer, EventsAreMadeAndCounted) {
  const ClaimReference claim = MakeClaim("three");
  EventOptions options;
  options.node_name = "node-1";
  options.series_interval = 1ms;
  EventRecorder recorder(*client_, options);
  for (int i = 0; i < 5; ++i) {
    recorder.OnClaim(MakeEvent(ClaimChange::kDrifted, claim, 1, absl::FailedPreconditionError("bandwidth egress")));
    ASSERT_TRUE(recorder.WaitUntilWritten(Soon()));
  }
  recorder.RecordNode(EventType::kWarning, "Configure", "ConfigurationRefused", "line 3");
  ASSERT_TRUE(recorder.WaitUntilWritten(Soon()));
  EXPECT_EQ(recorder.state().dropped, 0U);
  const Deadline deadline = Soon();
  std::int64_t count = 0;
  while (count < 5 && !Passed(deadline)) {
    const auto events = client_->List("/apis/events.k8s.io/v1/namespaces/default/events", Soon());
    ASSERT_TRUE(events.ok()) << events.status();
    for (const json::object& event : *events) {
      if (event.at("reason").as_string() == "LimitDrift" && event.contains("series")) count = event.at("series").at("count").as_int64();
    }
  }
  EXPECT_EQ(count, 5);
  EXPECT_EQ(recorder.state().dropped, 0U);
}

INSTANTIATE_TEST_SUITE_P(Versions, ClaimStatusOnApiServer, ::testing::Values("1.37", "1.36"),
                         [](const auto& version) { return version.param == "1.37" ? "v1_37" : "v1_36"; });

}  // namespace
}  // namespace tranche::kube
