// What prepare takes from a claim and what it refuses: nothing that a scheduler writes may be refused, nothing that only a forger writes may pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "claims_fixture.h"

namespace tranche::claims {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class ClaimsValidationTest : public ::testing::Test {
 protected:
  void ExpectRefused(const Claim& claim, Code code, const std::vector<std::string>& words) {
    const absl::Status status = node_.Prepare(claim).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    node_.ExpectNothingLeft();
    EXPECT_EQ(node_.backend->prepare_calls, 0);
  }

  Node node_;
};

TEST_F(ClaimsValidationTest, AShareIdIsAUuid) {
  Claim claim = MakeClaim("uid-1", "50M");
  for (const char* id : {"no-uuid", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b810-9dad-11d1-80b4-00c04fd430c", "../../../../etc/passwd/../../../xxxxx"}) {
    claim.allocation->results.front().share_id = id;
    ExpectRefused(claim, Code::kInvalidArgument, {"'nic'", id, "RFC 4122"});
  }
}

TEST_F(ClaimsValidationTest, AmountsThatNoSchedulerWritesAreRefused) {
  ExpectRefused(MakeClaim("uid-1", "0"), Code::kInvalidArgument, {"'nic'", "bandwidth", "the least that one request gets is more"});
  ExpectRefused(MakeClaim("uid-1", "-50M"), Code::kInvalidArgument, {"bandwidth", "-50M", "negative"});
  ExpectRefused(MakeClaim("uid-1", "2G"), Code::kOutOfRange, {"bandwidth", "2G", "the whole device has 1G"});
}

TEST_F(ClaimsValidationTest, WhatAnOlderPolicyGaveIsHonouredAndRecorded) {
  // Above what one request may have now is possible only up to the device; off the step of now in any case.
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-1", "55M")).ok());
  ASSERT_TRUE(node_.Prepare(MakeClaim("uid-2", "5M")).ok());
  int recorded = 0;
  for (const AuditRecord& record : node_.Audit()) {
    if (record.action != "off-policy") continue;
    ++recorded;
    EXPECT_THAT(record.message, HasSubstr("bandwidth"));
    EXPECT_EQ(record.outcome, "OK");
  }
  EXPECT_EQ(recorded, 2);
  EXPECT_TRUE(node_.Prepare(MakeClaim("uid-4", "60M")).ok());
  EXPECT_EQ(node_.Audit().back().action, "prepare") << "on the grid: nothing to tell";
  EXPECT_EQ(node_.Shares().size(), 3U);
}

TEST_F(ClaimsValidationTest, ZeroIsAnAmountWhereThePolicyGivesIt) {
  std::string text(kConfiguration);
  text.replace(text.find("{default: 50M, min: 10M"), 23, "{default: 50M, min: 0");
  const auto configuration = config::ParseConfiguration(text, "test.yaml");
  ASSERT_TRUE(configuration.ok()) << configuration.status();
  node_.inventory.SetConfiguration(*configuration);
  EXPECT_TRUE(node_.Prepare(MakeClaim("uid-1", "0")).ok());
}

TEST_F(ClaimsValidationTest, TheObjectIsTheOneThatWasAskedFor) {
  Claim claim = MakeClaim("uid-1", "50M");
  const ClaimReference reference = Node::Reference(claim);
  claim.name = "other";
  node_.reader.Put(claim.uid, claim);
  const absl::Status status = node_.claims->Prepare(kDriver, {reference}, Node::Soon()).at(claim.uid).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("team-a/claim-uid-1 was asked for, but the object is team-a/other"));
}

TEST_F(ClaimsValidationTest, ConsumersMayBePodGroupsButNotNamelessPods) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.reserved_for = {{"pods", "web-0", ""}};
  ExpectRefused(claim, Code::kInvalidArgument, {"team-a/claim-uid-1", "web-0", "UID"});
  claim.reserved_for.clear();
  ExpectRefused(claim, Code::kFailedPrecondition, {"not reserved"});
  claim.reserved_for = {{"podgroups", "batch", "group-uid"}};
  ASSERT_TRUE(node_.Prepare(claim).ok());
  EXPECT_TRUE(node_.backend->last_item.pod_uids.empty());
  EXPECT_TRUE(node_.Prepare(claim).ok()) << "repeated";
}

TEST_F(ClaimsValidationTest, OneShareIdForTwoRequestsNamesBoth) {
  Claim claim = MakeClaim("uid-1", "50M");
  claim.requests.push_back(claim.requests.front());
  claim.requests.back().name = "second";
  claim.allocation->results.push_back(claim.allocation->results.front());
  claim.allocation->results.back().request = "second";
  ExpectRefused(claim, Code::kInvalidArgument, {"'nic'", "'second'", ShareIdOf("uid-1")});
  claim.allocation->results.back().device = "eth2-shared";
  EXPECT_TRUE(node_.Prepare(claim).ok()) << "on another device it is another share";
}

}  // namespace
}  // namespace tranche::claims
