// Two backends on one node: what one of them does with its time, or with its shares, is no matter of the other's claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "claims_fixture.h"

namespace tranche::claims {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
using Code = absl::StatusCode;

constexpr char kSecondBackend[] = R"(- name: backup
  library: fake
  isolation: in-process
  allowEdits: {env: [SHARE]}
)";
constexpr char kSecondOffer[] = R"(  - name: spare-shared
    backend: backup
    mode: share
    capacity:
      bandwidth: {default: 50M, min: 10M, max: 1G, step: 10M}
)";
constexpr char kSecondClass[] = R"(  - name: nic-spare
    offer: spare-shared
)";

config::HostConfiguration TwoBackends() {
  std::string text = kConfiguration;
  for (const auto& [heading, addition] : {std::pair{"backends:\n", kSecondBackend}, {"  offers:\n", kSecondOffer}, {"  classes:\n", kSecondClass}}) {
    text.insert(text.find(heading) + std::string(heading).size(), addition);
  }
  const absl::StatusOr<config::HostConfiguration> configuration = config::ParseConfiguration(text, "test.yaml");
  EXPECT_TRUE(configuration.ok()) << configuration.status();
  return configuration.value_or(config::HostConfiguration());
}

// A fake whose calls can be watched, delayed and changed.
class SeamBackend final : public backend::Backend {
 public:
  explicit SeamBackend(std::shared_ptr<FakeBackend> fake) : fake_(std::move(fake)) {}
  const std::string& name() const override { return fake_->name(); }
  absl::StatusOr<std::vector<PhysicalDevice>> Discover(Deadline deadline) override { return fake_->Discover(deadline); }
  std::vector<backend::PrepareOutcome> Prepare(const std::vector<backend::PrepareItem>& items, Deadline deadline) override {
    Note(deadline);
    if (before_prepare) before_prepare(deadline);
    std::vector<backend::PrepareOutcome> outcomes = fake_->Prepare(items, deadline);
    for (backend::PrepareOutcome& outcome : outcomes) {
      if (outcome.share.has_value() && on_share) on_share(*outcome.share);
    }
    return outcomes;
  }
  std::vector<backend::UnprepareOutcome> Unprepare(const std::vector<backend::UnprepareItem>& items, Deadline deadline) override {
    Note(deadline);
    if (before_unprepare) before_unprepare(deadline);
    return fake_->Unprepare(items, deadline);
  }
  absl::StatusOr<std::vector<AppliedShare>> ListPrepared(Deadline deadline) override {
    Note(deadline);
    if (before_list) before_list(deadline);
    absl::StatusOr<std::vector<AppliedShare>> listed = fake_->ListPrepared(deadline);
    if (after_list) after_list();
    return listed;
  }
  absl::StatusOr<AppliedShare> Verify(const ShareKey& key, const std::string& state, Deadline deadline) override { return fake_->Verify(key, state, deadline); }

  std::function<void(Deadline)> before_prepare, before_unprepare, before_list;
  std::function<void()> after_list;
  std::function<void(AppliedShare&)> on_share;
  std::atomic<int> calls = 0, late_calls = 0;

 private:
  void Note(Deadline deadline) {
    ++calls;
    if (Passed(deadline)) ++late_calls;
  }
  const std::shared_ptr<FakeBackend> fake_;
};

// Holds whoever comes until it is opened.
class Gate {
 public:
  void Hold() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, 20s, [this] { return is_open_; });
  }
  bool AwaitReached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [this] { return is_reached_; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false, is_open_ = false;
};

class ClaimsBackendsTest : public ::testing::Test {
 protected:
  ClaimsBackendsTest() {
    node_.inventory.SetConfiguration(TwoBackends());
    node_.inventory.SetDiscovered("backup", std::make_shared<const std::vector<PhysicalDevice>>(std::vector<PhysicalDevice>{MakeNic("eth3")}));
    node_.claims = std::make_unique<Claims>(Dependencies{*node_.store, node_.inventory, node_.reader,
                                                         [this](const std::string& name) -> std::shared_ptr<backend::Backend> {
                                                           if (name == "uplink") return uplink_;
                                                           return name == "backup" ? backup_ : nullptr;
                                                         },
                                                         node_.root() + "/cdi", [] { return true; }});
  }

  static Claim OnUplink(const std::string& uid) { return MakeClaim(uid, "50M"); }
  static Claim OnBackup(const std::string& uid) { return MakeClaim(uid, "50M", "eth3-spare-shared", "nic-spare"); }
  static Claim OnBoth(const std::string& uid) {
    Claim claim = OnUplink(uid);
    const Claim other = OnBackup(uid);
    claim.requests.push_back(other.requests.front());
    claim.requests.back().name = "spare";
    claim.allocation->results.push_back(other.allocation->results.front());
    claim.allocation->results.back().request = "spare";
    return claim;
  }
  void LoseAll() const {
    node_.backend->applied.clear();
    backup_fake_->applied.clear();
  }
  static std::vector<std::string> Whats(const absl::StatusOr<std::vector<Repair>>& repairs) {
    EXPECT_TRUE(repairs.ok()) << repairs.status();
    std::vector<std::string> whats;
    if (!repairs.ok()) return whats;
    for (const Repair& repair : *repairs) whats.push_back(repair.what);
    return whats;
  }
  static void HangUntil(Deadline deadline) { std::this_thread::sleep_until(deadline + 50ms); }

  Node node_;
  const std::shared_ptr<FakeBackend> backup_fake_ = std::make_shared<FakeBackend>(1'000'000'000);
  const std::shared_ptr<SeamBackend> uplink_ = std::make_shared<SeamBackend>(node_.backend), backup_ = std::make_shared<SeamBackend>(backup_fake_);
};

// ---- whose claims wait

TEST_F(ClaimsBackendsTest, WhileABackendListsNoClaimWaits) {
  for (const char* backend : {"", "backup"}) {
    const Claim other = OnUplink("uid-1"), own = OnBackup("uid-2");
    ASSERT_TRUE(node_.Prepare(other).ok());
    ASSERT_TRUE(node_.Prepare(own).ok());
    Gate gate;
    backup_->before_list = [&](Deadline) { gate.Hold(); };
    std::jthread reconcile([&] { EXPECT_THAT(Whats(node_.claims->Reconcile(backend, Node::Soon())), IsEmpty()); });
    ASSERT_TRUE(gate.AwaitReached());
    for (const Claim& claim : {other, own}) {
      const absl::Status released = node_.claims->Unprepare(kDriver, {Node::Reference(claim)}, DeadlineIn(5s)).at(claim.uid);
      EXPECT_TRUE(released.ok()) << "reconcile of '" << backend << "': " << released;
    }
    gate.Open();
  }
}

TEST_F(ClaimsBackendsTest, WhileABackendRepairsItsSharesTheOthersClaimsDoNotWait) {
  const Claim other = OnUplink("uid-1"), own = OnBackup("uid-2");
  ASSERT_TRUE(node_.Prepare(other).ok());
  ASSERT_TRUE(node_.Prepare(own).ok());
  LoseAll();
  Gate gate, other_gate;
  other_gate.Open();
  backup_->before_prepare = [&](Deadline) { gate.Hold(); };
  uplink_->before_prepare = [&](Deadline) { other_gate.Hold(); };
  std::jthread reconcile([&] { EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), ElementsAre("re-made", "re-made")); });
  ASSERT_TRUE(gate.AwaitReached());
  ASSERT_TRUE(other_gate.AwaitReached());
  const absl::Status released = node_.claims->Unprepare(kDriver, {Node::Reference(other)}, DeadlineIn(5s)).at("uid-1");
  EXPECT_TRUE(released.ok()) << released;
  const absl::Status busy = node_.claims->Unprepare(kDriver, {Node::Reference(own)}, DeadlineIn(20ms)).at("uid-2");
  EXPECT_EQ(busy.code(), Code::kAborted) << "its share is being made again";
  gate.Open();
}

// ---- whose time it is

class AHungBackendTest : public ClaimsBackendsTest, public ::testing::WithParamInterface<bool> {
 protected:
  absl::StatusOr<std::vector<Repair>> Run(std::chrono::milliseconds time) {
    return GetParam() ? node_.claims->Reconcile("", DeadlineIn(time)) : node_.claims->VerifyAll(DeadlineIn(time));
  }
};
INSTANTIATE_TEST_SUITE_P(Periodic, AHungBackendTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? std::string("Reconcile") : std::string("VerifyAll"); });

TEST_P(AHungBackendTest, TakesNoTimeFromTheOther) {
  ASSERT_TRUE(node_.Prepare(OnUplink("uid-1")).ok());
  ASSERT_TRUE(node_.Prepare(OnBackup("uid-2")).ok());
  LoseAll();
  backup_->before_list = HangUntil;
  EXPECT_EQ(Run(1s).status().code(), Code::kDeadlineExceeded) << "nothing is left for the hung one's repair";
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_EQ(uplink_->late_calls + backup_->late_calls, 0);
}

TEST_P(AHungBackendTest, TakesNoTimeFromTheOtherWhenItHangsInARepair) {
  ASSERT_TRUE(node_.Prepare(OnUplink("uid-1")).ok());
  ASSERT_TRUE(node_.Prepare(OnBackup("uid-2")).ok());
  LoseAll();
  backup_->before_prepare = HangUntil;
  Run(1s).IgnoreError();
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_EQ(uplink_->late_calls + backup_->late_calls, 0);
}

TEST_P(AHungBackendTest, IsNotCalledWhenNoTimeIsLeft) {
  ASSERT_TRUE(node_.Prepare(OnUplink("uid-1")).ok());
  uplink_->calls = 0;
  EXPECT_EQ(Run(-1ms).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(uplink_->calls + backup_->calls, 0);
}

TEST_F(ClaimsBackendsTest, AHungBackendTakesNoTimeFromTheOtherInABatch) {
  const Claim first = OnBackup("uid-1"), second = OnUplink("uid-2");  // in the order of their backends, too
  node_.reader.Put(first.uid, first);
  node_.reader.Put(second.uid, second);
  const std::vector<ClaimReference> both{Node::Reference(first), Node::Reference(second)};
  backup_->before_prepare = HangUntil;
  EXPECT_TRUE(node_.claims->Prepare(kDriver, both, DeadlineIn(500ms)).at("uid-2").ok());
  backup_->before_unprepare = HangUntil;
  EXPECT_TRUE(node_.claims->Unprepare(kDriver, both, DeadlineIn(500ms)).at("uid-2").ok());
  EXPECT_EQ(uplink_->late_calls, 0);
  EXPECT_TRUE(node_.backend->applied.empty());
}

TEST_F(ClaimsBackendsTest, AReleaseWithoutTimeCallsNoBackendAndIsFinishedLater) {
  const Claim claim = OnUplink("uid-1");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  uplink_->calls = 0;
  EXPECT_EQ(node_.claims->Unprepare(kDriver, {Node::Reference(claim)}, DeadlineIn(-1ms)).at("uid-1").code(), Code::kDeadlineExceeded);
  EXPECT_EQ(uplink_->calls, 0);
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

// Its caller went while it waited for the claim's lock; what that caller asked for since has been done meanwhile.
TEST_F(ClaimsBackendsTest, ACallThatWasGivenUpBeginsNothing) {
  const Claim claim = OnUplink("uid-1");
  node_.reader.Put(claim.uid, claim);
  const auto given_up = [] { return true; };
  const auto late = node_.claims->Prepare(kDriver, {Node::Reference(claim)}, DeadlineIn(5s), given_up);
  EXPECT_EQ(late.at("uid-1").status().code(), Code::kAborted);
  node_.ExpectNothingLeft();
  ASSERT_TRUE(node_.Prepare(claim).ok());
  uplink_->calls = 0;
  EXPECT_EQ(node_.claims->Unprepare(kDriver, {Node::Reference(claim)}, DeadlineIn(5s), given_up).at("uid-1").code(), Code::kAborted);
  EXPECT_EQ(uplink_->calls, 0);
  EXPECT_FALSE(node_.backend->applied.empty());
  EXPECT_TRUE(node_.Unprepare(claim).ok());
  node_.ExpectNothingLeft();
}

TEST_F(ClaimsBackendsTest, ACallIsAskedWhetherItWasGivenUpOnceItHasTheClaim) {
  const Claim claim = OnUplink("uid-1");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  Gate gate;
  node_.reader.on_read = [&] { gate.Hold(); };
  std::jthread again([&] { EXPECT_TRUE(node_.claims->Prepare(kDriver, {Node::Reference(claim)}, Node::Soon()).at("uid-1").ok()); });
  ASSERT_TRUE(gate.AwaitReached());
  std::atomic<bool> is_gone = false;
  const auto given_up = [&] { return is_gone.load(); };
  std::jthread release(
      [&] { EXPECT_EQ(node_.claims->Unprepare(kDriver, {Node::Reference(claim)}, Node::Soon(), given_up).at("uid-1").code(), Code::kAborted); });
  std::jthread prepare(
      [&] { EXPECT_EQ(node_.claims->Prepare(kDriver, {Node::Reference(claim)}, Node::Soon(), given_up).at("uid-1").status().code(), Code::kAborted); });
  std::this_thread::sleep_for(50ms);  // so that both wait for the claim; where they come later there is nothing to tell apart
  is_gone = true;
  gate.Open();
  for (std::jthread* thread : {&again, &release, &prepare}) thread->join();
  EXPECT_FALSE(node_.backend->applied.empty());
}

TEST_F(ClaimsBackendsTest, AClaimAtWorkDoesNotMakeTheOthersOfABatchLate) {
  const Claim free = OnUplink("uid-1"), at_work = OnUplink("uid-2"), last = OnUplink("uid-3");
  for (const Claim& claim : {free, at_work, last}) ASSERT_TRUE(node_.Prepare(claim).ok());
  Gate gate;
  node_.reader.on_read = [&] { gate.Hold(); };
  std::jthread again([&] { EXPECT_TRUE(node_.claims->Prepare(kDriver, {Node::Reference(at_work)}, Node::Soon()).at("uid-2").ok()); });
  ASSERT_TRUE(gate.AwaitReached());
  const auto answers = node_.claims->Unprepare(kDriver, {Node::Reference(free), Node::Reference(at_work), Node::Reference(last)}, DeadlineIn(300ms));
  EXPECT_TRUE(answers.at("uid-1").ok()) << answers.at("uid-1");
  EXPECT_EQ(answers.at("uid-2").code(), Code::kAborted);
  EXPECT_TRUE(answers.at("uid-3").ok()) << answers.at("uid-3");
  EXPECT_EQ(uplink_->late_calls, 0);
  gate.Open();
}

TEST_F(ClaimsBackendsTest, AClaimAtWorkIsReleasedAsSoonAsItIsFree) {
  const Claim free = OnUplink("uid-1"), at_work = OnUplink("uid-2");
  for (const Claim& claim : {free, at_work}) ASSERT_TRUE(node_.Prepare(claim).ok());
  Gate gate;
  node_.reader.on_read = [&] { gate.Hold(); };
  std::jthread again([&] { EXPECT_TRUE(node_.claims->Prepare(kDriver, {Node::Reference(at_work)}, Node::Soon()).at("uid-2").ok()); });
  ASSERT_TRUE(gate.AwaitReached());
  uplink_->before_unprepare = [&](Deadline) { gate.Open(); };  // the release of the other
  for (const auto& [uid, answer] : node_.claims->Unprepare(kDriver, {Node::Reference(free), Node::Reference(at_work)}, Node::Soon())) {
    EXPECT_TRUE(answer.ok()) << uid << ": " << answer;
  }
  again.join();
  node_.ExpectNothingLeft();
}

// ---- claims with shares of both

TEST_F(ClaimsBackendsTest, AClaimOfBothIsRepairedAtBothInOneRun) {
  const Claim claim = OnBoth("uid-1");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  ASSERT_TRUE(node_.Prepare(OnUplink("uid-2")).ok());
  ASSERT_TRUE(node_.Prepare(OnBackup("uid-3")).ok());
  for (int i = 0; i < 10; ++i) {
    LoseAll();
    EXPECT_THAT(Whats(i % 2 == 0 ? node_.claims->Reconcile("", Node::Soon()) : node_.claims->VerifyAll(Node::Soon())),
                ElementsAre("re-made", "re-made", "re-made", "re-made"));
    EXPECT_EQ(node_.backend->applied.size(), 2U);
    EXPECT_EQ(backup_fake_->applied.size(), 2U);
  }
  backup_fake_->applied.clear();
  EXPECT_THAT(Whats(node_.claims->Reconcile("uplink", Node::Soon())), IsEmpty());
  EXPECT_THAT(Whats(node_.claims->Reconcile("backup", Node::Soon())), ElementsAre("re-made", "re-made"));
}

TEST_F(ClaimsBackendsTest, OrphansOfAClaimOfBothGoInOneRun) {
  const Claim claim = OnBoth("uid-1");
  ASSERT_TRUE(node_.Prepare(claim).ok());
  const auto uplink = node_.backend->applied, backup = backup_fake_->applied;
  ASSERT_TRUE(node_.Unprepare(claim).ok());
  node_.backend->applied = uplink;
  backup_fake_->applied = backup;
  EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), ElementsAre("removed orphan", "removed orphan"));
  node_.ExpectNothingLeft();
  EXPECT_TRUE(backup_fake_->applied.empty());
}

TEST_F(ClaimsBackendsTest, AReleaseOfAClaimOfBothThatHangsAtOneKeepsNoOtherFromBeingRepaired) {
  const Claim both = OnBoth("uid-1"), other = OnUplink("uid-2");
  ASSERT_TRUE(node_.Prepare(both).ok());
  ASSERT_TRUE(node_.Prepare(other).ok());
  backup_fake_->unprepare_error = absl::UnavailableError("hung");
  EXPECT_FALSE(node_.Unprepare(both).ok());
  node_.backend->applied.clear();
  backup_->before_unprepare = HangUntil;
  EXPECT_EQ(node_.claims->Reconcile("", DeadlineIn(1s)).status().code(), Code::kUnavailable);
  ASSERT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_EQ(node_.backend->applied.begin()->first.claim_uid, "uid-2");
  EXPECT_EQ(uplink_->late_calls, 0);
}

// ---- what changes between the list and the lock

class AfterTheListTest : public ClaimsBackendsTest {
 protected:
  // Once, when a backend has listed what it has, or is about to.
  std::function<void()> Once(std::function<void()> change) {
    return [this, change = std::move(change)] {
      if (!std::exchange(is_done_, true)) change();
    };
  }
  bool is_done_ = false;
};

TEST_F(AfterTheListTest, AShareThatIsPreparedIsNeitherLostNorAnOrphan) {
  for (const bool is_listed : {false, true}) {
    const Claim claim = OnUplink("uid-1");
    is_done_ = false;
    const auto prepare = Once([&] { EXPECT_TRUE(node_.Prepare(claim).ok()); });
    uplink_->before_list = [&](Deadline) {
      if (is_listed) prepare();
    };
    uplink_->after_list = [&] {
      if (!is_listed) prepare();
    };
    EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), IsEmpty());
    EXPECT_EQ(node_.backend->applied.size(), 1U);
    EXPECT_THAT(node_.Files(), ElementsAre("uid-1"));
    ASSERT_TRUE(node_.Unprepare(claim).ok());
  }
}

TEST_F(AfterTheListTest, AClaimThatIsReleasedOrPreparedAnewIsLeftAsItIs) {
  for (const bool is_prepared_anew : {false, true}) {
    const Claim claim = OnUplink("uid-1");
    ASSERT_TRUE(node_.Prepare(claim).ok());
    is_done_ = false;
    uplink_->after_list = Once([&] {
      EXPECT_TRUE(node_.Unprepare(claim).ok());
      if (is_prepared_anew) { EXPECT_TRUE(node_.Prepare(claim).ok()); }
    });
    const int calls = node_.backend->prepare_calls + node_.backend->unprepare_calls;
    EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), IsEmpty());
    EXPECT_EQ(node_.backend->prepare_calls + node_.backend->unprepare_calls, calls + (is_prepared_anew ? 2 : 1)) << "none but the release's and prepare's own";
    EXPECT_EQ(node_.backend->applied.size(), is_prepared_anew ? 1U : 0U);
    EXPECT_EQ(node_.Files().size(), is_prepared_anew ? 1U : 0U);
    ASSERT_TRUE(node_.Unprepare(claim).ok());
  }
}

TEST_F(AfterTheListTest, AnUnknownShareThatIsReleasedStaysForgotten) {
  AppliedShare share;
  share.key = {"uid-1", "nic", kDriver, kPool, "eth1-shared", ShareIdOf("uid-1")};
  node_.backend->applied[share.key] = {"eth1", share};
  ASSERT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), ElementsAre("unknown"));
  uplink_->after_list = Once([&] { EXPECT_TRUE(node_.claims->ReleaseUnknown("uid-1", Node::Soon()).ok()); });
  EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), IsEmpty());
  EXPECT_TRUE(node_.claims->Unknown().empty());
}

TEST_F(AfterTheListTest, AnUnknownShareThatIsGoneByItselfIsForgotten) {
  AppliedShare share;
  share.key = {"uid-1", "nic", kDriver, kPool, "eth1-shared", ShareIdOf("uid-1")};
  node_.backend->applied[share.key] = {"eth1", share};
  ASSERT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), ElementsAre("unknown"));
  node_.backend->list_error = absl::UnavailableError("hung");
  EXPECT_FALSE(node_.claims->Reconcile("", Node::Soon()).ok());
  EXPECT_EQ(node_.claims->Unknown().size(), 1U);
  node_.backend->list_error = absl::OkStatus();
  node_.backend->applied.clear();
  EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), IsEmpty());
  EXPECT_TRUE(node_.claims->Unknown().empty());
}

// ---- a verification and what it does not know of

class AVerificationTest : public AfterTheListTest {
 protected:
  void SetUp() override {
    uplink_->on_share = [](AppliedShare& share) {
      for (LimitInForce& limit : share.limits) limit.verified_at = std::chrono::system_clock::now() - 2 * kVerifiedWriteInterval;
    };
    ASSERT_TRUE(node_.Prepare(claim_).ok());
    uplink_->on_share = [](AppliedShare& share) {
      share.state = "second";
      share.edits.env.push_back("SHARE_B=2");
    };
  }
  void ExpectSecond() const {
    ASSERT_EQ(node_.Shares().size(), 1U);
    const AppliedShare applied = *node_.Shares().front().applied;
    EXPECT_EQ(applied.state, "second");
    EXPECT_EQ(applied.edits.env.size(), 2U);
  }
  Claim claim_ = OnUplink("uid-1");
};

TEST_F(AVerificationTest, LeavesTheAnswerToASecondPodAsItIs) {
  uplink_->after_list = Once([&] {
    claim_.reserved_for = {{"pods", "other", "pod-other"}};
    EXPECT_TRUE(node_.Prepare(claim_).ok());
  });
  EXPECT_TRUE(node_.claims->VerifyAll(Node::Soon()).ok());
  ExpectSecond();
  EXPECT_THAT(node_.Row("uid-1")->pod_uids, ElementsAre("pod-other"));
}

TEST_F(AVerificationTest, LeavesAShareThatIsMadeAgainAsItIs) {
  uplink_->after_list = Once([&] {
    node_.backend->applied.clear();
    EXPECT_THAT(Whats(node_.claims->Reconcile("", Node::Soon())), ElementsAre("re-made"));
  });
  EXPECT_TRUE(node_.claims->VerifyAll(Node::Soon()).ok());
  ExpectSecond();
}

TEST_F(AVerificationTest, StoresItsTimeAndNothingElse) {
  store::ShareRow before = node_.Shares().front();
  EXPECT_TRUE(node_.claims->VerifyAll(Node::Soon()).ok());
  store::ShareRow after = node_.Shares().front();
  LimitInForce& limit = after.applied->limits.front();
  EXPECT_GT(limit.verified_at, before.applied->limits.front().verified_at + kVerifiedWriteInterval);
  limit.verified_at = before.applied->limits.front().verified_at;
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace tranche::claims
