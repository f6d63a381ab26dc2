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

}  // namespace
}  // namespace tranche::claims
