#include "claims_fixture.h"

#include "base/status.h"

namespace tranche::claims {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Code = absl::StatusCode;

class ClaimsTest : public ::testing::Test {
 protected:
  void ExpectRefused(const Claim& claim, Code code, const std::string& text) {
    const auto answer = node_.Prepare(claim);
    EXPECT_EQ(answer.status().code(), code) << answer.status();
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(text));
    node_.ExpectNothingLeft();
  }
  std::vector<std::string> Repairs(const absl::StatusOr<std::vector<Repair>>& repairs) {
    EXPECT_TRUE(repairs.ok()) << repairs.status();
    std::vector<std::string> what;
    if (repairs.ok()) {
      for (const Repair& repair : *repairs) what.push_back(repair.what);
    }
    return what;
  }
  Node node_;
};

TEST_F(ClaimsTest, PrepareAnswersTheFullListAndLeavesRowFileAndRecord) {
  const auto answer = node_.Prepare(MakeClaim("uid-1", "50M"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_THAT(*answer, SizeIs(1));
  EXPECT_THAT(answer->front().request_names, ElementsAre("nic"));
  EXPECT_EQ(answer->front().device, "eth1-shared");
  EXPECT_EQ(answer->front().pool, kPool);
  EXPECT_EQ(answer->front().share_id, ShareIdOf("uid-1"));
  const ShareKey key = node_.Shares().front().key;
  EXPECT_THAT(answer->front().cdi_device_ids, ElementsAre(cdi::DeviceId(kDriver, key)));
  EXPECT_EQ(node_.Cdi().Read(kDriver, "uid-1")->devices.front().name, cdi::DeviceName(key));
  EXPECT_EQ(node_.Row("uid-1")->state, store::ClaimState::kPrepared);
  EXPECT_EQ(node_.Shares().front().state, store::ShareState::kApplied);
  EXPECT_EQ(node_.backend->last_item.configuration, R"({"mtu":1500})");
  EXPECT_THAT(node_.backend->last_item.pod_uids, ElementsAre("pod-uid-1"));
  ASSERT_THAT(node_.Audit(), SizeIs(1));
  const AuditRecord record = node_.Audit().front();
  EXPECT_EQ(record.actor, "kubelet");
  EXPECT_EQ(record.tenant, "team-a");
  EXPECT_EQ(record.share_id, ShareIdOf("uid-1"));
  EXPECT_EQ(record.capacity, R"({"bandwidth":"50M"})");
  EXPECT_EQ(record.outcome, "OK");
  EXPECT_TRUE(record.policy_version.starts_with("sha256:"));
  EXPECT_EQ(record.allocation_version, node_.Row("uid-1")->allocation_version);
}

TEST_F(ClaimsTest, UnprepareLeavesNothingAndMayBeRepeated) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.Restart();
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  EXPECT_EQ(node_.Audit().back().action, "unprepare");
}

TEST_F(ClaimsTest, UnprepareOfAnUnknownClaimRemovesItsFile) {
  ContainerEdits edits;
  edits.env = {"SHARE=1"};
  ASSERT_TRUE(node_.Cdi().Write(kDriver, "uid-1", {{"uid-1-abc", edits}}).ok());
  EXPECT_TRUE(node_.Unprepare(MakeClaim("uid-1", "50M")).ok());
  EXPECT_TRUE(node_.Files().empty());
}

TEST_F(ClaimsTest, UnprepareWithAnotherConfiguration) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.inventory.SetConfiguration({});
  node_.Restart();
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, UnprepareNeedsTheBackend) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.loaded = false;
  const absl::Status status = node_.Unprepare(claim);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("uplink"));
  EXPECT_EQ(node_.Row("uid-1")->state, store::ClaimState::kUnpreparing);
  node_.loaded = true;
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, AnotherUidIsRefused) {
  Claim claim = MakeClaim("uid-2", "50M");
  node_.reader.Put("uid-1", claim);
  const auto answers = node_.claims->Prepare(kDriver, {{"team-a", "claim", "uid-1"}}, Node::Soon());
  EXPECT_EQ(answers.at("uid-1").status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(answers.at("uid-1").status().message()), HasSubstr("uid-2"));
}

TEST_F(ClaimsTest, RefusesWhatIsNotAllocatedOrReserved) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.allocation.reset();
  ExpectRefused(claim, Code::kFailedPrecondition, "not allocated");
  claim = MakeClaim("uid-1", "50M");
  claim.reserved_for.clear();
  ExpectRefused(claim, Code::kFailedPrecondition, "not reserved");
}

TEST_F(ClaimsTest, OtherDriversResultsAreNotOurs) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.allocation->results.front().driver = "gpu.example.com";
  const auto answer = node_.Prepare(claim);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->empty());
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, RefusesADeviceThatIsNotHere) { ExpectRefused(MakeClaim("uid-1", "50M", "eth9-shared"), Code::kNotFound, "eth9-shared"); }

TEST_F(ClaimsTest, RefusesAShareWithoutShareId) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.allocation->results.front().share_id.reset();
  ExpectRefused(claim, Code::kFailedPrecondition, "shareID");
}

TEST_F(ClaimsTest, RefusesClassesThatDoNotFit) {
  ExpectRefused(MakeClaim("uid-1", "50M", "eth1-shared", "unknown"), Code::kPermissionDenied, "not configured");
  ExpectRefused(MakeClaim("uid-1", "50M", "eth1-shared", "nic-whole"), Code::kPermissionDenied, "offer");
  ExpectRefused(MakeClaim("uid-1", "50M", "eth1-shared", "nic-hard"), Code::kFailedPrecondition, "hard");
}

TEST_F(ClaimsTest, RefusesANamespaceThatIsNotAllowedAndRecordsIt) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.namespace_name = "other";
  ExpectRefused(claim, Code::kPermissionDenied, "other");
  ASSERT_THAT(node_.Audit(), SizeIs(1));
  EXPECT_EQ(node_.Audit().front().outcome, "PERMISSION_DENIED");
  EXPECT_EQ(node_.Audit().front().tenant, "other");
}

TEST_F(ClaimsTest, SubrequestsUseTheirOwnClassAndAnswerWithTheBaseName) {
  Claim claim = MakeClaim("uid-1", "50M");
  DeviceRequest parent, wrong, right;
  parent.name = "nic";
  wrong.name = "best";
  wrong.device_class = "nic-whole";
  right.name = "good";
  right.device_class = "nic-shared";
  parent.first_available = {wrong, right};
  claim.requests = {parent};
  claim.allocation->results.front().request = "nic/good";
  const auto answer = node_.Prepare(claim);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->front().request_names, ElementsAre("nic"));
  EXPECT_EQ(node_.Shares().front().key.request, "nic/good");
}

TEST_F(ClaimsTest, MergesTheParametersThatReachTheRequest) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.allocation->config = {{ConfigSource::kClaim, {"nic"}, kDriver, R"({"mtu":9000})"},
                              {ConfigSource::kClaim, {"other"}, kDriver, R"({"bad":1})"},
                              {ConfigSource::kClaim, {}, "gpu.example.com", R"({"bad":1})"},
                              {ConfigSource::kClass, {}, kDriver, R"({"bad":1})"}};
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_EQ(node_.backend->last_item.configuration, R"({"mtu":9000})");
}

TEST_F(ClaimsTest, RefusesAParameterThatTheClassKeeps) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.allocation->config = {{ConfigSource::kClaim, {}, kDriver, R"({"subnet":"10.0.0.0/8"})"}};
  ExpectRefused(claim, Code::kPermissionDenied, "subnet");
}

TEST_F(ClaimsTest, CountsWhatTheAllocationSaysAndTheDefaultWhereItIsSilent) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "55M")).ok());
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-2", "")).ok());
  EXPECT_EQ(node_.backend->Sum("eth1"), 105'000'000);
}

TEST_F(ClaimsTest, RefusesMoreThanIsLeftBeforeTheBackendIsCalled) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "700M")).ok());
  const auto answer = node_.Prepare(MakeClaim("uid-2", "310M"));
  EXPECT_EQ(answer.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(node_.backend->prepare_calls, 1);
  EXPECT_FALSE(node_.Row("uid-2").has_value());
  EXPECT_EQ(node_.Audit().back().outcome, "RESOURCE_EXHAUSTED");
  EXPECT_EQ(node_.Audit().back().share_id, ShareIdOf("uid-2"));
  EXPECT_TRUE(node_.Prepare(MakeClaim("uid-3", "300M")).ok());
}

TEST_F(ClaimsTest, TwoSharesOfOneClaimAreCountedTogether) {
  Claim claim = MakeClaim("uid-1", "600M");
  claim.allocation->results.push_back(claim.allocation->results.front());
  claim.allocation->results.back().share_id = ShareIdOf("second");
  ExpectRefused(claim, Code::kResourceExhausted, "bandwidth");
}

TEST_F(ClaimsTest, ClaimsOfOneCallAreAnsweredEachForItself) {
  std::vector<ClaimReference> references;
  for (const auto& [uid, amount] : std::map<std::string, std::string>{{"uid-1", "600M"}, {"uid-2", "600M"}, {"uid-3", "400M"}}) {
    node_.reader.Put(uid, MakeClaim(uid, amount));
    references.push_back(Node::Reference(MakeClaim(uid, amount)));
  }
  references.push_back({"team-a", "gone", "uid-4"});
  const auto answers = node_.claims->Prepare(kDriver, references, Node::Soon());
  ASSERT_THAT(answers, SizeIs(4));
  EXPECT_TRUE(answers.at("uid-1").ok());
  EXPECT_EQ(answers.at("uid-2").status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(answers.at("uid-3").ok());
  EXPECT_EQ(answers.at("uid-4").status().code(), Code::kNotFound);
  EXPECT_EQ(node_.backend->prepare_calls, 1);
  EXPECT_EQ(node_.backend->prepared_items, 2);
  for (const auto& [uid, status] : node_.claims->Unprepare(kDriver, references, Node::Soon())) EXPECT_TRUE(status.ok()) << uid << status;
  EXPECT_EQ(node_.backend->unprepare_calls, 1);
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, AnExclusiveHolderIsNamed) {
  const Claim holder = MakeClaim("uid-1", "", "eth1-exclusive", "nic-whole");
  ASSERT_TRUE(node_.Prepare(holder).ok());
  for (const Claim& late : {MakeClaim("uid-2", "", "eth1-exclusive", "nic-whole"), MakeClaim("uid-3", "50M")}) {
    const auto answer = node_.Prepare(late);
    EXPECT_TRUE(IsRetryable(answer.status())) << answer.status();
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr("uid-1"));
  }
  ASSERT_TRUE(node_.Unprepare(holder).ok());
  EXPECT_TRUE(node_.Prepare(MakeClaim("uid-3", "50M")).ok());
}

TEST_F(ClaimsTest, ADrainingOfferTakesNoNewClaimAndEndsWithItsLast) {
  const Claim first = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(first).ok());
  config::HostConfiguration without = node_.inventory.Current()->configuration;
  std::erase_if(without.drivers.front().offers, [](const auto& offer) { return offer.name == "shared"; });
  node_.inventory.SetConfiguration(without);
  ASSERT_NE(node_.inventory.Current()->Find(kDriver, kPool, "eth1-shared"), nullptr);
  EXPECT_EQ(node_.Prepare(MakeClaim("uid-2", "50M")).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(node_.Prepare(first).ok());
  ASSERT_TRUE(node_.Unprepare(first).ok());
  EXPECT_EQ(node_.inventory.Current()->Find(kDriver, kPool, "eth1-shared"), nullptr);
}

TEST_F(ClaimsTest, ARetryAnswersAgainWithoutTheBackend) {
  const Claim claim = MakeClaim("uid-1", "50M");
  const auto first = node_.Prepare(claim);
  node_.Restart();
  const auto second = node_.Prepare(claim);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(node_.backend->prepare_calls, 1);
}

TEST_F(ClaimsTest, ARetryAfterARebootWritesTheFileAgain) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  ASSERT_TRUE(node_.Cdi().Remove(kDriver, "uid-1").ok());
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_TRUE(node_.Cdi().Read(kDriver, "uid-1").ok());
}

TEST_F(ClaimsTest, AnotherAllocationIsRefusedUntilUnprepared) {
  Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  const std::string version = node_.Row("uid-1")->allocation_version;
  claim.allocation->results.front().consumed_capacity["bandwidth"] = *Quantity::Parse("60M");
  EXPECT_EQ(node_.Prepare(claim).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(node_.Unprepare(claim).ok());
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_NE(node_.Row("uid-1")->allocation_version, version);
  EXPECT_EQ(node_.Row("uid-1")->epoch, 2);
}

TEST_F(ClaimsTest, ASecondPodIsTheBackendsToRefuse) {
  Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  claim.reserved_for.push_back({"pods", "two", "pod-2"});
  EXPECT_THAT(std::string(node_.Prepare(claim).status().message()), HasSubstr("one pod"));
  EXPECT_EQ(node_.Row("uid-1")->state, store::ClaimState::kPrepared);
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_EQ(node_.Audit().back().outcome, "FAILED_PRECONDITION");
  claim.reserved_for = {{"pods", "two", "pod-2"}};  // the first one is gone
  EXPECT_TRUE(node_.Prepare(claim).ok());
  EXPECT_THAT(node_.Row("uid-1")->pod_uids, ElementsAre("pod-2"));
}

TEST_F(ClaimsTest, AFailureOfTheBackendIsUndone) {
  node_.backend->break_midway = [](const backend::PrepareItem&) { return absl::InternalError("netlink: no"); };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kInternal, "netlink: no");
  ASSERT_THAT(node_.Audit(), SizeIs(1));
  EXPECT_EQ(node_.Audit().front().outcome, "INTERNAL");
}

TEST_F(ClaimsTest, OneFailedShareTakesTheClaimsOthersWithIt) {
  Claim claim = MakeClaim("uid-1", "100M");
  claim.allocation->results.push_back(claim.allocation->results.front());
  claim.allocation->results.back().device = "eth2-shared";
  node_.backend->refuse = [](const backend::PrepareItem& item) { return item.physical == "eth2" ? absl::UnavailableError("eth2 is down") : absl::OkStatus(); };
  ExpectRefused(claim, Code::kUnavailable, "eth2 is down");
}

TEST_F(ClaimsTest, ALostAnswerIsUndone) {
  node_.backend->lose_answers = true;
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kInternal, "no answer");
}

TEST_F(ClaimsTest, EditsThatAreNotAllowedAreRefused) {
  node_.backend->tamper = [](AppliedShare& share) { share.edits.mounts = {{"/etc", "/etc", {}}}; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kPermissionDenied, "/etc");
}

TEST_F(ClaimsTest, ALimitThatIsNotWhatWasAskedIsRefused) {
  node_.backend->tamper = [](AppliedShare& share) { share.limits.front().in_force = 60'000'000; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kFailedPrecondition, "60000000");
  node_.backend->tamper = [](AppliedShare& share) { share.limits.front().in_force = 40'000'000; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kFailedPrecondition, "40000000");
  node_.backend->tamper = [](AppliedShare& share) { share.limits.front().requested = share.limits.front().in_force = 60'000'000; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kFailedPrecondition, "granted");
  node_.backend->tamper = [](AppliedShare& share) { share.limits.clear(); };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kFailedPrecondition, "no limit in force for bandwidth");
  node_.backend->tamper = [](AppliedShare& share) { share.limits.front().capacity = "bandwith"; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kFailedPrecondition, "no limit in force for bandwidth");
  node_.backend->tamper = [](AppliedShare& share) { share.applied = AppliedState::kPartial; };
  ExpectRefused(MakeClaim("uid-1", "50M"), Code::kInternal, "partial");
  node_.backend->tamper = [](AppliedShare& share) { share.limits.front().in_force = 49'500'000; };
  EXPECT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
}

TEST_F(ClaimsTest, WithoutTheBackendNothingIsTaken) {
  node_.loaded = false;
  const auto answer = node_.Prepare(MakeClaim("uid-1", "50M"));
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  node_.loaded = true;
  EXPECT_TRUE(node_.claims->Reconcile("", Node::Soon()).ok());
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, AnApiThatDoesNotAnswerIsNoRefusal) {
  node_.reader.error = absl::UnavailableError("API server down");
  EXPECT_EQ(node_.Prepare(MakeClaim("uid-1", "50M")).status().code(), Code::kUnavailable);
  EXPECT_TRUE(node_.Audit().empty());
}

TEST_F(ClaimsTest, APassedDeadlineIsUndone) {
  const Claim claim = MakeClaim("uid-1", "50M");
  node_.reader.Put("uid-1", claim);
  const auto answers = node_.claims->Prepare(kDriver, {Node::Reference(claim)}, DeadlineIn(std::chrono::milliseconds(-1)));
  EXPECT_TRUE(IsRetryable(answers.at("uid-1").status()));
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, ADeviceWithoutEditsHasNoCdiName) {
  node_.backend->with_edits = false;
  const auto answer = node_.Prepare(MakeClaim("uid-1", "50M"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->front().cdi_device_ids.empty());
  EXPECT_TRUE(node_.Files().empty());
  EXPECT_TRUE(Repairs(node_.claims->Reconcile("", Node::Soon())).empty());
}

// What is left when the host dies at its n-th durable step, before or after the commit.
class ClaimsCrashTest : public ClaimsTest, public ::testing::WithParamInterface<std::tuple<int, bool>> {
 protected:
  void Arm() {
    node_.store->writes_to_live = std::get<0>(GetParam());
    node_.store->commit_last = std::get<1>(GetParam());
  }
};

TEST_P(ClaimsCrashTest, PrepareIsUndoneByReconcileAndWorksAgain) {
  const Claim claim = MakeClaim("uid-1", "50M");
  Arm();
  const bool answered = node_.Prepare(claim).ok();
  EXPECT_FALSE(answered);
  node_.Restart();
  EXPECT_TRUE(node_.claims->Reconcile("", Node::Soon()).ok());
  const bool stands = node_.Row("uid-1").has_value();
  EXPECT_EQ(node_.backend->applied.size(), stands ? 1U : 0U);
  EXPECT_EQ(node_.Files().size(), stands ? 1U : 0U);
  EXPECT_TRUE(node_.Prepare(claim).ok());
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

TEST_P(ClaimsCrashTest, ARetryWithoutReconcileWorksToo) {
  const Claim claim = MakeClaim("uid-1", "50M");
  Arm();
  EXPECT_FALSE(node_.Prepare(claim).ok());
  node_.Restart();
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

TEST_P(ClaimsCrashTest, UnprepareIsFinished) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  Arm();
  EXPECT_FALSE(node_.Unprepare(claim).ok());
  node_.Restart();
  EXPECT_TRUE(node_.claims->Reconcile("", Node::Soon()).ok());
  const bool stands = node_.Row("uid-1").has_value();
  EXPECT_EQ(node_.backend->applied.size(), stands ? 1U : 0U);
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(Steps, ClaimsCrashTest, ::testing::Combine(::testing::Values(1, 2), ::testing::Bool()));

TEST_F(ClaimsTest, PrepareFinishesAnUnfinishedRelease) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.backend->unprepare_error = absl::UnavailableError("busy");
  EXPECT_FALSE(node_.Unprepare(claim).ok());
  EXPECT_FALSE(node_.Prepare(claim).ok());
  node_.backend->unprepare_error = absl::OkStatus();
  EXPECT_TRUE(node_.Prepare(claim).ok());
  EXPECT_EQ(node_.Row("uid-1")->epoch, 2);
}

TEST_F(ClaimsTest, CapacityStaysTakenUntilTheReleaseIsDone) {
  const Claim claim = MakeClaim("uid-1", "1G");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.backend->unprepare_error = absl::UnavailableError("busy");
  EXPECT_FALSE(node_.Unprepare(claim).ok());
  EXPECT_EQ(node_.Prepare(MakeClaim("uid-2", "10M")).status().code(), Code::kResourceExhausted);
}

TEST_F(ClaimsTest, AnIntentOfAnotherLiveHostIsLeftAlone) {
  const Claim claim = MakeClaim("uid-1", "50M");
  node_.store->writes_to_live = 2;
  EXPECT_FALSE(node_.Prepare(claim).ok());
  node_.Restart();
  node_.sole_host = false;
  EXPECT_EQ(node_.Prepare(claim).status().code(), Code::kAborted);
  EXPECT_TRUE(Repairs(node_.claims->Reconcile("", Node::Soon())).empty());
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  node_.sole_host = true;
  EXPECT_THAT(Repairs(node_.claims->Reconcile("", Node::Soon())), ElementsAre("undone"));
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsTest, ReconcileRemakesWhatVanished) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-2", "60M")).ok());
  node_.backend->applied.erase(node_.backend->applied.begin());
  EXPECT_THAT(Repairs(node_.claims->Reconcile("uplink", Node::Soon())), ElementsAre("re-made"));
  EXPECT_EQ(node_.backend->applied.size(), 2U);
  EXPECT_EQ(node_.backend->last_item.state, "made");
  EXPECT_TRUE(Repairs(node_.claims->Reconcile("", Node::Soon())).empty());
}

TEST_F(ClaimsTest, ReconcileCompletesWhatIsPartial) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  node_.backend->applied.begin()->second.second.applied = AppliedState::kPartial;
  EXPECT_THAT(Repairs(node_.claims->Reconcile("", Node::Soon())), ElementsAre("re-made"));
}

TEST_F(ClaimsTest, WhatCannotBeRemadeIsReportedAndTriedAtTheNextPrepare) {
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  node_.backend->applied.clear();
  node_.backend->refuse = [](const backend::PrepareItem&) { return absl::UnavailableError("link down"); };
  EXPECT_THAT(std::string(node_.claims->Reconcile("", Node::Soon()).status().message()), HasSubstr("link down"));
  EXPECT_EQ(node_.Prepare(claim).status().code(), Code::kUnavailable);
  node_.backend->refuse = [](const backend::PrepareItem&) { return absl::OkStatus(); };
  EXPECT_TRUE(node_.Prepare(claim).ok());
  EXPECT_EQ(node_.backend->applied.size(), 1U);
}

TEST_F(ClaimsTest, ReconcileRewritesFilesAndRemovesOrphans) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  // What this store once granted, released, and is there again.
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-8", "50M")).ok());
  AppliedShare orphan = node_.backend->applied.rbegin()->second.second;
  ASSERT_TRUE(node_.Unprepare(MakeClaim("uid-8", "50M")).ok());
  node_.backend->applied[orphan.key] = {"eth1", orphan};
  ASSERT_TRUE(node_.Cdi().Remove(kDriver, "uid-1").ok());
  ASSERT_TRUE(node_.Cdi().Write(kDriver, "uid-9", {{"uid-9-abc", orphan.edits}}).ok());
  AppliedShare foreign = orphan;
  foreign.key.claim_uid = "uid-7";
  foreign.applied = AppliedState::kForeign;
  node_.backend->applied[foreign.key] = {"eth1", foreign};
  EXPECT_THAT(Repairs(node_.claims->Reconcile("", Node::Soon())),
              ::testing::UnorderedElementsAre("rewritten", "removed orphan", "removed orphan", "quarantined"));
  EXPECT_THAT(node_.Files(), ElementsAre("uid-1"));
  EXPECT_EQ(node_.backend->applied.size(), 2U);
}

TEST_F(ClaimsTest, AnUnreachableBackendIsReportedAndNothingIsTakenForLost) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  node_.backend->list_error = absl::UnavailableError("hung");
  EXPECT_EQ(node_.claims->Reconcile("", Node::Soon()).status().code(), Code::kUnavailable);
  EXPECT_EQ(node_.backend->prepare_calls, 1);
  EXPECT_EQ(node_.Shares().size(), 1U);
}

TEST_F(ClaimsTest, AReadyShareKeepsItsEditsWhenTheConfigurationIsGone) {
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "50M")).ok());
  node_.inventory.SetConfiguration({});
  node_.backend->applied.clear();
  EXPECT_THAT(Repairs(node_.claims->Reconcile("", Node::Soon())), ElementsAre("re-made"));
}

}  // namespace
}  // namespace tranche::claims
