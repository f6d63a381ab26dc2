#include "fake_api_server.h"

#include <array>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/device_status.h"
#include "kube/events.h"
#include "kube/status_writer.h"
#include "model/json.h"

namespace tranche::kube {
namespace {

using claims::ClaimChange;
using claims::ClaimEvent;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace json = boost::json;

constexpr char kDriver[] = "nic.example.com";

Deadline Soon() { return DeadlineIn(std::chrono::seconds(30)); }

store::ShareRow MakeShare(const std::string& uid, std::int64_t in_force = 50'000'000) {
  store::ShareRow share;
  share.key = {uid, "nic", kDriver, "node-1", "eth1-shared", "share-" + uid};
  share.backend = "uplink";
  share.physical = "eth1";
  share.device_class = "nic-shared";
  share.policy_version = "sha256:abc";
  share.state = store::ShareState::kApplied;
  AppliedShare applied;
  applied.key = share.key;
  applied.limits = {{"bandwidth", "egress", 50'000'000, in_force, Enforcement::kHard, std::chrono::system_clock::now(), "htb class 1 on eth1"}};
  applied.network = NetworkData{"net1", {"10.0.0.2/24", "nonsense", "10.0.0.2/24"}, "02:00:00:00:00:01"};
  if (in_force != 50'000'000) applied.applied = AppliedState::kPartial;
  share.applied = applied;
  return share;
}

ClaimEvent MakeEvent(ClaimChange change, const std::string& uid, std::int64_t in_force = 50'000'000, absl::Status why = absl::OkStatus()) {
  ClaimEvent event{change, kDriver, {"team-a", "claim-" + uid, uid}, "v1", {}, std::move(why)};
  if (change != ClaimChange::kReleased) event.shares = {MakeShare(uid, in_force)};
  return event;
}

json::object Condition(const json::value& device, std::string_view type) {
  for (const json::value& condition : device.at("conditions").as_array()) {
    if (condition.at("type").as_string() == type) return condition.as_object();
  }
  return {};
}
std::string StatusOfCondition(const json::value& device, std::string_view type) { return std::string(Condition(device, type).at("status").as_string()); }

class StatusWriterTest : public ::testing::Test {
 protected:
  static StatusWriterOptions Fast() {
    StatusWriterOptions options;
    options.prepared_delay = milliseconds(0);
    options.removal_delay = milliseconds(1);
    options.first_retry = milliseconds(2);
    options.last_retry = milliseconds(8);
    return options;
  }
  void PutClaim(const std::string& uid) { server_.PutClaim("claim-" + uid, uid, {{kDriver, "eth1-shared", "share-" + uid}, {"other.example.com", "x", ""}}); }
  json::array Devices(const std::string& uid) { return server_.Devices("claim-" + uid); }
  void Tell(const ClaimEvent& event) {
    writer_->OnClaim(event);
    ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  }

  FakeApiServer server_;
  std::optional<StatusWriter> writer_{std::in_place, server_, Fast()};
};

TEST_F(StatusWriterTest, APreparedShareIsShownWithOneRequest) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  EXPECT_EQ(server_.patches, 1);
  EXPECT_EQ(server_.gets, 0);
  const json::array devices = Devices("u1");
  ASSERT_THAT(devices, SizeIs(1));
  const json::object& device = devices[0].as_object();
  EXPECT_EQ(device.at("shareID").as_string(), "share-u1");
  EXPECT_EQ(StatusOfCondition(devices[0], "Prepared"), "True");
  EXPECT_EQ(StatusOfCondition(devices[0], "Enforced"), "True");
  EXPECT_EQ(StatusOfCondition(devices[0], "Healthy"), "Unknown");
  const json::object& data = device.at("data").as_object();
  EXPECT_EQ(data.at("policyVersion").as_string(), "sha256:abc");
  EXPECT_EQ(data.at("allocationVersion").as_string(), "v1");
  EXPECT_EQ(data.at("class").as_string(), "nic-shared");
  const json::object& limit = data.at("limits").at(0).as_object();
  EXPECT_EQ(limit.at("requested").as_int64(), 50'000'000);
  EXPECT_EQ(limit.at("inForce").as_int64(), 50'000'000);
  EXPECT_EQ(limit.at("enforcement").as_string(), "hard");
  EXPECT_TRUE(ParseTime(data.at("verifiedAt").as_string()).ok());
  EXPECT_EQ(device.at("networkData").at("interfaceName").as_string(), "net1");
  EXPECT_EQ(ToJsonText(device.at("networkData").at("ips")), R"(["10.0.0.2/24"])");
}

TEST_F(StatusWriterTest, TheSameNewsIsNotWrittenAgain) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  for (int i = 0; i < 10; ++i) Tell(MakeEvent(i % 2 == 0 ? ClaimChange::kVerified : ClaimChange::kPrepared, "u1"));
  EXPECT_EQ(server_.patches, 1);
  ClaimEvent later = MakeEvent(ClaimChange::kVerified, "u1");
  later.shares[0].applied->limits[0].verified_at += std::chrono::minutes(31);
  Tell(later);
  EXPECT_EQ(server_.patches, 2);
}

TEST_F(StatusWriterTest, EntriesOfOthersStay) {
  PutClaim("u1");
  const json::object foreign{{"driver", "other.example.com"}, {"pool", "node-1"}, {"device", "x"}, {"unknownField", 7}};
  server_.AddForeignEntry("claim-u1", foreign);
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  EXPECT_THAT(Devices("u1"), SizeIs(2));
  Tell(MakeEvent(ClaimChange::kReleased, "u1"));
  EXPECT_THAT(Devices("u1"), ElementsAre(json::value(foreign)));
}

TEST_F(StatusWriterTest, ARefusalSaysWhyAndKeepsItsTime) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kRefused, "u1", 50'000'000, absl::ResourceExhaustedError("held by claim team-b/other")));
  const json::object first = Condition(Devices("u1")[0], "Prepared");
  EXPECT_EQ(first.at("status").as_string(), "False");
  EXPECT_EQ(first.at("reason").as_string(), "PrepareFailed");
  EXPECT_EQ(first.at("message").as_string(), "RESOURCE_EXHAUSTED: held by claim team-b/other");
  EXPECT_FALSE(Devices("u1")[0].at("data").as_object().contains("limits"));
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  EXPECT_EQ(StatusOfCondition(Devices("u1")[0], "Prepared"), "True");
}

TEST_F(StatusWriterTest, ADriftIsSeenEvenWhenItIsPutRightAtOnce) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  writer_->OnClaim(MakeEvent(ClaimChange::kDrifted, "u1", 900'000'000, absl::FailedPreconditionError("bandwidth egress: 900000000 in force")));
  Tell(MakeEvent(ClaimChange::kRepaired, "u1"));
  EXPECT_THAT(server_.SeenEnforced("claim-u1"), ElementsAre("True", "False", "True"));
}

TEST_F(StatusWriterTest, TransitionTimesStayWhereTheStatusDoes) {
  std::vector<DeviceStatus> before = StatusOf(MakeEvent(ClaimChange::kPrepared, "u1"), WallTime(std::chrono::hours(1)));
  std::vector<DeviceStatus> now = StatusOf(MakeEvent(ClaimChange::kDrifted, "u1", 1, absl::InternalError("x")), WallTime(std::chrono::hours(2)));
  KeepTransitions(now, before);
  EXPECT_EQ(now[0].prepared.since, WallTime(std::chrono::hours(1)));
  EXPECT_EQ(now[0].enforced.since, WallTime(std::chrono::hours(2)));
}

TEST_F(StatusWriterTest, AfterAStartWhatIsThereIsComparedAndLeft) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  const json::array written = Devices("u1");
  writer_.emplace(server_, Fast());
  ClaimEvent event = MakeEvent(ClaimChange::kVerified, "u1");
  event.shares[0].applied->network->ips = {"10.0.0.2/24"};
  Tell(event);
  EXPECT_EQ(server_.gets, 1);
  EXPECT_EQ(server_.patches, 1);
  EXPECT_EQ(Devices("u1"), written);
  Tell(MakeEvent(ClaimChange::kReleaseFailed, "u1", 50'000'000, absl::UnavailableError("busy")));
  EXPECT_EQ(Condition(Devices("u1")[0], "Prepared").at("reason").as_string(), "UnprepareFailed");
  EXPECT_EQ(Condition(Devices("u1")[0], "Enforced").at("lastTransitionTime"), Condition(written[0], "Enforced").at("lastTransitionTime"));
}

TEST_F(StatusWriterTest, ReleaseRemovesTheEntryWhereTheClaimStaysAllocated) {
  PutClaim("u1");
  PutClaim("u2");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  Tell(MakeEvent(ClaimChange::kPrepared, "u2"));
  Tell(MakeEvent(ClaimChange::kReleased, "u1"));
  EXPECT_THAT(Devices("u1"), IsEmpty());
  const int patches = server_.patches;
  server_.Remove("claim-u2");
  Tell(MakeEvent(ClaimChange::kReleased, "u2"));
  EXPECT_EQ(server_.patches, patches);
  EXPECT_EQ(writer_->state().claims, 0U);
}

TEST_F(StatusWriterTest, AnotherClaimOfThatNameIsNotTouched) {
  server_.PutClaim("claim-u1", "new-uid", {{kDriver, "eth1-shared", "share-u1"}});
  for (const ClaimChange change : {ClaimChange::kPrepared, ClaimChange::kVerified, ClaimChange::kReleased}) Tell(MakeEvent(change, "u1"));
  EXPECT_THAT(Devices("u1"), IsEmpty());
  EXPECT_EQ(writer_->state().claims, 0U);
  EXPECT_TRUE(writer_->state().problem.ok());
}

TEST_F(StatusWriterTest, OnlyAllocatedDevicesAreWritten) {
  PutClaim("u1");
  ClaimEvent event = MakeEvent(ClaimChange::kPrepared, "u1");
  event.shares.push_back(MakeShare("u1"));
  event.shares.back().key.device = "eth2-shared";  // its allocation went meanwhile
  Tell(event);
  EXPECT_THAT(Devices("u1"), SizeIs(1));
  server_.PutClaim("claim-u2", "u2", {});
  Tell(MakeEvent(ClaimChange::kPrepared, "u2"));
  EXPECT_THAT(Devices("u2"), IsEmpty());
}

TEST_F(StatusWriterTest, AConflictIsTriedAgain) {
  PutClaim("u1");
  std::atomic<int> conflicts = 3;
  server_.FailWith(
      [&](const std::string& verb) { return verb == "patch" && conflicts-- > 0 ? absl::AbortedError("the object has been modified") : absl::OkStatus(); });
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  EXPECT_THAT(Devices("u1"), SizeIs(1));
}

TEST_F(StatusWriterTest, WhatIsForbiddenIsTriedSeldomAndEndsWithTheClaim) {
  PutClaim("u1");
  server_.FailWith([](const std::string&) { return absl::PermissionDeniedError("forbidden"); });
  writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, "u1"));
  while (writer_->state().failed < 3) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(absl::IsPermissionDenied(writer_->state().problem));
  EXPECT_EQ(writer_->state().claims, 1U);
  server_.FailWith(nullptr);
  ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  EXPECT_THAT(Devices("u1"), SizeIs(1));
  EXPECT_TRUE(writer_->state().problem.ok());
}

TEST_F(StatusWriterTest, NothingIsHeldWhileTheServerIsAwayAndAllIsWrittenAfterwards) {
  constexpr int kClaims = 50;
  server_.FailWith([](const std::string&) { return absl::UnavailableError("no route"); });
  for (int i = 0; i < kClaims; ++i) {
    PutClaim("u" + std::to_string(i));
    writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, "u" + std::to_string(i)));
  }
  while (writer_->state().failed < 3) std::this_thread::sleep_for(milliseconds(1));
  for (int i = 0; i < kClaims / 2; ++i) {
    server_.Remove("claim-u" + std::to_string(i));
    writer_->OnClaim(MakeEvent(ClaimChange::kReleased, "u" + std::to_string(i)));
  }
  server_.FailWith(nullptr);
  ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  for (int i = kClaims / 2; i < kClaims; ++i) EXPECT_THAT(Devices("u" + std::to_string(i)), SizeIs(1));
  EXPECT_EQ(writer_->state().claims, static_cast<std::size_t>(kClaims / 2));
  EXPECT_EQ(writer_->state().waiting, 0U);
}

TEST_F(StatusWriterTest, ASlowServerHoldsNobodyAndSeesFourCallsAtMost) {
  std::atomic<bool> open = false;
  server_.FailWith([&](const std::string&) {
    while (!open) std::this_thread::sleep_for(milliseconds(1));
    return absl::OkStatus();
  });
  for (int i = 0; i < 40; ++i) {
    PutClaim("u" + std::to_string(i));
    for (int again = 0; again < 5; ++again) writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, "u" + std::to_string(i)));
  }
  open = true;
  ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  EXPECT_LE(server_.most_in_flight, 4);
  EXPECT_EQ(server_.patches, 40);
}

TEST_F(StatusWriterTest, APreparedShareWaitsForAMomentAndBadNewsDoesNot) {
  StatusWriterOptions options = Fast();
  options.prepared_delay = std::chrono::hours(1);
  writer_.emplace(server_, options);
  PutClaim("u1");
  PutClaim("u2");
  writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, "u1"));
  writer_->OnClaim(MakeEvent(ClaimChange::kReleased, "u1"));  // nothing was written, nothing is to go
  Tell(MakeEvent(ClaimChange::kRefused, "u2", 50'000'000, absl::ResourceExhaustedError("full")));
  EXPECT_EQ(server_.patches, 1);
  EXPECT_THAT(Devices("u1"), IsEmpty());
  writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, "u1"));
  Tell(MakeEvent(ClaimChange::kDrifted, "u1", 1, absl::NotFoundError("gone")));
  EXPECT_THAT(Devices("u1"), SizeIs(1));
}

TEST_F(StatusWriterTest, ThereIsRoomForSoManyClaims) {
  StatusWriterOptions options = Fast();
  options.max_claims = 2;
  writer_.emplace(server_, options);
  for (const std::string uid : {"u1", "u2", "u3"}) {
    PutClaim(uid);
    Tell(MakeEvent(ClaimChange::kPrepared, uid));
  }
  EXPECT_EQ(writer_->state().dropped, 1U);
  EXPECT_THAT(Devices("u3"), IsEmpty());
}

TEST_F(StatusWriterTest, HealthReachesEveryShareOfTheDevice) {
  PutClaim("u1");
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  writer_->SetHealth("uplink", "eth1", {ConditionStatus::kFalse, "Unhealthy", "no carrier", {}});
  ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  EXPECT_EQ(Condition(Devices("u1")[0], "Healthy").at("message").as_string(), "no carrier");
  PutClaim("u2");
  Tell(MakeEvent(ClaimChange::kPrepared, "u2"));
  EXPECT_EQ(StatusOfCondition(Devices("u2")[0], "Healthy"), "False");
}

TEST_F(StatusWriterTest, LastWordWinsWhateverThreadsAndFailures) {
  std::atomic<unsigned> calls = 0;
  server_.FailWith([&](const std::string&) { return calls++ % 3 == 0 ? absl::UnavailableError("now and then") : absl::OkStatus(); });
  for (int i = 0; i < 8; ++i) PutClaim("u" + std::to_string(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      const std::string uid = "u" + std::to_string(i);
      for (int round = 0; round < 20; ++round) {
        writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, uid));
        writer_->OnClaim(MakeEvent(ClaimChange::kDrifted, uid, 1, absl::NotFoundError("gone")));
        writer_->OnClaim(MakeEvent(ClaimChange::kRepaired, uid));
        writer_->OnClaim(MakeEvent(ClaimChange::kReleased, uid));
      }
      if (i % 2 == 0) writer_->OnClaim(MakeEvent(ClaimChange::kPrepared, uid));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer_->WaitUntilWritten(Soon()));
  for (int i = 0; i < 8; ++i) {
    const json::array devices = Devices("u" + std::to_string(i));
    ASSERT_THAT(devices, SizeIs(i % 2 == 0 ? 1 : 0)) << i;
    if (i % 2 == 0) { EXPECT_EQ(StatusOfCondition(devices[0], "Enforced"), "True"); }
  }
}

TEST(DeviceStatus, IsBoundedAndReadBackAsItWasWritten) {
  ClaimEvent event = MakeEvent(ClaimChange::kRefused, "u1", 50'000'000, absl::InternalError(std::string(5000, 'x')));
  EXPECT_LE(StatusOf(event, {}).at(0).prepared.message.size(), 1024U);
  event = MakeEvent(ClaimChange::kPrepared, "u1");
  event.shares[0].applied->limits.resize(400, event.shares[0].applied->limits[0]);
  const json::object entry = EncodeDeviceStatus(StatusOf(event, {}).at(0), 3);
  EXPECT_LE(ToJsonText(entry.at("data")).size(), 10U * 1024);
  EXPECT_TRUE(entry.at("data").at("truncated").as_bool());
  EXPECT_EQ(Condition(entry, "Prepared").at("observedGeneration").as_int64(), 3);

  event = MakeEvent(ClaimChange::kPrepared, "u1");
  event.shares[0].applied->network->ips = {"10.0.0.2/24", "fd00::1/64"};
  const std::vector<DeviceStatus> devices = StatusOf(event, std::chrono::system_clock::now());
  const json::object claim{{"status", {{"devices", json::array{EncodeDeviceStatus(devices[0], 0)}}}}};
  EXPECT_TRUE(SaysTheSame(DecodeDeviceStatuses(claim, kDriver), devices));
  EXPECT_THAT(DecodeDeviceStatuses(json::object{{"status", 7}}, kDriver), IsEmpty());
  EXPECT_THAT(Allocated(devices, claim), IsEmpty());
}

TEST(DeviceStatus, WhatEnforcesNothingIsNotEnforced) {
  ClaimEvent event = MakeEvent(ClaimChange::kPrepared, "u1");
  event.shares[0].applied->limits[0].enforcement = Enforcement::kNone;
  EXPECT_EQ(StatusOf(event, {})[0].enforced.reason, "NotEnforced");
  event.shares[0].applied->limits.clear();
  EXPECT_EQ(StatusOf(event, {})[0].enforced.reason, "NoLimits");
  event.shares[0].mode = Mode::kWhole;
  EXPECT_EQ(StatusOf(event, {})[0].enforced.status, ConditionStatus::kTrue);
  event.shares.push_back(event.shares[0]);  // two requests with admin access to one device are one entry
  EXPECT_THAT(StatusOf(event, {}), SizeIs(1));
}

// ---- Events

class EventsTest : public ::testing::Test {
 protected:
  static EventOptions Fast() {
    EventOptions options;
    options.node_name = "node-1";
    options.series_interval = milliseconds(1);
    options.retry = milliseconds(1);
    return options;
  }
  void Tell(const ClaimEvent& event) {
    recorder_->OnClaim(event);
    ASSERT_TRUE(recorder_->WaitUntilWritten(Soon()));
  }
  std::vector<std::string> Reasons() {
    std::vector<std::string> reasons;
    for (const json::object& event : server_.Events()) reasons.emplace_back(event.at("reason").as_string());
    std::sort(reasons.begin(), reasons.end());
    return reasons;
  }
  FakeApiServer server_;
  std::optional<EventRecorder> recorder_{std::in_place, server_, Fast()};
};

TEST_F(EventsTest, ADriftAndItsEndAreEventsOfTheClaim) {
  Tell(MakeEvent(ClaimChange::kPrepared, "u1"));
  Tell(MakeEvent(ClaimChange::kDrifted, "u1", 1, absl::FailedPreconditionError("bandwidth egress: 50000000 was granted, 1 is in force")));
  ASSERT_THAT(server_.Events(), SizeIs(1));
  const json::object drift = server_.Events()[0];
  EXPECT_EQ(drift.at("reason").as_string(), "LimitDrift");
  EXPECT_EQ(drift.at("type").as_string(), "Warning");
  EXPECT_EQ(drift.at("reportingController").as_string(), "tranche.dev/host");
  EXPECT_EQ(drift.at("reportingInstance").as_string(), "node-1");
  EXPECT_EQ(drift.at("metadata").at("namespace").as_string(), "team-a");
  EXPECT_EQ(ToJsonText(drift.at("regarding")),
            R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","name":"claim-u1","uid":"u1","namespace":"team-a"})");
  EXPECT_THAT(std::string(drift.at("note").as_string()), AllOf(HasSubstr(kDriver), HasSubstr("1 is in force")));
  Tell(MakeEvent(ClaimChange::kRepaired, "u1"));
  EXPECT_THAT(Reasons(), ElementsAre("LimitDrift", "LimitRestored"));
}

TEST_F(EventsTest, EachFailureHasItsReason) {
  Tell(MakeEvent(ClaimChange::kRefused, "u1", 1, absl::NotFoundError("no device")));
  Tell(MakeEvent(ClaimChange::kReleaseFailed, "u2", 1, absl::UnavailableError("busy")));
  Tell(MakeEvent(ClaimChange::kDrifted, "u3", 1, absl::NotFoundError("gone")));
  Tell(MakeEvent(ClaimChange::kRepaired, "u3"));
  recorder_->RecordNode(EventType::kWarning, "Configure", "ConfigurationRefused", std::string(3000, 'x'));
  ASSERT_TRUE(recorder_->WaitUntilWritten(Soon()));
  EXPECT_THAT(Reasons(), ElementsAre("ConfigurationRefused", "LimitDrift", "PrepareFailed", "ShareRemade", "UnprepareFailed"));
  for (const json::object& event : server_.Events()) {
    EXPECT_LE(event.at("note").as_string().size(), 1024U);
    if (event.at("reason").as_string() != "ConfigurationRefused") continue;
    EXPECT_EQ(event.at("metadata").at("namespace").as_string(), "default");
    EXPECT_EQ(event.at("regarding").at("kind").as_string(), "Node");
  }
}

TEST_F(EventsTest, TheSameAgainIsCounted) {
  for (int i = 0; i < 25; ++i) recorder_->OnClaim(MakeEvent(ClaimChange::kRefused, "u1", 1, absl::NotFoundError("no device")));
  const auto count = [this] {
    const auto events = server_.Events();
    return events.size() == 1 && events[0].contains("series") ? events[0].at("series").at("count").as_int64() : 0;
  };
  while (count() < 25) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(server_.creates, 1);
}

TEST_F(EventsTest, OneObjectHasSoManyEventsAtMost) {
  for (int i = 0; i < 100; ++i) recorder_->OnClaim(MakeEvent(ClaimChange::kRefused, "u1", 1, absl::NotFoundError(std::to_string(i))));
  Tell(MakeEvent(ClaimChange::kRefused, "u2", 1, absl::NotFoundError("other")));
  EXPECT_EQ(server_.creates, 11);
  EXPECT_EQ(recorder_->state().dropped, 90U);
}

TEST_F(EventsTest, AnAbsentServerIsTriedAFewTimes) {
  std::atomic<int> failures = 2;
  server_.FailWith([&](const std::string&) { return failures-- > 0 ? absl::UnavailableError("away") : absl::OkStatus(); });
  Tell(MakeEvent(ClaimChange::kRefused, "u1", 1, absl::NotFoundError("x")));
  EXPECT_THAT(server_.Events(), SizeIs(1));
  server_.FailWith([](const std::string&) { return absl::PermissionDeniedError("forbidden"); });
  Tell(MakeEvent(ClaimChange::kRefused, "u2", 1, absl::NotFoundError("x")));
  EXPECT_THAT(server_.Events(), SizeIs(1));
  EXPECT_EQ(recorder_->state().dropped, 1U);
}

}  // namespace
}  // namespace tranche::kube
