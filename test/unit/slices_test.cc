// The codec, the planner and the repairs.
#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "base/ids.h"
#include "model/json.h"
#include "unit/slice_server.h"
#include "unit/slices_fixture.h"

namespace tranche::slices {
namespace {

Slice Decoded(const std::string& text) {
  absl::StatusOr<boost::json::value> value = ParseJson(text);
  EXPECT_TRUE(value.ok()) << value.status();
  absl::StatusOr<Slice> slice = DecodeSlice(*value);
  EXPECT_TRUE(slice.ok()) << slice.status();
  return slice.ok() ? *slice : Slice();
}

constexpr const char* kObject =
    R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"name":"00000-d-n-abcde","generateName":"00000-d-n-","uid":"u1",
 "resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"a":"b"},"managedFields":[{"manager":"x"}],"labels":{"l":"v"},
 "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"nu","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"cu"}]},
 "spec":{"driver":"d","nodeName":"n","pool":{"name":"n","generation":3,"resourceSliceCount":2},"skipNodeOperations":["x"],
 "devices":[{"name":"a","bindsToNode":true,"attributes":{"model":{"string":"m"},"list":{"ints":[1,2]},"v":{"version":"1.2.3"}},
 "capacity":{"memory":{"value":"80Gi","requestPolicy":{"default":"5Gi","validRange":{"min":"5Gi"}}}},"allowMultipleAllocations":true,
 "consumesCounters":[{"counterSet":"s","counters":{"c":{"value":"2"}}}],
 "taints":[{"key":"k","value":"v","effect":"NoSchedule","timeAdded":"2026-01-02T03:04:05Z"}]}]}})";

TEST(SliceCodec, AnObjectWrittenBackLosesNothingThatIsNotTheServersOwn) {
  boost::json::value object = *ParseJson(kObject);
  const Slice slice = Decoded(kObject);
  EXPECT_EQ(slice.owner, (NodeOwner{"n", "nu"}));
  EXPECT_EQ(slice.generation, 3);
  ASSERT_EQ(slice.content->devices.size(), 1U);
  EXPECT_EQ(slice.content->devices[0].attributes.size(), 2U);
  object.as_object()["metadata"].as_object().erase("managedFields");
  EXPECT_EQ(boost::json::value(EncodeSlice(slice)), object);
}

TEST(SliceCodec, MistakesNameTheObjectAndThePath) {
  const absl::StatusOr<Slice> slice =
      DecodeSlice(*ParseJson(R"({"metadata":{"name":"x"},"spec":{"driver":"d","pool":{"name":"n"},"devices":[{"name":"a"},{"name":7}]}})"));
  ASSERT_FALSE(slice.ok());
  EXPECT_NE(std::string(slice.status().message()).find("x: spec.devices[1].name"), std::string::npos) << slice.status();
  EXPECT_FALSE(DecodeSlice(boost::json::value(3)).ok());
}

TEST(SliceCodec, ComparisonIsSemantic) {
  const Slice slice = Decoded(kObject);
  SliceContent other = *slice.content;
  other.devices[0].taints[0].time_added.reset();
  other.devices[0].unknown.clear();
  other.devices[0].capacity["memory"].value = *Quantity::Parse("81920Mi");
  EXPECT_TRUE(SameContent(*slice.content, other));
  other.devices[0].taints[0].effect = "NoExecute";
  EXPECT_FALSE(SameContent(*slice.content, other));
}

TEST(Repair, VersionsBecomeSemanticOrAreLeftOut) {
  const std::map<std::string, std::string> repaired = {{"1.2.3", "1.2.3"},
                                                       {"1.2", "1.2.0"},
                                                       {"7", "7.0.0"},
                                                       {"v12", "12.0.0"},
                                                       {"V1.2-rc.1", "1.2.0-rc.1"},
                                                       {"6.10.5.1", "6.10.5+1"},
                                                       {"550.054.15", "550.54.15"},
                                                       {"1.2.3rc1", "1.2.3-rc1"},
                                                       {"5.15.0-91-generic", "5.15.0-91-generic"},
                                                       {"6.1.0_amd64", "6.1.0+amd64"},
                                                       {" 1.0 ", "1.0.0"},
                                                       {"1.2.3-007", "1.2.3-7"},
                                                       {"1.2.3+a..b", "1.2.3+a.b"},
                                                       {"1.2.3-", "1.2.3"},
                                                       {"1..2", "1.0.0+2"},
                                                       {"1.2.3-" + std::string(90, 'x'), "1.2.3"}};
  for (const auto& [text, version] : repaired) EXPECT_EQ(RepairVersion(text), version) << text;
  for (const std::string text : {"", "v", "latest", "-1.2", "99999999999999999999999.1", "\xff\xfe"}) EXPECT_EQ(RepairVersion(text), std::nullopt) << text;
}

TEST(Repair, TextsAreUtf8OfAtMost64Bytes) {
  EXPECT_EQ(RepairText("plain"), "plain");
  EXPECT_EQ(RepairText(std::string(65, 'a')), std::string(64, 'a'));
  EXPECT_EQ(RepairText(std::string(63, 'a') + "é"), std::string(63, 'a'));  // never half a character
  EXPECT_EQ(RepairText("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(RepairText("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(RepairText("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Repair, AttributeNamesAreQualifiedAndStayDifferent) {
  EXPECT_EQ(RepairAttributeName("model"), "model");
  EXPECT_EQ(RepairAttributeName("vendor.example.com/model-name"), "vendor.example.com/model_name");
  EXPECT_EQ(RepairAttributeName("Vendor Inc/Model"), "Vendor_Inc_Model");
  EXPECT_EQ(RepairAttributeName("3d"), "_3d");
  EXPECT_EQ(RepairAttributeName("a/b/c"), "a/b_c");
  for (const std::string text : {"", "/", "--", "\xff"}) EXPECT_EQ(RepairAttributeName(text), std::nullopt) << text;
  const std::string stem(40, 'a');
  EXPECT_NE(RepairAttributeName(stem + "x"), RepairAttributeName(stem + "y"));
  for (const std::string& text : {stem, Cat(std::string(70, 'b'), "/x"), std::string("é"), std::string("a b")}) {
    const std::optional<std::string> name = RepairAttributeName(text);
    EXPECT_TRUE(!name.has_value() || IsQualifiedName(*name)) << text;
  }
}

TEST(SliceNames, TheIndexIsFoundInNamesThatAServerMakes) {
  const std::string node = "a-node-with-a-rather-long-name.region-1.compute.example.internal";
  for (const std::size_t index : {std::size_t{0}, std::size_t{31}, std::size_t{0xfffff}, std::size_t{0x100000}}) {
    const std::string generated = GenerateName(index, kDriver, node);
    EXPECT_EQ(IndexOf(generated + "abcde", kDriver, node), index);
    EXPECT_EQ(IndexOf(generated.substr(0, 58) + "abcde", kDriver, node), index);  // as API servers shorten it
  }
  EXPECT_EQ(GenerateName(10, kDriver, kNode), "0000a-vnic.tranche.dev-node-1-");
  for (const std::string name : {"", "00000", "node-1-vnic.tranche.dev-abcde", "00000-other.dev-node-1-abcde", "00000-vnic.tranche.dev-node-1-"}) {
    EXPECT_EQ(IndexOf(name, kDriver, kNode), std::nullopt) << name;
  }
  const std::string longest =
      GenerateName(0, std::string(61, 'd') + ".e", std::string(63, 'n') + "." + std::string(63, 'm') + "." + std::string(63, 'o') + "." + std::string(61, 'p'));
  EXPECT_LE(longest.size(), 248U);
  EXPECT_TRUE(IsObjectName(longest + "abcde"));
}

// ---- Planning.

std::vector<std::size_t> Sizes(const SlicePlan& plan) {
  std::vector<std::size_t> sizes;
  for (const Slice& slice : plan.slices) sizes.push_back(slice.content->devices.size());
  return sizes;
}

SlicePlan PlanOf(const inventory::Snapshot& snapshot, ServerFeatures features = {}) { return Plan(kDriver, kNode, snapshot, {}, features); }

using Counts = std::vector<std::size_t>;

TEST(Planner, SplitsAt128AndAt64WhereDevicesHaveTaintsOrCounters) {
  const std::map<std::size_t, Counts> plain = {{0, {0}},
                                               {1, {1}},
                                               {63, {63}},
                                               {64, {64}},
                                               {65, {65}},
                                               {127, {127}},
                                               {128, {128}},
                                               {129, {128, 1}},
                                               {300, {128, 128, 44}},
                                               {1000, {128, 128, 128, 128, 128, 128, 128, 104}}};
  for (const auto& [devices, sizes] : plain) EXPECT_EQ(Sizes(PlanOf(MakeSnapshot({.devices = devices}))), sizes) << devices;
  const std::map<std::size_t, Counts> tainted = {{1, {1}}, {64, {64}}, {65, {64, 1}}, {128, {64, 64}}, {129, {64, 64, 1}}, {300, {64, 64, 64, 64, 44}}};
  for (const auto& [devices, sizes] : tainted) EXPECT_EQ(Sizes(PlanOf(MakeSnapshot({.devices = devices, .taints = true}))), sizes) << devices;
  EXPECT_EQ(Sizes(PlanOf(MakeSnapshot({.devices = 65, .counters = true}))), (Counts{0, 64, 1}));  // the counter sets come first
}

TEST(Planner, OneLateTaintDoesNotMakeASliceTooLarge) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 200});
  snapshot.devices[100].draining = true;
  EXPECT_EQ(Sizes(PlanOf(snapshot)), (Counts{100, 64, 36}));
}

TEST(Planner, EveryCountOfEveryKindIsValidInEveryVersion) {
  for (const int minor : {34, 35, 36, 37}) {
    for (const std::size_t devices : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 129U, 300U, 1000U}) {
      for (const int kind : {0, 1, 2, 3}) {
        ServerFeatures features;
        features.minor = minor;
        const SlicePlan plan = PlanOf(MakeSnapshot({.devices = devices, .taints = (kind & 1) != 0, .counters = (kind & 2) != 0, .sets = 20}), features);
        std::size_t published = 0;
        for (Slice slice : plan.slices) {
          slice.name = slice.generate_name + "abcde";
          EXPECT_EQ(ValidateSlice(slice, minor), absl::OkStatus()) << minor << " " << devices << " " << kind;
          EXPECT_EQ(slice.slice_count, static_cast<std::int64_t>(plan.slices.size()));
          published += slice.content->devices.size();
        }
        EXPECT_EQ(published, devices);
        EXPECT_TRUE(plan.problems.empty()) << plan.problems[0].message;
      }
    }
  }
}

TEST(Planner, AtMostEightCounterSetsASlice) {
  const SlicePlan plan = PlanOf(MakeSnapshot({.devices = 34, .counters = true, .sets = 17}));
  ASSERT_EQ(plan.slices.size(), 4U);
  EXPECT_EQ(plan.slices[0].content->shared_counters.size(), 8U);
  EXPECT_EQ(plan.slices[2].content->shared_counters.size(), 1U);
  EXPECT_EQ(plan.slices[3].content->devices.size(), 34U);
}

TEST(Planner, ACounterSetOfOneDeviceIsNotPublished) {
  EXPECT_EQ(Sizes(PlanOf(MakeSnapshot({.devices = 300, .counters = true, .sets = 300}))), (Counts{128, 128, 44}));
  const SlicePlan plan = PlanOf(MakeSnapshot({.devices = 3, .counters = true, .sets = 2}));  // two on one set, one alone
  ASSERT_EQ(Sizes(plan), (Counts{0, 3}));
  ASSERT_EQ(plan.slices[0].content->shared_counters.size(), 1U);
  EXPECT_EQ(plan.slices[0].content->shared_counters[0].name, "silicon-0");
  EXPECT_TRUE(plan.slices[1].content->devices[1].consumes_counters.empty());
  EXPECT_EQ(plan.slices[1].content->devices[2].consumes_counters.size(), 1U);
}

TEST(Planner, ADeviceThatDrawsMoreThanThereIsKeepsItsCounterSet) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 1, .counters = true, .sets = 1});
  snapshot.devices[0].consumes_counters[0].counters["units"] = Quantity::FromInt64(1001);
  EXPECT_EQ(Sizes(PlanOf(snapshot)), (Counts{0, 1}));
}

TEST(Planner, In134CountersSitWithTheirDevices) {
  ServerFeatures features;
  features.minor = 34;
  const SlicePlan plan = PlanOf(MakeSnapshot({.devices = 200, .counters = true, .sets = 40}), features);
  std::size_t devices = 0;
  for (const Slice& slice : plan.slices) {
    std::set<std::string> sets;
    for (const CounterSet& set : slice.content->shared_counters) sets.insert(set.name);
    for (const SliceDevice& device : slice.content->devices) EXPECT_TRUE(sets.contains(device.consumes_counters.at(0).counter_set));
    devices += slice.content->devices.size();
  }
  EXPECT_EQ(devices, 200U);
}

TEST(Planner, OneBadAttributeNeverCostsADeviceAndOneBadDeviceNeverASlice) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 5});
  PublishedDevice& bad = snapshot.devices[1];
  bad.attributes["driver version"] = VersionValue{"6.10.5.1"};
  bad.attributes["firmware"] = VersionValue{"unknown"};
  bad.attributes["serial"] = std::string("\xff\xfe");
  bad.attributes["driver-version"] = std::int64_t{1};     // becomes the same name as the first
  bad.attributes[kDriver + "/model"] = std::string("x");  // the driver's own domain is the bare name
  bad.capacity["odd"] = {Quantity::FromInt64(-1), std::nullopt, Enforcement::kHard};
  snapshot.devices[2].name = "GPU_0";
  snapshot.devices[3].name = "dev-0";
  snapshot.devices[4].consumes_counters.push_back({"nowhere", {{"c", Quantity::FromInt64(1)}}});
  const SlicePlan plan = PlanOf(snapshot);
  ASSERT_EQ(Sizes(plan), Counts{2});
  const SliceDevice& device = plan.slices[0].content->devices[1];
  EXPECT_EQ(std::get<VersionValue>(device.attributes.at("driver_version")).text, "6.10.5+1");
  EXPECT_FALSE(device.attributes.contains("firmware"));
  EXPECT_TRUE(device.attributes.contains("model"));
  EXPECT_FALSE(device.capacity.contains("odd"));
  std::multiset<ProblemKind> kinds;
  for (const Problem& problem : plan.problems) kinds.insert(problem.kind);
  EXPECT_EQ(kinds.count(ProblemKind::kWithheld), 3U);
  EXPECT_EQ(kinds.count(ProblemKind::kOmitted), 3U);  // firmware, the collision, the capacity
  Slice slice = plan.slices[0];
  slice.name = "x";
  EXPECT_EQ(ValidateSlice(slice, 37), absl::OkStatus());
}

TEST(Planner, OfferAndEnforcementAreKeptWhenAttributesAreCut) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 1});
  for (int i = 0; i < 60; ++i) snapshot.devices[0].attributes[Cat("a", i)] = std::int64_t{i};
  const SlicePlan plan = PlanOf(snapshot);
  const SliceDevice& device = plan.slices[0].content->devices.at(0);
  EXPECT_EQ(device.attributes.size() + device.capacity.size(), 32U);
  EXPECT_TRUE(device.attributes.contains("offer") && device.attributes.contains("enforcement") && device.capacity.contains("bandwidth"));
}

TEST(Planner, EqualFindingsOfManyDevicesAreOne) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 500});
  for (PublishedDevice& device : snapshot.devices) device.attributes["v"] = VersionValue{"none"};
  const SlicePlan plan = PlanOf(snapshot);
  ASSERT_EQ(plan.problems.size(), 1U);
  EXPECT_EQ(plan.problems[0].devices, 500U);
  EXPECT_EQ(plan.problems[0].device, "dev-0");
}

// One card as two partitions, a share and the whole, which exclude each other by counters.
inventory::Snapshot CardOfferedThrice() {
  inventory::Snapshot snapshot;
  snapshot.counter_sets[kDriver].push_back({"card", {{"slices", Quantity::FromInt64(8)}}});
  const auto add = [&](const std::string& name, Mode mode, std::int64_t uses) {
    PublishedDevice device = MakePublished(name, mode);
    device.consumes_counters.push_back({"card", {{"slices", Quantity::FromInt64(uses)}}});
    snapshot.devices.push_back(std::move(device));
  };
  add("part-0", Mode::kPartition, 4);
  add("part-1", Mode::kPartition, 4);
  add("part-2", Mode::kPartition, 4);
  add("share", Mode::kShare, 8);
  add("whole", Mode::kWhole, 8);
  return snapshot;
}

std::vector<std::string> Names(const SlicePlan& plan) {
  std::vector<std::string> names;
  for (const Slice& slice : plan.slices) {
    for (const SliceDevice& device : slice.content->devices) names.push_back(device.name);
  }
  return names;
}

TEST(Planner, WhereCountersAreDroppedOnlyTheFirstModeIsOfferedAndOnlyWhatFits) {
  ServerFeatures features;
  EXPECT_EQ(Names(PlanOf(CardOfferedThrice(), features)).size(), 5U);
  features.partitionable = false;
  const SlicePlan plan = PlanOf(CardOfferedThrice(), features);
  EXPECT_EQ(Names(plan), (std::vector<std::string>{"part-0", "part-1"}));
  EXPECT_TRUE(plan.slices[0].content->shared_counters.empty() && plan.slices[0].content->devices[0].consumes_counters.empty());
  inventory::Snapshot snapshot = CardOfferedThrice();
  snapshot.devices[3].draining = true;  // live shares hold the card
  EXPECT_EQ(Names(PlanOf(snapshot, features)), (std::vector<std::string>{"share"}));
}

TEST(Planner, WhereSharingOrTaintsAreDroppedSuchDevicesAreWithheld) {
  ServerFeatures features;
  features.consumable_capacity = false;
  EXPECT_EQ(Names(PlanOf(CardOfferedThrice(), features)), (std::vector<std::string>{"part-0", "part-1", "part-2", "whole"}));
  features = {};
  features.taints = false;
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 8, .taints = true});
  EXPECT_EQ(Names(PlanOf(snapshot, features)).size(), 6U);
  EXPECT_EQ(ServerFeatures::Defaults(35), (ServerFeatures{35, false, false, false}));
  EXPECT_EQ(ServerFeatures::Defaults(36), (ServerFeatures{36, true, true, true}));
}

TEST(Planner, ACounterSetThatIsTooLargeIsTreatedLikeDroppedCounters) {
  inventory::Snapshot snapshot = CardOfferedThrice();
  for (int i = 0; i < 40; ++i) snapshot.counter_sets[kDriver][0].counters[Cat("c", i)] = Quantity::FromInt64(1);
  EXPECT_EQ(Names(PlanOf(snapshot)), (std::vector<std::string>{"part-0", "part-1"}));
}

TEST(Planner, TaintsAreCheckedAndTheStrongestKept) {
  const inventory::Snapshot snapshot = MakeSnapshot({.devices = 1, .taints = true});
  DeviceTaints taints;
  for (int i = 0; i < 6; ++i) taints["dev-0"].push_back({Cat("example.com/t", i), "", i == 5 ? "NoExecute" : "None", std::nullopt});
  taints["dev-0"].push_back({"not a key", "", "NoSchedule", std::nullopt});
  ServerFeatures features;
  features.minor = 34;
  const SlicePlan plan = Plan(kDriver, kNode, snapshot, taints, features);
  const std::vector<DeviceTaint>& kept = plan.slices[0].content->devices.at(0).taints;
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept[0].key, "example.com/t5");
  EXPECT_EQ(kept[1].key, kDrainingTaint);
  EXPECT_EQ(plan.problems.size(), 2U);
}

TEST(Planner, ASliceStaysFarBelowWhatTheStoreOfTheApiServerTakes) {
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 128});
  for (PublishedDevice& device : snapshot.devices) {
    device = MakePublished(device.name, Mode::kShare);
    for (int i = 0; i < 28; ++i) {
      PublishedCapacity capacity{Quantity::FromInt64(1000), RequestPolicy{}, Enforcement::kHard};
      for (int value = 1; value <= 10; ++value) capacity.request_policy->valid_values.push_back(Quantity::FromInt64(value));
      capacity.request_policy->default_value = Quantity::FromInt64(1);
      device.capacity[Cat("vendor.example.com/capacity_", i)] = capacity;
    }
  }
  const SlicePlan plan = PlanOf(snapshot);
  EXPECT_GT(plan.slices.size(), 1U);
  for (const Slice& slice : plan.slices) EXPECT_LT(boost::json::serialize(EncodeSlice(slice)).size(), 1400U << 10);
}

TEST(Planner, TheSameInputGivesTheSameSlices) {
  const inventory::Snapshot snapshot = MakeSnapshot({.devices = 300, .taints = true, .counters = true});
  const SlicePlan first = PlanOf(snapshot), second = PlanOf(snapshot);
  ASSERT_EQ(first.slices.size(), second.slices.size());
  for (std::size_t i = 0; i < first.slices.size(); ++i) EXPECT_EQ(EncodeSlice(first.slices[i]), EncodeSlice(second.slices[i]));
}

}  // namespace
}  // namespace tranche::slices
