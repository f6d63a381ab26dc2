// What a host finds that it did not expect: another host's release in the middle of a comparison, shares of which a new store knows nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
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

TEST(ClaimsLeftoversTest, AReleaseDuringARepairIsNotUndoneByIt) {
  Node node;
  node.sole_host = false;
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node.Prepare(claim).ok());
  node.backend->applied.clear();  // it vanished, and the second host is to make it again
  const auto second_store = node.OpenStore();
  const auto second = SecondHost(node, *second_store, 2, [&] { EXPECT_TRUE(node.Unprepare(claim).ok()); });
  EXPECT_THAT(RepairsOf(second->Reconcile("uplink", Node::Soon())), IsEmpty());
  node.ExpectNothingLeft();
}

TEST(ClaimsLeftoversTest, AClaimThatIsPreparedAnewDuringARepairKeepsItsShare) {
  Node node;
  node.sole_host = false;
  const Claim claim = MakeClaim("uid-1", "50M");
  ASSERT_TRUE(node.Prepare(claim).ok());
  node.backend->applied.clear();
  const auto second_store = node.OpenStore();
  const auto second = SecondHost(node, *second_store, 2, [&] {
    EXPECT_TRUE(node.Unprepare(claim).ok());
    EXPECT_TRUE(node.Prepare(claim).ok());
  });
  EXPECT_THAT(RepairsOf(second->Reconcile("uplink", Node::Soon())), IsEmpty());
  EXPECT_EQ(node.backend->applied.size(), 1U);
  EXPECT_THAT(node.Files(), ElementsAre("uid-1"));
  EXPECT_EQ(node.Row("uid-1")->state, store::ClaimState::kPrepared);
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
