// Placement. S<n> in a test's name is scenario n of the scheduler's own allocator tests; a class per mode stands for their selectors.
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capacity/placement.h"
#include "unit/capacity_values.h"

namespace tranche::capacity {
namespace {

using test::Device;
using test::Q;
using test::Range;
using test::Values;
using testing::ElementsAre;
using testing::HasSubstr;

PublishedDevice Shared(const std::string& name, const std::map<std::string, std::string>& capacities, std::optional<RequestPolicy> policy = std::nullopt) {
  PublishedDevice device = Device(name);
  for (const auto& [capacity, value] : capacities) device.capacity[capacity] = PublishedCapacity{Q(value), policy, Enforcement::kHard};
  return device;
}

PublishedDevice Dedicated(const std::string& name, const std::map<std::string, std::string>& capacities = {}) {
  PublishedDevice device = Shared(name, capacities);
  device.allow_multiple_allocations = false;
  device.mode = Mode::kWhole;
  return device;
}

// The scenarios' range: default 2, min 2, step 2, max 4.
std::optional<RequestPolicy> R() { return Range("2", "2", "4", "2"); }

DeviceRequest Ask(const std::string& name, std::string_view c0 = "") {
  DeviceRequest request;
  request.name = name;
  request.device_class = "class";
  if (!c0.empty()) request.capacity["c0"] = Q(c0);
  return request;
}

DeviceRequest AskAll(const std::string& name, std::string_view c0 = "") {
  DeviceRequest request = Ask(name, c0);
  request.allocation_mode = AllocationMode::kAll;
  return request;
}

DeviceRequest Admin(DeviceRequest request) {
  request.admin_access = true;
  return request;
}

class PlacementTest : public testing::Test {
 protected:
  PlacementTest() { classes_["class"] = ClassView{"class", "drv.example", "offer", Enforcement::kNone, ""}; }

  static Claim MakeClaim(const std::string& name, std::vector<DeviceRequest> requests) {
    Claim claim;
    claim.namespace_name = "team";
    claim.name = name;
    claim.uid = "uid-" + name;
    claim.requests = std::move(requests);
    return claim;
  }

  absl::StatusOr<PlacementResult> Try(const Claim& claim) {
    return Place(claim, devices_, counter_sets_, classes_, live_, [this] { return "share-" + std::to_string(++shares_); });
  }

  // "request device{capacity:amount}+share" per result, or {"none"}; what fits becomes live.
  std::vector<std::string> Run(const Claim& claim) {
    const auto placed = Try(claim);
    EXPECT_TRUE(placed.ok()) << placed.status();
    if (!placed.ok() || !placed->allocation) {
      if (placed.ok()) obstacles_ = placed->obstacles;
      EXPECT_FALSE(obstacles_.empty());
      return {"none"};
    }
    EXPECT_TRUE(placed->obstacles.empty());
    std::vector<std::string> lines;
    for (const AllocationResult& result : placed->allocation->results) {
      lines.push_back(Describe(result));
      Record(claim, result);
    }
    return lines;
  }
  std::vector<std::string> Run(const std::string& name, std::vector<DeviceRequest> requests) { return Run(MakeClaim(name, std::move(requests))); }

  void Commit(const std::string& device, std::string_view c0) { live_.push_back(test::ShareOf(*Find(device), "committed", {{"c0", Q(c0)}})); }
  void CommitDedicated(const std::string& device) { live_.push_back(test::WholeOf(*Find(device), "committed")); }

  std::vector<PublishedDevice> devices_;
  std::vector<CounterSet> counter_sets_;
  std::map<std::string, ClassView> classes_;
  std::vector<Grant> live_;
  std::vector<Obstacle> obstacles_;
  int shares_ = 0;

 private:
  static std::string Describe(const AllocationResult& result) {
    std::string line = result.request + " " + result.device;
    for (const auto& [name, quantity] : result.consumed_capacity) line += "{" + name + ":" + quantity.ToString() + "}";
    if (result.share_id) line += "+share";
    if (result.admin_access) line += "+admin";
    return line;
  }
  const PublishedDevice* Find(const std::string& name) const {
    for (const PublishedDevice& device : devices_) {
      if (device.name == name) return &device;
    }
    return nullptr;
  }
  void Record(const Claim& claim, const AllocationResult& result) {
    const PublishedDevice& device = *Find(result.device);
    live_.push_back(Grant{{claim.uid, result.request, result.driver, result.pool, result.device, result.share_id.value_or("")},
                          device.backend,
                          device.physical,
                          device.mode,
                          result.admin_access,
                          result.consumed_capacity,
                          device.consumes_counters});
  }
};

TEST_F(PlacementTest, S1MissingCapacityNameFitsNowhere) {
  devices_ = {Shared("d1", {{"c1", "1"}})};
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("none"));
  ASSERT_EQ(obstacles_.size(), 1u);
  EXPECT_EQ(obstacles_[0].device, "drv.example/node1/d1");
  EXPECT_EQ(obstacles_[0].capacity, "c0");
}

TEST_F(PlacementTest, S2AllWithMissingNameFitsNowhere) {
  devices_ = {Shared("d1", {{"c1", "1"}})};
  EXPECT_THAT(Run("a", {AskAll("r0", "1")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S3DeviceWithoutCapacitiesTakesAnyNumberOfShares) {
  devices_ = {Shared("d1", {})};
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("r0 d1+share"));
  EXPECT_THAT(Run("b", {Ask("r0")}), ElementsAre("r0 d1+share"));
}

TEST_F(PlacementTest, S4S5WithoutDefaultTheWholeValueIsTaken) {
  devices_ = {Shared("d1", {{"c0", "1"}}), Shared("d2", {{"c0", "1"}})};
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("r0 d1{c0:1}+share"));
  EXPECT_THAT(Run("b", {Ask("r0")}), ElementsAre("r0 d2{c0:1}+share"));
  EXPECT_THAT(Run("c", {Ask("r0")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S6TwoSharesFit) {
  devices_ = {Shared("d1", {{"c0", "2"}})};
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("r0 d1{c0:1}+share"));
  EXPECT_THAT(Run("b", {Ask("r0", "1")}), ElementsAre("r0 d1{c0:1}+share"));
}

TEST_F(PlacementTest, S7DefaultIsTaken) {
  devices_ = {Shared("d1", {{"c0", "4"}}, R())};
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("r0 d1{c0:2}+share"));
  EXPECT_THAT(Run("b", {Ask("r0")}), ElementsAre("r0 d1{c0:2}+share"));
}

TEST_F(PlacementTest, S8S9ZeroValueOnly) {
  devices_ = {Shared("d1", {{"c0", "1"}}, Values({"0"}, "0"))};
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("r0 d1{c0:0}+share"));
  EXPECT_THAT(Run("b", {Ask("r0")}), ElementsAre("r0 d1{c0:0}+share"));
  EXPECT_THAT(Run("c", {Ask("r0", "1")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S10S11RaisedToMinAndStep) {
  devices_ = {Shared("d1", {{"c0", "4"}}, R())};
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("r0 d1{c0:2}+share"));
  live_.clear();
  EXPECT_THAT(Run("b", {Ask("r0", "3")}), ElementsAre("r0 d1{c0:4}+share"));
}

TEST_F(PlacementTest, S12S13NextValidValue) {
  devices_ = {Shared("d1", {{"c0", "4"}}, Values({"1", "2"}, "1"))};
  EXPECT_THAT(Run("a", {Ask("r0", "2")}), ElementsAre("r0 d1{c0:2}+share"));
  devices_ = {Shared("d2", {{"c0", "3"}}, Values({"1", "3"}, "1"))};
  EXPECT_THAT(Run("b", {Ask("r0", "2")}), ElementsAre("r0 d2{c0:3}+share"));
}

TEST_F(PlacementTest, S14SecondClaimIsToldWhatIsMissing) {
  devices_ = {Shared("d1", {{"c0", "2"}}, R())};
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("r0 d1{c0:2}+share"));
  EXPECT_THAT(Run("b", {Ask("r0", "2")}), ElementsAre("none"));
  ASSERT_EQ(obstacles_.size(), 1u);
  EXPECT_EQ(obstacles_[0].request, "r0");
  EXPECT_EQ(*obstacles_[0].asked, Q("2"));
  EXPECT_EQ(*obstacles_[0].available, Q("0"));
  EXPECT_EQ(*obstacles_[0].missing, Q("2"));
}

TEST_F(PlacementTest, S15AboveMaximumIsNotClamped) {
  devices_ = {Shared("d1", {{"c0", "10"}}, R())};
  EXPECT_THAT(Run("a", {Ask("r0", "6")}), ElementsAre("none"));
  EXPECT_EQ(*obstacles_.at(0).available, Q("4"));
  EXPECT_EQ(*obstacles_.at(0).missing, Q("2"));
}

TEST_F(PlacementTest, S16S17S20CommittedSharesCount) {
  devices_ = {Shared("d1", {{"c0", "4"}}, R())};
  Commit("d1", "2");
  EXPECT_THAT(Run("a", {Ask("r0", "2")}), ElementsAre("r0 d1{c0:2}+share"));
  EXPECT_THAT(Run("b", {Ask("r0", "2")}), ElementsAre("none"));
  devices_.push_back(Shared("d2", {{"c0", "2"}}, R()));
  EXPECT_THAT(Run("c", {Ask("r0", "2")}), ElementsAre("r0 d2{c0:2}+share"));
}

TEST_F(PlacementTest, S18BacktracksToSatisfyAMatch) {
  devices_ = {Shared("d2", {{"c0", "2"}}, R()), Shared("d1", {{"c0", "4"}}, R())};
  devices_[0].attributes["s"] = std::string("v1");
  devices_[1].attributes["s"] = std::string("v2");
  Claim claim = MakeClaim("a", {Ask("r0", "2"), Ask("r1", "2")});
  claim.constraints = {DeviceConstraint{{}, "drv.example/s", std::nullopt}};
  EXPECT_THAT(Run(claim), ElementsAre("r0 d1{c0:2}+share", "r1 d1{c0:2}+share"));
  EXPECT_THAT(Run("b", {Ask("r0", "2")}), ElementsAre("r0 d2{c0:2}+share"));
}

TEST_F(PlacementTest, S19FirstAlternativeThatFitsIsTaken) {
  devices_ = {Shared("d1", {{"c0", "2"}}, R())};
  DeviceRequest request;
  request.name = "r0";
  request.first_available = {Ask("sub0", "4"), Ask("sub1", "2"), Ask("sub2")};
  EXPECT_THAT(Run("a", {request}), ElementsAre("r0/sub1 d1{c0:2}+share"));
}

TEST_F(PlacementTest, S21S22AllLeavesOutDevicesThatAreShort) {
  devices_ = {Shared("d1", {{"c0", "2"}}), Shared("d2", {}), Shared("d3", {{"c0", "1"}})};
  EXPECT_THAT(Run("a", {AskAll("r0", "2")}), ElementsAre("r0 d1{c0:2}+share"));
}

TEST_F(PlacementTest, S23AllAfterAnotherRequest) {
  devices_ = {Shared("d1", {{"c0", "2"}}), Shared("d2", {{"c0", "1"}})};
  EXPECT_THAT(Run("a", {Ask("r0", "1"), AskAll("r1", "1")}), ElementsAre("r0 d1{c0:1}+share", "r1 d1{c0:1}+share", "r1 d2{c0:1}+share"));
}

TEST_F(PlacementTest, S24S26AllCountsCommittedShares) {
  devices_ = {Shared("d1", {{"c0", "2"}}), Shared("d2", {{"c0", "1"}})};
  Commit("d1", "1");
  EXPECT_THAT(Run("a", {AskAll("r0", "1")}), ElementsAre("r0 d1{c0:1}+share", "r0 d2{c0:1}+share"));
  live_.clear();
  devices_ = {Shared("d1", {{"c0", "1"}}), Shared("d2", {{"c0", "1"}})};
  Commit("d1", "1");
  EXPECT_THAT(Run("b", {AskAll("r0", "1")}), ElementsAre("r0 d2{c0:1}+share"));
}

TEST_F(PlacementTest, S25AllFailsWhenItsOwnClaimIsInTheWay) {
  devices_ = {Shared("d1", {{"c0", "1"}}), Shared("d2", {{"c0", "1"}})};
  EXPECT_THAT(Run("a", {Ask("r0", "1"), AskAll("r1", "1")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S27DedicatedDeviceIsFilteredByTheRequestAndRecordsNothing) {
  devices_ = {Dedicated("d1", {{"c0", "1"}}), Dedicated("d2", {{"c0", "2"}})};
  EXPECT_THAT(Run("a", {Ask("r0", "2")}), ElementsAre("r0 d2"));
  EXPECT_THAT(Run("b", {Ask("r0", "1")}), ElementsAre("r0 d1"));
  EXPECT_THAT(Run("c", {Ask("r0", "1")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S30DeviceInUseWithoutAShareIsBlocked) {
  devices_ = {Shared("d1", {{"c0", "2"}}, R())};
  CommitDedicated("d1");
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("none"));
  EXPECT_THAT(obstacles_.at(0).reason, HasSubstr("committed"));
}

TEST_F(PlacementTest, S31DeviceThatBecameDedicatedIsBlockedByItsShares) {
  devices_ = {Dedicated("d1", {{"c0", "2"}})};
  Commit("d1", "1");
  EXPECT_THAT(Run("a", {Ask("r0", "1")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S34CounterSpentByAShareOfAnotherDevice) {
  devices_ = {Shared("d1", {}), Shared("d2", {})};
  devices_[0].consumes_counters = devices_[1].consumes_counters = {{"s", {{"c0", Q("1")}}}};
  counter_sets_ = {{"s", {{"c0", Q("1")}}}};
  devices_[1].offer = "b";
  classes_["b"] = ClassView{"b", "drv.example", "b", Enforcement::kNone, ""};
  live_ = {test::ShareOf(devices_[0], "a", {})};
  DeviceRequest request = Ask("r0");
  request.device_class = "b";
  EXPECT_THAT(Run("b", {request}), ElementsAre("none"));
  EXPECT_EQ(obstacles_.at(0).capacity, "s/c0");
}

TEST_F(PlacementTest, S42S43PartitionsShareTheirSilicon) {
  devices_ = {Dedicated("d1"), Dedicated("d2"), Dedicated("d3")};
  const std::vector<std::string_view> sizes = {"4Gi", "6Gi", "4Gi"};
  for (std::size_t i = 0; i < sizes.size(); ++i) devices_[i].consumes_counters = {{"s", {{"memory", Q(sizes[i])}}}};
  counter_sets_ = {{"s", {{"memory", Q("8Gi")}}}};
  EXPECT_THAT(Run("a", {Ask("r0"), Ask("r1")}), ElementsAre("r0 d1", "r1 d3"));
}

TEST_F(PlacementTest, S47CountBacktracksOverPartitions) {
  devices_ = {Dedicated("d1"), Dedicated("d2"), Dedicated("d3")};
  const std::vector<std::string_view> sizes = {"5Gi", "4Gi", "4Gi"};
  for (std::size_t i = 0; i < sizes.size(); ++i) devices_[i].consumes_counters = {{"s", {{"memory", Q(sizes[i])}}}};
  counter_sets_ = {{"s", {{"memory", Q("8Gi")}, {"unused", Q("1")}}}};
  DeviceRequest request = Ask("r0");
  request.count = 2;
  EXPECT_THAT(Run("a", {request}), ElementsAre("r0 d2", "r0 d3"));
}

TEST_F(PlacementTest, S52S53UnknownCounterIsAnObstacle) {
  devices_ = {Dedicated("d1")};
  devices_[0].consumes_counters = {{"s", {{"memory", Q("1")}}}};
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("none"));
  EXPECT_THAT(obstacles_.at(0).reason, HasSubstr("s/memory"));
}

TEST_F(PlacementTest, S60AllFailsWhenADeviceIsTaken) {
  devices_ = {Dedicated("d1"), Dedicated("d2")};
  CommitDedicated("d1");
  EXPECT_THAT(Run("a", {AskAll("r0")}), ElementsAre("none"));
}

TEST_F(PlacementTest, S61S62AdminSeesDevicesInUse) {
  devices_ = {Dedicated("d1"), Dedicated("d2")};
  CommitDedicated("d1");
  EXPECT_THAT(Run("a", {Admin(AskAll("r0"))}), ElementsAre("r0 d1+admin", "r0 d2+admin"));
  DeviceRequest two = Admin(Ask("r0"));
  two.count = 2;
  EXPECT_THAT(Run("b", {two}), ElementsAre("r0 d1+admin", "r0 d2+admin"));
  EXPECT_THAT(Run("c", {Ask("r0")}), ElementsAre("r0 d2"));
}

TEST_F(PlacementTest, S63AdminNotTwiceInOneClaim) {
  devices_ = {Dedicated("d1"), Dedicated("d2")};
  EXPECT_THAT(Run("a", {Admin(Ask("r0")), Admin(AskAll("r1"))}), ElementsAre("none"));
}

TEST_F(PlacementTest, DeviceIsNotTakenTwiceWithinOneRequest) {
  devices_ = {Shared("d1", {{"c0", "4"}})};
  DeviceRequest request = Ask("r0", "1");
  request.count = 2;
  EXPECT_THAT(Run("a", {request}), ElementsAre("none"));
  EXPECT_THAT(obstacles_.at(0).reason, HasSubstr("2 different devices"));
  EXPECT_THAT(Run("b", {Ask("r0", "1"), Ask("r1", "1")}), ElementsAre("r0 d1{c0:1}+share", "r1 d1{c0:1}+share"));
}

DeviceConstraint Distinct(const std::string& attribute, std::vector<std::string> requests) {
  return DeviceConstraint{std::move(requests), std::nullopt, "drv.example/" + attribute};
}

TEST_F(PlacementTest, S36DistinctOverSeveralTypes) {
  const std::vector<std::pair<std::string, bool>> values = {{"1.0.0", true}, {"1.0.1", false}, {"1.0.2", true}, {"1.0.0", true}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    PublishedDevice device = Shared("d" + std::to_string(i + 1), {});
    device.attributes = {{"version", VersionValue{values[i].first}}, {"numa", static_cast<std::int64_t>(i)}, {"flag", values[i].second}};
    devices_.push_back(device);
  }
  Claim claim = MakeClaim("a", {Ask("r0"), Ask("r1"), Ask("r2"), Ask("r3")});
  claim.constraints = {Distinct("flag", {"r0", "r1"}), Distinct("version", {"r0", "r1", "r2"}), Distinct("numa", {})};
  EXPECT_THAT(Run(claim), ElementsAre("r0 d1+share", "r1 d2+share", "r2 d3+share", "r3 d4+share"));
}

TEST_F(PlacementTest, S37MissingAttributeIsAnObstacleThatNamesIt) {
  devices_ = {Shared("d1", {})};
  Claim claim = MakeClaim("a", {Ask("r0"), Ask("r1")});
  claim.constraints = {Distinct("flag", {})};
  EXPECT_THAT(Run(claim), ElementsAre("none"));
  EXPECT_THAT(obstacles_.at(0).reason, testing::AllOf(HasSubstr("distinctAttribute"), HasSubstr("drv.example/flag")));
}

TEST_F(PlacementTest, S40DistinctForbidsOneDeviceTwice) {
  devices_ = {Shared("d1", {{"c0", "4"}}, R())};
  devices_[0].attributes["s"] = std::string("v1");
  Claim claim = MakeClaim("a", {Ask("r0", "1"), Ask("r1", "1")});
  claim.constraints = {Distinct("s", {"r0", "r1"})};
  EXPECT_THAT(Run(claim), ElementsAre("none"));
}

TEST_F(PlacementTest, S41DistinctSpreads) {
  devices_ = {Shared("d1", {{"c0", "4"}}, R()), Shared("d2", {{"c0", "4"}}, R())};
  devices_[0].attributes["s"] = std::string("v1");
  devices_[1].attributes["drv.example/s"] = std::string("v2");
  Claim claim = MakeClaim("a", {Ask("r0", "2"), Ask("r1", "2")});
  claim.constraints = {Distinct("s", {"r0", "r1"})};
  EXPECT_THAT(Run(claim), ElementsAre("r0 d1{c0:2}+share", "r1 d2{c0:2}+share"));
}

TEST_F(PlacementTest, ConstraintOnAParentReachesItsAlternatives) {
  devices_ = {Shared("d1", {}), Shared("d2", {})};
  devices_[0].attributes["s"] = std::string("v1");
  devices_[1].attributes["s"] = std::string("v2");
  DeviceRequest request;
  request.name = "r1";
  request.first_available = {Ask("sub")};
  Claim claim = MakeClaim("a", {Ask("r0"), request});
  claim.constraints = {Distinct("s", {"r0", "r1"})};
  EXPECT_THAT(Run(claim), ElementsAre("r0 d1+share", "r1/sub d2+share"));
}

TEST_F(PlacementTest, DrainingAndWeakDevicesAreNotOffered) {
  devices_ = {Shared("d1", {}), Shared("d2", {})};
  devices_[0].draining = true;
  devices_[1].enforcement = Enforcement::kSoft;
  classes_["class"].minimum_enforcement = Enforcement::kHard;
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("none"));
  ASSERT_EQ(obstacles_.size(), 2u);
  EXPECT_THAT(obstacles_[0].reason, HasSubstr("drains"));
  EXPECT_THAT(obstacles_[1].reason, testing::AllOf(HasSubstr("soft"), HasSubstr("hard")));
}

TEST_F(PlacementTest, OfferWithoutDevicesIsSaid) {
  EXPECT_THAT(Run("a", {Ask("r0")}), ElementsAre("none"));
  EXPECT_EQ(obstacles_.at(0).device, "");
  EXPECT_THAT(obstacles_[0].reason, HasSubstr("offer"));
}

TEST_F(PlacementTest, ConfigurationIsClassBeforeClaim) {
  devices_ = {Shared("d1", {})};
  classes_["class"].parameters = R"({"direction":"both"})";
  Claim claim = MakeClaim("a", {Ask("r0"), Ask("r1")});
  claim.config = {OpaqueConfig{ConfigSource::kClaim, {"r0"}, "drv.example", R"({"mtu":9000})"}};
  const auto placed = Try(claim);
  ASSERT_TRUE(placed.ok() && placed->allocation);
  EXPECT_THAT(placed->allocation->config, ElementsAre(OpaqueConfig{ConfigSource::kClass, {"r0"}, "drv.example", R"({"direction":"both"})"},
                                                      OpaqueConfig{ConfigSource::kClass, {"r1"}, "drv.example", R"({"direction":"both"})"}, claim.config[0]));
}

TEST_F(PlacementTest, ClaimsThatCannotBePlacedAtAllAreInvalid) {
  devices_ = {Shared("d1", {{"c0", "4"}})};
  std::vector<Claim> claims;
  DeviceRequest request = Ask("r0");
  request.device_class = "unknown";
  claims.push_back(MakeClaim("unknown-class", {request}));
  request = Ask("r0");
  request.selectors = {"device.driver == 'x'"};
  claims.push_back(MakeClaim("selector", {request}));
  request = Ask("r0");
  request.count = 0;
  claims.push_back(MakeClaim("count", {request}));
  claims.push_back(MakeClaim("negative", {Ask("r0", "-1")}));
  claims.push_back(MakeClaim("twice", {Ask("r0"), Ask("r0")}));
  claims.push_back(MakeClaim("empty", {}));
  claims.push_back(MakeClaim("constraint-request", {Ask("r0")}));
  claims.back().constraints = {Distinct("s", {"r9"})};
  claims.push_back(MakeClaim("constraint-name", {Ask("r0")}));
  claims.back().constraints = {DeviceConstraint{{}, "bare", std::nullopt}};
  claims.push_back(MakeClaim("constraint-empty", {Ask("r0")}));
  claims.back().constraints = {DeviceConstraint{}};
  for (const Claim& claim : claims) {
    const absl::Status status = Try(claim).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << claim.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(claim.name));
  }
}

TEST_F(PlacementTest, HugeCountIsAnObstacle) {
  devices_ = {Shared("d1", {})};
  DeviceRequest request = Ask("r0");
  request.count = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(Run("a", {request}), ElementsAre("none"));
}

TEST_F(PlacementTest, SearchIsBounded) {
  std::vector<DeviceRequest> requests;
  for (int i = 0; i < 12; ++i) {
    devices_.push_back(Dedicated("d" + std::to_string(i)));
    requests.push_back(Ask("r" + std::to_string(i)));
  }
  devices_.pop_back();  // eleven devices for twelve requests: every order would be tried
  const absl::Status status = Try(MakeClaim("a", requests)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("gave up"));
}

}  // namespace
}  // namespace tranche::capacity
