// Consumption, policy rules and the grant check. Vectors marked "upstream" were run against the scheduler's own code.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capacity/capacity.h"
#include "unit/capacity_values.h"

namespace tranche::capacity {
namespace {

using test::Default;
using test::Device;
using test::Range;
using test::Text;
using test::Values;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

PublishedCapacity Capacity(std::string_view value, std::optional<RequestPolicy> policy = std::nullopt) {
  return PublishedCapacity{test::Q(value), std::move(policy), Enforcement::kHard};
}

// Consumption on a device of one capacity of which `used` is granted; "none" when it does not fit or is refused.
std::string Grants(const PublishedCapacity& capacity, std::string_view used, std::string_view request) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = capacity;
  Quantities requested;
  if (request != "-") requested["c0"] = test::Q(request);
  const auto consumed = ConsumedAll(device, requested);
  if (!consumed.ok()) return "none";
  const std::vector<Grant> live = {test::ShareOf(device, "other", {{"c0", test::Q(used)}})};
  if (!CheckGrant(device, test::ShareOf(device, "claim", *consumed), live, {}).ok()) return "none";
  return consumed->at("c0").ToString();
}

struct Vector {
  std::string_view value;
  std::optional<RequestPolicy> policy;
  std::string_view used, request, result;
};

void ExpectVectors(const std::vector<Vector>& vectors) {
  for (const Vector& vector : vectors) {
    const std::string got = Grants(Capacity(vector.value, vector.policy), vector.used, vector.request);
    const bool same = got == vector.result || (got != "none" && vector.result != "none" && test::Q(got) == test::Q(vector.result));
    EXPECT_TRUE(same) << "value " << vector.value << ", used " << vector.used << ", request " << vector.request << ": " << got << ", expected "
                      << vector.result;
  }
}

TEST(ConsumedTest, UpstreamVectorsWithoutRange) {
  ExpectVectors({
      {"80Gi", {}, "0", "-", "80Gi"},
      {"80Gi", {}, "70Gi", "10Gi", "10Gi"},
      {"80Gi", {}, "71Gi", "10Gi", "none"},
      {"80Gi", {}, "80Gi", "0", "0"},
      {"80Gi", Default("8Gi"), "0", "-", "8Gi"},
      {"80Gi", Default("8Gi"), "0", "3Gi", "3Gi"},
      {"80Gi", Values({"8Gi", "16Gi", "40Gi", "80Gi"}, "8Gi"), "0", "9Gi", "16Gi"},
      {"80Gi", Values({"8Gi", "16Gi", "40Gi", "80Gi"}, "8Gi"), "1Gi", "41Gi", "none"},
      {"80Gi", Values({"8Gi", "16Gi", "40Gi"}, "8Gi"), "0", "41Gi", "none"},
      {"80Gi", Values({"8Gi", "16Gi", "40Gi"}, "8Gi"), "72Gi", "-", "8Gi"},
      {"80Gi", Values({"8Gi", "16Gi", "40Gi"}, "8Gi"), "73Gi", "-", "none"},
      {"10", Values({"0"}, "0"), "10", "-", "0"},
      {"10", Values({"0"}, "0"), "0", "1", "none"},
      {"4", Values({"500m", "1", "2", "4"}, "1"), "0", "600m", "1"},
  });
}

TEST(ConsumedTest, UpstreamVectorsWithRange) {
  ExpectVectors({
      {"10Gi", Range("1Mi", "1Mi", "", "8"), "0", "5Gi", "5Gi"},
      {"10Gi", Range("1Mi", "1Mi", "", "8"), "0", "1048577", "1048584"},
      {"10Gi", Range("1Mi", "1Mi", "", "8"), "0", "1", "1Mi"},
      {"80Gi", Range("1Gi", "1Gi", "64Gi", "1Gi"), "0", "1500Mi", "2Gi"},
      {"80Gi", Range("1Gi", "1Gi", "64Gi", "1Gi"), "0", "63.5Gi", "64Gi"},
      {"80Gi", Range("1Gi", "1Gi", "64Gi", "1Gi"), "0", "64.5Gi", "none"},
      {"80Gi", Range("1Gi", "1Gi", "64Gi", ""), "0", "1500M", "1500M"},
      {"80Gi", Range("2Gi", "2Gi", "", "3Gi"), "0", "6Gi", "8Gi"},
      {"81Gi", Range("2Gi", "2Gi", "", "3Gi"), "0", "80Gi", "80Gi"},
      {"100", Range("10", "10", "100", "10"), "0", "15", "20"},
      {"100", Range("10", "10", "100", "10"), "0", "15500m", "20"},
      {"100k", Range("10k", "10k", "", "10k"), "0", "15k", "20000"},
      {"100", Range("0", "0", "", "5"), "100", "0", "0"},
      {"100", Range("0", "0", "", "5"), "100", "-", "0"},
      {"100", Range("0", "0", "", "5"), "96", "1", "none"},
  });
}

TEST(ConsumedTest, UpstreamVectorsWithFractions) {
  ExpectVectors({
      {"1", Range("200m", "200m", "", "100m"), "0", "250m", "300m"},
      {"1", Range("200m", "200m", "", "100m"), "0", "400m", "400m"},
      {"1", Range("200m", "200m", "", "100m"), "0", "300m", "300m"},
      {"10", Range("1", "1", "", "1"), "0", "1.001", "2"},
      {"10", Range("1", "1", "", "500m"), "0", "1.001", "1500m"},
  });
}

TEST(ConsumedTest, UpstreamUnitVectors) {
  const auto consumed = [](std::string_view value, std::optional<RequestPolicy> policy, std::string_view request) {
    const auto asked = request == "-" ? std::nullopt : std::optional<Quantity>(test::Q(request));
    const auto result = Consumed("c0", Capacity(value, std::move(policy)), asked);
    return result.ok() ? result->ToString() : std::string(absl::StatusCodeToString(result.status().code()));
  };
  EXPECT_EQ(consumed("1", RequestPolicy{}, "-"), "1");
  EXPECT_EQ(consumed("2", Range("1", "1", "", ""), "-"), "1");
  EXPECT_EQ(consumed("2", Values({"1"}, "1"), "-"), "1");
  EXPECT_EQ(consumed("2", Range("1", "1", "", ""), "2"), "2");
  EXPECT_EQ(consumed("2", Range("2", "2", "", ""), "1"), "2");
  EXPECT_EQ(consumed("3", Range("1", "1", "", "2"), "2"), "3");
  EXPECT_EQ(consumed("3", Range("1", "1", "", "1"), "2"), "2");
  EXPECT_EQ(consumed("3", Values({"1", "2", "3"}, "1"), "2"), "2");
  EXPECT_EQ(consumed("3", Values({"1", "3"}, "1"), "2"), "3");
  EXPECT_EQ(consumed("3", Values({"1", "2"}, "1"), "3"), "OUT_OF_RANGE");
  EXPECT_EQ(consumed("3", Range("1", "1", "1", ""), "2"), "OUT_OF_RANGE");
}

TEST(ConsumedTest, EveryCapacityOfTheDeviceIsRecorded) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = Capacity("2", Range("2", "1", "", ""));
  device.capacity["c1"] = Capacity("2", Range("1", "1", "", ""));
  device.capacity["dummy"] = Capacity("1");
  const auto consumed = ConsumedAll(device, {{"c0", test::Q("1")}, {"dummy", test::Q("1")}});
  ASSERT_TRUE(consumed.ok()) << consumed.status();
  EXPECT_THAT(Text(*consumed), UnorderedElementsAre(Pair("c0", "1"), Pair("c1", "1"), Pair("dummy", "1")));
}

TEST(ConsumedTest, BareAndQualifiedNamesAreOneCapacity) {
  PublishedDevice device = Device("d1");
  device.capacity["memory"] = Capacity("8Gi");
  EXPECT_THAT(Text(*ConsumedAll(device, {{"drv.example/memory", test::Q("1Gi")}})), UnorderedElementsAre(Pair("memory", "1Gi")));
  EXPECT_EQ(ConsumedAll(device, {{"other.example/memory", test::Q("1Gi")}}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto both = ConsumedAll(device, {{"drv.example/memory", test::Q("1Gi")}, {"memory", test::Q("1Gi")}});
  EXPECT_THAT(std::string(both.status().message()), HasSubstr("twice"));
  device.capacity["drv.example/memory"] = Capacity("4Gi", Default("0"));
  EXPECT_EQ(ConsumedAll(device, {{"memory", test::Q("1Gi")}})->at("drv.example/memory"), test::Q("1Gi"));
}

TEST(ConsumedTest, MissingNameSaysWhatTheDeviceHas) {
  PublishedDevice device = Device("d1");
  device.capacity["bandwidth"] = Capacity("1G");
  const absl::Status status = ConsumedAll(device, {{"memory", test::Q("1")}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("drv.example/node1/d1"), HasSubstr("memory"), HasSubstr("bandwidth")));
}

// ---- Deliberate differences from the scheduler (docs/capacity.md).

TEST(DifferenceTest, StepOfZeroOrLessIsRefused) {
  for (const std::string_view step : {"0", "-1"}) {
    EXPECT_EQ(Consumed("c0", Capacity("10", Range("1", "1", "", step)), test::Q("3")).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(DifferenceTest, NothingWrapsAroundAt64Bits) {
  EXPECT_EQ(Grants(Capacity("9223372036854775807", Range("0", "0", "", "2")), "0", "9223372036854775807"), "none");
  EXPECT_EQ(*Consumed("c0", Capacity("9223372036854775807", Range("0", "0", "", "2")), test::Q("9223372036854775807")), test::Q("9223372036854775808"));
  EXPECT_EQ(*Consumed("c0", Capacity("9223372036854775807", Range("1", "1", "", "2")), test::Q("9223372036854775806")), test::Q("9223372036854775807"));
  EXPECT_EQ(Grants(Capacity("9223372036854775807", Range("0", "0", "", "3")), "0", "18446744073709551619"), "none");
}

TEST(DifferenceTest, SumsBeyond64BitsAreExact) {
  EXPECT_EQ(Grants(Capacity("20E"), "19E", "1E"), "1E");
  EXPECT_EQ(Grants(Capacity("20E"), "19E", "1000000000000000001"), "none");
}

TEST(DifferenceTest, NegativeRequestIsRefused) {
  EXPECT_EQ(Grants(Capacity("10"), "12", "-5"), "none");
  EXPECT_EQ(Consumed("c0", Capacity("10", Range("1", "1", "", "1")), test::Q("-5")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Consumed("c0", Capacity("-10"), std::nullopt).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Consumed("c0", Capacity("10", Default("-1")), std::nullopt).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DifferenceTest, NegativeStoredConsumptionIsRefused) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = Capacity("10");
  EXPECT_EQ(CheckGrant(device, test::ShareOf(device, "a", {{"c0", test::Q("-1")}}), {}, {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(DifferenceTest, RequestFinerThanAThousandthIsRounded) { EXPECT_EQ(Grants(Capacity("10", Range("1", "1", "", "1")), "0", "1.0000001"), "2"); }

TEST(DifferenceTest, FractionsAreExactWhateverTheServersGate) {
  EXPECT_EQ(Grants(Capacity("2", Range("500m", "500m", "", "500m")), "0", "700m"), "1");
  EXPECT_EQ(Grants(Capacity("1", Range("200m", "200m", "", "100m")), "0", "250m"), "300m");
}

TEST(DifferenceTest, AdminAccessIsCountedNowhere) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = Capacity("10");
  device.consumes_counters = {{"s", {{"u", test::Q("8")}}}};
  Grant admin = test::ShareOf(device, "admin", {{"c0", test::Q("10")}});
  admin.admin_access = true;
  const std::vector<CounterSet> sets = {{"s", {{"u", test::Q("8")}}}};
  EXPECT_TRUE(CheckGrant(device, test::ShareOf(device, "a", {{"c0", test::Q("10")}}), {admin}, sets).ok());
  const Grant full = test::ShareOf(device, "a", {{"c0", test::Q("10")}});
  EXPECT_TRUE(CheckGrant(device, admin, {full}, sets).ok());
  EXPECT_TRUE(Allocated("drv.example", "node1", "d1", {admin}).empty());
}

TEST(DifferenceTest, DeviceThatBecameDedicatedTakesNoClaimWhileSharesLive) {
  PublishedDevice device = Device("d1");
  const Grant share = test::ShareOf(device, "a", {});
  device.allow_multiple_allocations = false;
  device.mode = Mode::kWhole;
  EXPECT_EQ(CheckGrant(device, test::WholeOf(device, "b"), {share}, {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(DifferenceTest, NumericallyEqualValidValuesAreDuplicates) {
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("4", Values({"1", "1.0"}, "1")), true).ok());
  EXPECT_TRUE(ValidatePolicy("c0", Capacity("4", Values({"100m", "200m"}, "100m")), true).ok());
}

TEST(DifferenceTest, PolicyRulesCoverWhatTheServerMisses) {
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("-1"), true).ok());
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("4", Default("5")), true).ok());
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("4", Range("0", "-1", "", "")), true).ok());
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("4", Range("250m", "200m", "", "100m")), true).ok());
  EXPECT_FALSE(ValidatePolicy("not-a-name", Capacity("4"), true).ok());
}

// ---- Policy rules P1…R10.

struct Rule {
  std::string_view number;
  PublishedCapacity capacity;
  std::string_view field;  // "" for accepted
};

TEST(PolicyTest, EveryRuleNamesItsField) {
  RequestPolicy both = Values({"1"}, "1");
  both.valid_range = ValidRange{test::Q("1"), {}, {}};
  RequestPolicy no_default = Values({"1"}, "1");
  no_default.default_value.reset();
  RequestPolicy range_no_default = *Range("1", "1", "", "");
  range_no_default.default_value.reset();
  const std::vector<Rule> rules = {
      {"P2", Capacity("4", both), "requestPolicy"},
      {"P3", Capacity("4", RequestPolicy{}), ""},
      {"V1", Capacity("4", no_default), "default"},
      {"V2", Capacity("20", Values({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}, "1")), "validValues"},
      {"V2 limit", Capacity("20", Values({"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}, "1")), ""},
      {"V3", Capacity("4", Values({"2", "1"}, "1")), "validValues[1]"},
      {"V4", Capacity("4", Values({"1", "1"}, "1")), "validValues[1]"},
      {"V5", Capacity("4", Values({"1", "5"}, "1")), "validValues[1]"},
      {"V6", Capacity("4", Values({"1", "2"}, "3")), "default"},
      {"R1", Capacity("4", range_no_default), "default"},
      {"R3", Capacity("4", Range("5", "5", "", "")), "validRange.min"},
      {"R4", Capacity("4", Range("1", "2", "", "")), "default"},
      {"R5 min", Capacity("9", Range("5", "5", "4", "")), "validRange.min"},
      {"R5 value", Capacity("4", Range("1", "1", "5", "")), "validRange.max"},
      {"R5 default", Capacity("9", Range("5", "1", "4", "")), "default"},
      {"R6 zero", Capacity("4", Range("1", "1", "", "0")), "validRange.step"},
      {"R6 negative", Capacity("4", Range("1", "1", "", "-1")), "validRange.step"},
      {"R7", Capacity("4", Range("1", "1", "", "4")), "validRange.step"},
      {"R8 default", Capacity("9", Range("4", "1", "", "2")), "validRange.step"},
      {"R8 max", Capacity("9", Range("3", "1", "4", "2")), "validRange.step"},
      {"R9", Capacity("100E", Range("10E", "10E", "", "1")), "validRange.min"},
      {"R10", Capacity("4", Range("1", "1", "", "1u")), "validRange.step"},
      {"valid range", Capacity("80Gi", Range("5Gi", "5Gi", "80Gi", "5Gi")), ""},
      {"valid fraction", Capacity("1", Range("200m", "200m", "1", "100m")), ""},
      {"zero trick", Capacity("1", Values({"0"}, "0")), ""},
      {"max below value, value off the grid", Capacity("100", Range("10", "10", "40", "15")), ""},
  };
  for (const Rule& rule : rules) {
    const absl::Status status = ValidatePolicy("c0", rule.capacity, true);
    EXPECT_EQ(status.ok(), rule.field.empty()) << rule.number << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(rule.field))) << rule.number;
  }
}

TEST(PolicyTest, P1PolicyNeedsASharedDevice) {
  EXPECT_FALSE(ValidatePolicy("c0", Capacity("4", Default("1")), false).ok());
  EXPECT_TRUE(ValidatePolicy("c0", Capacity("4"), false).ok());
}

// ---- CheckGrant.

TEST(CheckGrantTest, MessageNamesDeviceCapacityAskedLeftAndMissing) {
  PublishedDevice device = Device("d1");
  device.capacity["bandwidth"] = Capacity("1G");
  const std::vector<Grant> live = {test::ShareOf(device, "other", {{"bandwidth", test::Q("900M")}})};
  const absl::Status status = CheckGrant(device, test::ShareOf(device, "claim", {{"bandwidth", test::Q("300M")}}), live, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("drv.example/node1/d1"), HasSubstr("bandwidth"), HasSubstr("asked 300M"),
                                                            HasSubstr("left 100M of 1G"), HasSubstr("missing 200M")));
}

TEST(CheckGrantTest, RetryOfALiveGrantFits) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = Capacity("10");
  const Grant share = test::ShareOf(device, "a", {{"c0", test::Q("10")}});
  EXPECT_TRUE(CheckGrant(device, share, {share}, {}).ok());
  device.allow_multiple_allocations = false;
  const Grant whole = test::WholeOf(device, "a");
  EXPECT_TRUE(CheckGrant(device, whole, {whole}, {}).ok());
}

TEST(CheckGrantTest, ShrunkValueRefusesEvenAZeroRequest) {
  PublishedDevice device = Device("d1");
  device.capacity["c0"] = Capacity("5");
  const std::vector<Grant> live = {test::ShareOf(device, "a", {{"c0", test::Q("8")}})};
  EXPECT_EQ(CheckGrant(device, test::ShareOf(device, "b", {{"c0", test::Q("0")}}), live, {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(CheckGrantTest, GrantWithoutShareIdBlocksTheDeviceAndNamesItself) {
  const PublishedDevice device = Device("d1");
  Grant old = test::ShareOf(device, "old", {});
  old.key.share_id.clear();
  const absl::Status status = CheckGrant(device, test::ShareOf(device, "new", {}), {old}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("old"));
}

TEST(CheckGrantTest, WholeExcludesAndIsExcluded) {
  PublishedDevice device = Device("d1");
  device.allow_multiple_allocations = false;
  device.mode = Mode::kWhole;
  EXPECT_TRUE(CheckGrant(device, test::WholeOf(device, "a"), {}, {}).ok());
  EXPECT_FALSE(CheckGrant(device, test::WholeOf(device, "a"), {test::WholeOf(device, "b")}, {}).ok());
}

TEST(CheckGrantTest, TwoOffersOfOneHardwareExcludeEachOther) {
  PublishedDevice first = Device("d1-shared");
  PublishedDevice second = Device("d1-fast");
  for (PublishedDevice* device : {&first, &second}) {
    device->backend = "uplink";
    device->physical = "eth1";
  }
  const absl::Status status = CheckGrant(second, test::ShareOf(second, "b", {}), {test::ShareOf(first, "a", {})}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("d1-shared"));
}

TEST(CheckGrantTest, ConsumedNameThatTheDeviceLacksIsRefused) {
  const PublishedDevice device = Device("d1");
  EXPECT_EQ(CheckGrant(device, test::ShareOf(device, "a", {{"gone", test::Q("1")}}), {}, {}).code(), absl::StatusCode::kInvalidArgument);
}

class CounterTest : public testing::Test {
 protected:
  // One silicon of 8 slices: two partitions of 2, one share device and the whole, both of 8.
  static PublishedDevice Part(const std::string& name, std::string_view slices, bool shared) {
    PublishedDevice device = Device(name);
    device.allow_multiple_allocations = shared;
    device.mode = shared ? Mode::kShare : Mode::kPartition;
    device.consumes_counters = {{"gpu-0", {{"memory-slice", test::Q(slices)}}}};
    return device;
  }
  const std::vector<CounterSet> sets_ = {{"gpu-0", {{"memory-slice", test::Q("8")}}}};
  const PublishedDevice mig0_ = Part("mig0", "2", false), mig1_ = Part("mig1", "2", false), whole_ = Part("whole", "8", false);
  const PublishedDevice shared_ = Part("shared", "8", true);
};

TEST_F(CounterTest, SharedDeviceIsChargedOnce) {
  const Grant first = test::ShareOf(shared_, "a", {});
  EXPECT_TRUE(CheckGrant(shared_, test::ShareOf(shared_, "b", {}), {first}, sets_).ok());
}

TEST_F(CounterTest, ModesExcludeEachOther) {
  const Grant share = test::ShareOf(shared_, "a", {});
  EXPECT_FALSE(CheckGrant(whole_, test::WholeOf(whole_, "b"), {share}, sets_).ok());
  EXPECT_FALSE(CheckGrant(mig0_, test::WholeOf(mig0_, "b"), {share}, sets_).ok());
  const Grant mig = test::WholeOf(mig0_, "a");
  EXPECT_TRUE(CheckGrant(mig1_, test::WholeOf(mig1_, "b"), {mig}, sets_).ok());
  EXPECT_FALSE(CheckGrant(whole_, test::WholeOf(whole_, "b"), {mig}, sets_).ok());
  EXPECT_FALSE(CheckGrant(shared_, test::ShareOf(shared_, "b", {}), {mig}, sets_).ok());
}

TEST_F(CounterTest, MessageNamesTheCounter) {
  const absl::Status status = CheckGrant(whole_, test::WholeOf(whole_, "b"), {test::WholeOf(mig0_, "a")}, sets_);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("gpu-0/memory-slice"), HasSubstr("asked 8"), HasSubstr("left 6 of 8"), HasSubstr("missing 2")));
}

TEST_F(CounterTest, WithdrawnDeviceStillHoldsItsCounters) {
  Grant withdrawn = test::ShareOf(shared_, "a", {});
  withdrawn.key.device = "no-longer-published";
  EXPECT_FALSE(CheckGrant(whole_, test::WholeOf(whole_, "b"), {withdrawn}, sets_).ok());
}

TEST_F(CounterTest, OtherPoolsAndDriversDoNotCount) {
  Grant other = test::ShareOf(shared_, "a", {});
  other.key.driver = "other.example";
  EXPECT_TRUE(CheckGrant(whole_, test::WholeOf(whole_, "b"), {other}, sets_).ok());
}

TEST_F(CounterTest, UnknownSetOrCounterIsNamed) {
  EXPECT_EQ(CheckGrant(whole_, test::WholeOf(whole_, "b"), {}, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(CheckGrant(whole_, test::WholeOf(whole_, "b"), {}, {{"gpu-0", {}}}).message()), HasSubstr("gpu-0/memory-slice"));
}

TEST_F(CounterTest, NegativeCounterUseIsRefused) {
  const PublishedDevice odd = Part("odd", "-8", false);
  EXPECT_EQ(CheckGrant(odd, test::WholeOf(odd, "b"), {}, sets_).code(), absl::StatusCode::kInvalidArgument);
}

TEST(AllocatedTest, SumsOneDevice) {
  const PublishedDevice first = Device("d1"), second = Device("d2");
  const std::vector<Grant> live = {test::ShareOf(first, "a", {{"c0", test::Q("1Gi")}}), test::ShareOf(first, "b", {{"c0", test::Q("512Mi")}}),
                                   test::ShareOf(second, "c", {{"c0", test::Q("7Gi")}})};
  EXPECT_THAT(Text(Allocated("drv.example", "node1", "d1", live)), UnorderedElementsAre(Pair("c0", "1536Mi")));
}

}  // namespace
}  // namespace tranche::capacity
