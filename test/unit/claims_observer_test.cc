// What an observer hears of a claim's life, limits that are changed by hand, and devices that are given out before their last holder ended.
#include "base/status.h"
#include "claims_fixture.h"

namespace tranche::claims {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Code = absl::StatusCode;
using enum ClaimChange;

class Listener final : public Observer {
 public:
  void OnClaim(const ClaimEvent& event) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::vector<ClaimEvent> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::vector<ClaimChange> Changes() {
    std::vector<ClaimChange> changes;
    for (const ClaimEvent& event : Take()) changes.push_back(event.change);
    return changes;
  }

 private:
  std::mutex mutex_;
  std::vector<ClaimEvent> events_;
};

class ObserverTest : public ::testing::Test {
 protected:
  ObserverTest() { Restart(); }
  void Restart() {
    node_.Stop();
    node_.store = node_.OpenStore();
    node_.claims = std::make_unique<Claims>(
        Dependencies{.store = *node_.store,
                     .inventory = node_.inventory,
                     .reader = node_.reader,
                     .backend = [this](const std::string&) { return node_.loaded ? std::shared_ptr<backend::Backend>(node_.backend) : nullptr; },
                     .cdi_directory = node_.root() + "/cdi",
                     .observer = &listener_});
  }
  AppliedShare& Applied() { return node_.backend->applied.begin()->second.second; }
  absl::StatusOr<std::vector<Repair>> Verify() { return node_.claims->VerifyAll(Node::Soon()); }

  Listener listener_;
  Node node_;
};

TEST_F(ObserverTest, HearsOfAClaimFromPrepareToUnprepare) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  const std::vector<ClaimEvent> events = listener_.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].change, kPrepared);
  EXPECT_EQ(events[0].driver, kDriver);
  EXPECT_EQ(events[0].claim, Node::Reference(claim));
  EXPECT_EQ(events[0].shares, node_.Shares());
  EXPECT_EQ(events[0].allocation_version, node_.Row("uid-1")->allocation_version);
  ASSERT_TRUE(node_.Unprepare(claim).ok());
  ASSERT_TRUE(node_.Unprepare(claim).ok());
  EXPECT_THAT(listener_.Changes(), ElementsAre(kReleased, kReleased));
}

TEST_F(ObserverTest, HearsWhyAPrepareWasRefused) {
  EXPECT_FALSE(node_.Prepare(MakeClaim("uid-1", "50M", "eth9-shared")).ok());
  std::vector<ClaimEvent> events = listener_.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].change, kRefused);
  EXPECT_EQ(events[0].why.code(), Code::kNotFound);
  ASSERT_THAT(events[0].shares, SizeIs(1));  // its address, so that the claim's status can say it
  EXPECT_EQ(events[0].shares[0].key, (ShareKey{"uid-1", "nic", kDriver, kPool, "eth9-shared", ShareIdOf("uid-1")}));

  node_.backend->refuse = [](const backend::PrepareItem&) { return absl::UnavailableError("link down"); };
  EXPECT_FALSE(node_.Prepare(MakeClaim("uid-2", "50M")).ok());
  events = listener_.Take();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].change, kRefused);
  EXPECT_THAT(std::string(events[0].why.message()), HasSubstr("link down"));
}

TEST_F(ObserverTest, AnApiThatDoesNotAnswerIsNoNews) {
  node_.reader.error = absl::UnavailableError("no route");
  EXPECT_FALSE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  EXPECT_THAT(listener_.Changes(), IsEmpty());
}

TEST_F(ObserverTest, ASecondPodThatIsRefusedLeavesTheClaimPrepared) {
  Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  claim.reserved_for.push_back({"pods", "other", "pod-2"});
  EXPECT_EQ(node_.Prepare(claim).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(listener_.Changes(), ElementsAre(kPrepared, kRejoinRefused));
  EXPECT_EQ(node_.backend->applied.size(), 1U);
}

TEST_F(ObserverTest, AReleaseThatFailsIsHeardUntilItIsDone) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.backend->unprepare_error = absl::UnavailableError("hung");
  EXPECT_FALSE(node_.Unprepare(claim).ok());
  node_.backend->unprepare_error = absl::OkStatus();
  ASSERT_TRUE(node_.Unprepare(claim).ok());
  EXPECT_THAT(listener_.Changes(), ElementsAre(kPrepared, kReleaseFailed, kReleased));
}

TEST_F(ObserverTest, ALimitChangedByHandIsPutRight) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-2", "50M")).ok());
  listener_.Take();
  Applied().limits.front().in_force = 900'000'000;  // still "complete" to the backend
  const auto repairs = Verify();
  ASSERT_TRUE(repairs.ok()) << repairs.status();
  ASSERT_THAT(*repairs, SizeIs(1));
  EXPECT_EQ(repairs->front().what, "re-made");
  EXPECT_EQ(Applied().limits.front().in_force, 50'000'000);
  std::vector<ClaimEvent> events = listener_.Take();
  std::erase_if(events, [](const ClaimEvent& event) { return event.change == kVerified; });
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].change, kDrifted);
  EXPECT_THAT(std::string(events[0].why.message()),
              AllOf(HasSubstr("bandwidth egress"), HasSubstr("50000000 was granted"), HasSubstr("900000000 is in force")));
  EXPECT_EQ(events[0].shares[0].applied->limits[0].in_force, 900'000'000);
  EXPECT_EQ(events[0].shares[0].applied->applied, AppliedState::kPartial);
  EXPECT_EQ(events[1].change, kRepaired);
  EXPECT_EQ(events[1].shares[0].applied->limits[0].in_force, 50'000'000);
  EXPECT_EQ(events[1].claim.uid, "uid-1");
  EXPECT_EQ(node_.backend->prepared_items, 3);
}

TEST_F(ObserverTest, ALimitThatVanishedOrIsHalfThereIsPutRight) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  node_.backend->applied.clear();
  ASSERT_TRUE(Verify().ok());
  EXPECT_THAT(listener_.Changes(), ElementsAre(kPrepared, kDrifted, kRepaired));
  Applied().applied = AppliedState::kPartial;
  Applied().limits.clear();
  ASSERT_TRUE(Verify().ok());
  const auto events = listener_.Take();
  ASSERT_FALSE(events.empty());
  EXPECT_THAT(std::string(events[0].why.message()), HasSubstr("no limit is in force"));
  EXPECT_EQ(events.back().change, kRepaired);
}

TEST_F(ObserverTest, ALimitThatCannotBePutRightIsReportedAndNotTriedAtOnce) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  node_.backend->applied.clear();
  node_.backend->refuse = [](const backend::PrepareItem&) { return absl::UnavailableError("link down"); };
  EXPECT_EQ(Verify().status().code(), Code::kUnavailable);
  EXPECT_THAT(listener_.Changes(), ElementsAre(kPrepared, kDrifted, kDrifted));
  EXPECT_TRUE(Verify().ok());
  EXPECT_EQ(node_.backend->prepare_calls, 2);
  EXPECT_EQ(node_.claims->VerifiedAt("uplink"), std::nullopt);
}

TEST_F(ObserverTest, WhileAllIsWellAVerificationWritesNothing) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  listener_.Take();
  ASSERT_TRUE(Verify().ok());  // the fake never set verified_at: older than any interval
  EXPECT_THAT(listener_.Changes(), ElementsAre(kVerified));
  const auto stored = node_.Shares().front().applied->limits.front().verified_at;
  EXPECT_NE(stored, WallTime{});
  ASSERT_TRUE(Verify().ok());
  EXPECT_THAT(listener_.Changes(), IsEmpty());
  EXPECT_EQ(node_.Shares().front().applied->limits.front().verified_at, stored);
  EXPECT_GT(*node_.claims->VerifiedAt("uplink"), stored);
  EXPECT_EQ(node_.backend->prepare_calls, 1);
}

TEST_F(ObserverTest, AfterAStartEveryClaimIsAnnouncedOnce) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(node_.Prepare(MakeClaim("uid-" + std::to_string(i), "50M")).ok());
  ASSERT_TRUE(Verify().ok());
  Restart();
  listener_.Take();
  ASSERT_TRUE(Verify().ok());
  EXPECT_THAT(listener_.Take(), SizeIs(5));
  ASSERT_TRUE(Verify().ok());
  EXPECT_THAT(listener_.Take(), IsEmpty());
}

TEST_F(ObserverTest, WithoutSharesNoBackendIsAsked) {
  node_.backend->list_error = absl::UnavailableError("must not be asked");
  EXPECT_TRUE(Verify().ok());
}

TEST_F(ObserverTest, WhatIsNotOursIsReportedAndLeftAlone) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  listener_.Take();
  Applied().applied = AppliedState::kForeign;
  const auto repairs = Verify();
  ASSERT_TRUE(repairs.ok());
  ASSERT_THAT(*repairs, SizeIs(1));
  EXPECT_EQ(repairs->front().what, "quarantined");
  EXPECT_THAT(listener_.Changes(), ElementsAre(kDrifted));
  EXPECT_TRUE(Verify()->empty());
  EXPECT_EQ(node_.backend->prepare_calls, 1);
}

// A force-deleted pod: the control plane gives its device out again before its claim is unprepared.

TEST_F(ObserverTest, AnExclusiveDeviceIsRefusedUntilItsLastHolderEnded) {
  const Claim first = MakeClaim("uid-1", "", "eth1-exclusive", "nic-whole");
  ASSERT_TRUE(node_.Prepare(first).ok());
  const Claim second = MakeClaim("uid-2", "", "eth1-exclusive", "nic-whole");
  const auto refused = node_.Prepare(second);
  EXPECT_TRUE(IsRetryable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), AllOf(HasSubstr("team-a/claim-uid-1"), HasSubstr("UID uid-1"), HasSubstr("eth1-exclusive")));
  ASSERT_TRUE(node_.Unprepare(first).ok());
  EXPECT_TRUE(node_.Prepare(second).ok());
}

TEST_F(ObserverTest, AShareOfAFullParentIsRefusedUntilItsLastHolderEnded) {
  const Claim first = MakeClaim("uid-1", "600M");
  const Claim other = MakeClaim("uid-2", "400M");
  ASSERT_TRUE(node_.Prepare(first).ok());
  ASSERT_TRUE(node_.Prepare(other).ok());
  const Claim second = MakeClaim("uid-3", "600M");
  node_.backend->unprepare_error = absl::UnavailableError("still in use");
  EXPECT_FALSE(node_.Unprepare(first).ok());
  const auto refused = node_.Prepare(second);
  EXPECT_TRUE(IsRetryable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("team-a/claim-uid-1"), HasSubstr("share " + ShareIdOf("uid-1")), HasSubstr("being released"), HasSubstr("team-a/claim-uid-2")));
  EXPECT_EQ(node_.backend->applied.size(), 2U);
  node_.backend->unprepare_error = absl::OkStatus();
  ASSERT_TRUE(node_.Unprepare(first).ok());
  EXPECT_TRUE(node_.Prepare(second).ok());
  EXPECT_FALSE(node_.backend->over_granted);
}

}  // namespace
}  // namespace tranche::claims
