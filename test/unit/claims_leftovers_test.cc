// What a host finds that it did not expect: another host's release in the middle of a comparison, shares of which a new store knows nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "claims_fixture.h"

namespace tranche::claims {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> RepairsOf(const absl::StatusOr<std::vector<Repair>>& repairs) {
  EXPECT_TRUE(repairs.ok()) << repairs.status();
  std::vector<std::string> what;
  if (!repairs.ok()) return what;
  for (const Repair& repair : *repairs) what.push_back(repair.what);
  return what;
}

// A second host process on the node's store, which does `between` when it turns to the backend for the `nth` time.
std::unique_ptr<Claims> SecondHost(Node& node, store::Store& store, int nth, std::function<void()> between) {
  auto asked = std::make_shared<int>(0);
  return std::make_unique<Claims>(Dependencies{store, node.inventory, node.reader,
                                               [&node, asked, nth, between = std::move(between)](const std::string& name) {
                                                 if (name == "uplink" && ++*asked == nth) between();
                                                 return name == "uplink" ? std::shared_ptr<backend::Backend>(node.backend) : nullptr;
                                               },
                                               node.root() + "/cdi", [] { return false; }});
}

// Before the first look at what is in force, before the second, and before the repair.
constexpr int kTurns = 3;

TEST(ClaimsLeftoversTest, AReleaseDuringARepairIsNotUndoneByIt) {
  for (int turn = 1; turn <= kTurns; ++turn) {
    Node node;
    node.sole_host = false;
    const Claim claim = MakeClaim("uid-1", "50M");
    ASSERT_TRUE(node.Prepare(claim).ok());
    node.backend->applied.clear();  // it vanished, and the second host is to make it again
    const auto second_store = node.OpenStore();
    bool is_released = false;
    const auto second = SecondHost(node, *second_store, turn, [&] { is_released = node.Unprepare(claim).ok(); });
    EXPECT_THAT(RepairsOf(second->Reconcile("uplink", Node::Soon())), IsEmpty());
    EXPECT_TRUE(is_released) << "turn " << turn;
    node.ExpectNothingLeft();
  }
}

TEST(ClaimsLeftoversTest, AClaimThatIsPreparedAnewDuringARepairKeepsItsShare) {
  for (int turn = 1; turn <= kTurns; ++turn) {
    Node node;
    node.sole_host = false;
    const Claim claim = MakeClaim("uid-1", "50M");
    ASSERT_TRUE(node.Prepare(claim).ok());
    node.backend->applied.clear();
    const auto second_store = node.OpenStore();
    bool is_prepared = false;
    const auto second = SecondHost(node, *second_store, turn, [&] { is_prepared = node.Unprepare(claim).ok() && node.Prepare(claim).ok(); });
    EXPECT_THAT(RepairsOf(second->Reconcile("uplink", Node::Soon())), IsEmpty());
    EXPECT_TRUE(is_prepared) << "turn " << turn;
    EXPECT_EQ(node.backend->applied.size(), 1U);
    EXPECT_THAT(node.Files(), ElementsAre("uid-1"));
    EXPECT_EQ(node.Row("uid-1")->state, store::ClaimState::kPrepared);
  }
}

// A store that tells of every change and every look.
class SeamStore final : public store::Store {
 public:
  explicit SeamStore(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}
  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& change) override {
    const absl::Status status = store_->Write(change);
    if (after_write) after_write();
    return status;
  }
  absl::Status Read(const std::function<absl::Status(store::Transaction&)>& look) override {
    const absl::Status status = store_->Read(look);
    if (after_read) after_read();
    return status;
  }
  absl::Status LengthenLog() override { return store_->LengthenLog(); }
  absl::StatusOr<std::vector<AuditRecord>> Audit(const store::AuditQuery& query) override { return store_->Audit(query); }
  std::function<void()> after_write, after_read;

 private:
  std::unique_ptr<store::Store> store_;
};

// Two host processes on one node. Whatever moment of the second's work the first uses: a file is there exactly while its claim is prepared.
class TwoHostsFileTest : public ::testing::Test {
 protected:
  TwoHostsFileTest() {
    node_.sole_host = false;
    EXPECT_TRUE(node_.Prepare(claim_).ok());
    store_ = std::make_unique<SeamStore>(node_.OpenStore());
    second_ = SecondHost(node_, *store_, 0, [] {});
  }
  void ReleaseAtTheFirst() {
    if (!node_.Row("uid-1").has_value()) return;
    EXPECT_TRUE(node_.Unprepare(claim_).ok());
  }
  void LoseFile() const { std::filesystem::remove_all(node_.root() + "/cdi"); }

  const Claim claim_ = MakeClaim("uid-1", "50M");
  Node node_;
  std::unique_ptr<SeamStore> store_;
  std::unique_ptr<Claims> second_;
};

TEST_F(TwoHostsFileTest, AReleaseRightAfterARepairWasStoredTakesItsFileAlong) {
  node_.backend->applied.clear();
  store_->after_write = [this] { ReleaseAtTheFirst(); };
  EXPECT_THAT(RepairsOf(second_->Reconcile("uplink", Node::Soon())), ElementsAre("re-made"));
  node_.ExpectNothingLeft();
}

TEST_F(TwoHostsFileTest, AFileIsNotRewrittenForAClaimThatIsReleasedMeanwhile) {
  constexpr int kLooks = 4;  // after every look of the second host in turn
  for (int at = 1; at <= kLooks; ++at) {
    LoseFile();
    int looks = 0;
    store_->after_read = [&] {
      if (++looks == at) ReleaseAtTheFirst();
    };
    RepairsOf(second_->Reconcile("uplink", Node::Soon()));
    store_->after_read = nullptr;
    ReleaseAtTheFirst();
    node_.ExpectNothingLeft();
    ASSERT_TRUE(node_.Prepare(claim_).ok());
  }
}

TEST_F(TwoHostsFileTest, APrepareThatIsAskedAgainWritesNoFileForAClaimThatIsReleasedMeanwhile) {
  LoseFile();
  node_.reader.on_read = [this] { ReleaseAtTheFirst(); };
  const auto answers = second_->Prepare(kDriver, {Node::Reference(claim_)}, Node::Soon());
  EXPECT_TRUE(absl::IsAborted(answers.at("uid-1").status())) << answers.at("uid-1").status();
  node_.ExpectNothingLeft();
}

TEST_F(TwoHostsFileTest, AReleaseThatComesLateLeavesTheFileOfAClaimThatIsPreparedAnew) {
  ReleaseAtTheFirst();
  bool prepared = false;
  const auto prepare_at_the_first = [&] {
    if (!std::exchange(prepared, true)) { EXPECT_TRUE(node_.Prepare(claim_).ok()); }
  };
  store_->after_read = prepare_at_the_first;  // the second host has found no claim: nothing may be left of it
  const auto answers = second_->Unprepare(kDriver, {Node::Reference(claim_)}, Node::Soon());
  EXPECT_TRUE(absl::IsAborted(answers.at("uid-1"))) << answers.at("uid-1");
  EXPECT_THAT(node_.Files(), ElementsAre("uid-1"));
  EXPECT_EQ(node_.Row("uid-1")->state, store::ClaimState::kPrepared);
}

TEST_F(TwoHostsFileTest, AnOrphanIsLookedAtAgainBeforeItIsRemoved) {
  ReleaseAtTheFirst();
  bool removed = false, prepared = false;
  // After every look of the second host in turn the first prepares the claim.
  for (int at = 1; at <= 8; ++at) {
    std::ofstream(node_.Cdi().FilePath(kDriver, "uid-1")) << "{}";
    int looks = 0;
    store_->after_read = [&] {
      if (++looks == at) { EXPECT_TRUE(node_.Prepare(claim_).ok()); }
    };
    RepairsOf(second_->Reconcile("", Node::Soon()));
    store_->after_read = nullptr;
    const bool is_prepared = node_.Row("uid-1").has_value();
    if (is_prepared) { EXPECT_THAT(node_.Files(), ElementsAre("uid-1")) << "prepared after look " << at; }
    if (!is_prepared) { EXPECT_THAT(node_.Files(), IsEmpty()); }
    (is_prepared ? prepared : removed) = true;
    ReleaseAtTheFirst();
  }
  EXPECT_TRUE(prepared && removed) << "the moments do not reach from before the run to its end";
}

// ---- a store that is new while shares are in force

class NewStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(node_.Prepare(first_).ok());
    ASSERT_TRUE(node_.Prepare(second_).ok());
    node_.Stop();
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(node_.root() + "/state.db" + suffix);
    node_.Start();
    ASSERT_THAT(RepairsOf(node_.claims->Reconcile("", Node::Soon())), ElementsAre("unknown", "unknown"));
  }

  const Claim first_ = MakeClaim("uid-1", "50M"), second_ = MakeClaim("uid-2", "50M");
  Node node_;
};

TEST_F(NewStoreTest, NothingThatIsInForceIsTakenAway) {
  EXPECT_EQ(node_.backend->applied.size(), 2U);
  EXPECT_THAT(node_.Files(), ElementsAre("uid-1", "uid-2"));
  EXPECT_EQ(node_.claims->Unknown().size(), 2U);
  node_.Restart();
  EXPECT_THAT(RepairsOf(node_.claims->Reconcile("uplink", Node::Soon())), ElementsAre("unknown", "unknown"));
  EXPECT_EQ(node_.backend->applied.size(), 2U);
}

TEST_F(NewStoreTest, ThePrepareOfItsClaimMakesAShareKnown) {
  ASSERT_TRUE(node_.Prepare(first_).ok());
  EXPECT_EQ(node_.backend->applied.size(), 2U);
  EXPECT_THAT(RepairsOf(node_.claims->Reconcile("", Node::Soon())), ElementsAre("unknown"));
  ASSERT_EQ(node_.claims->Unknown().size(), 1U);
  EXPECT_EQ(node_.claims->Unknown().front().key.claim_uid, "uid-2");
}

TEST_F(NewStoreTest, TheUnprepareOfItsClaimTakesAShareAway) {
  ASSERT_TRUE(node_.Unprepare(first_).ok());
  EXPECT_EQ(node_.backend->applied.size(), 1U);
  EXPECT_THAT(node_.Files(), ElementsAre("uid-2"));
  ASSERT_TRUE(node_.Unprepare(second_).ok());
  node_.ExpectNothingLeft();
  EXPECT_TRUE(node_.claims->Unknown().empty());
  ASSERT_FALSE(node_.Audit().empty());
  EXPECT_EQ(node_.Audit().back().action, "unprepare");
  EXPECT_EQ(node_.Audit().back().share_id, *second_.allocation->results.front().share_id);
}

TEST_F(NewStoreTest, ABackendThatFailsKeepsAShareUnknown) {
  node_.backend->unprepare_error = absl::UnavailableError("busy");
  EXPECT_FALSE(node_.Unprepare(first_).ok());
  EXPECT_EQ(node_.claims->Unknown().size(), 2U);
  node_.backend->unprepare_error = absl::OkStatus();
  EXPECT_TRUE(node_.Unprepare(first_).ok());
  EXPECT_EQ(node_.claims->Unknown().size(), 1U);
}

TEST_F(NewStoreTest, AnOperatorReleasesOneOrAll) {
  EXPECT_EQ(node_.claims->ReleaseUnknown("uid-7", Node::Soon()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(node_.backend->applied.size(), 2U);
  ASSERT_TRUE(node_.claims->ReleaseUnknown("uid-1", Node::Soon()).ok());
  EXPECT_EQ(node_.backend->applied.begin()->first.claim_uid, "uid-2");
  const auto rest = node_.claims->ReleaseUnknown("", Node::Soon());
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(rest->size(), 1U);
  node_.ExpectNothingLeft();
  EXPECT_EQ(node_.Audit().back().actor, "operator");
  EXPECT_EQ(node_.Audit().back().action, "release-unknown");
  EXPECT_TRUE(node_.claims->ReleaseUnknown("", Node::Soon())->empty());
}

TEST_F(NewStoreTest, WhatAnOperatorAsksForAfterItsPrepareStays) {
  ASSERT_TRUE(node_.Prepare(first_).ok());
  EXPECT_TRUE(node_.claims->ReleaseUnknown("uid-1", Node::Soon())->empty());
  EXPECT_EQ(node_.backend->applied.size(), 2U);
}

}  // namespace
}  // namespace tranche::claims
