#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/ids.h"
#include "inventory/inventory.h"

namespace tranche::inventory {
namespace {

using ::testing::HasSubstr;

Quantity Amount(std::string_view text) { return *Quantity::Parse(text); }

PhysicalDevice Nic(std::string name) {
  PhysicalDevice device;
  device.name = std::move(name);
  device.modes = {Mode::kWhole, Mode::kShare};
  device.attributes["parent"] = device.name;
  device.capacities["bandwidth"] = {Amount("10G"), "bitsPerSecond", true, Enforcement::kHard, Amount("100M"), {}};
  return device;
}

PhysicalDevice Gpu() {
  PhysicalDevice device = Nic("gpu0");
  device.silicon = Silicon{"GPU-Ab", {{"memorySlice", 8}}, {{"memorySlice", 8}}};
  return device;
}

config::OfferConfiguration Offer(std::string name, Mode mode) {
  config::OfferConfiguration offer;
  offer.name = std::move(name);
  offer.backend = "uplink";
  offer.mode = mode;
  return offer;
}

config::HostConfiguration Host(std::vector<config::OfferConfiguration> offers) {
  config::HostConfiguration host;
  host.backends.push_back({"uplink", "vnic_tc", config::Isolation::kInProcess, "{}", {}, 0});
  host.drivers.push_back({"vnic.tranche.dev", std::move(offers), {}, 0});
  return host;
}

config::OfferConfiguration SharedOffer() {
  config::OfferConfiguration offer = Offer("shared", Mode::kShare);
  config::CapacityConfiguration& bandwidth = offer.capacity["bandwidth"];
  bandwidth.policy = RequestPolicy{Amount("100M"), {}, ValidRange{Amount("10M"), Amount("5G"), Amount("10M")}};
  bandwidth.reserve.percent = 10;
  return offer;
}

PhysicalDevices Found(std::vector<PhysicalDevice> devices) { return std::make_shared<const std::vector<PhysicalDevice>>(std::move(devices)); }

Snapshot JoinOne(const config::HostConfiguration& host, const PhysicalDevice& device) {
  return Join(host, {{"uplink", Found({device})}}, "node-1", {}, nullptr);
}

std::string Reason(const Snapshot& snapshot) { return snapshot.withheld.empty() ? "" : snapshot.withheld[0].reason; }

TEST(Join, PublishesAShareAfterReserve) {
  const Snapshot snapshot = JoinOne(Host({SharedOffer()}), Nic("eth1"));
  ASSERT_EQ(snapshot.devices.size(), 1U) << Reason(snapshot);
  const PublishedDevice& device = snapshot.devices[0];
  EXPECT_EQ(DeviceAddress(device), "vnic.tranche.dev/node-1/eth1-shared");
  EXPECT_TRUE(device.allow_multiple_allocations);
  EXPECT_EQ(device.capacity.at("bandwidth").value.ToString(), "9G");
  EXPECT_EQ(device.capacity.at("bandwidth").request_policy->default_value, Amount("100M"));
  EXPECT_EQ(device.attributes.at("offer"), AttributeValue(std::string("shared")));
  EXPECT_EQ(device.attributes.at("enforcement"), AttributeValue(std::string("hard")));
  EXPECT_EQ(device.attributes.at("parent"), AttributeValue(std::string("eth1")));
  EXPECT_EQ(snapshot.Find("vnic.tranche.dev", "node-1", "eth1-shared"), &device);
  EXPECT_EQ(snapshot.Find("vnic.tranche.dev", "node-2", "eth1-shared"), nullptr);
}

TEST(Join, TheLargerOfReserveAndOverheadIsSubtractedDownToTheStep) {
  config::OfferConfiguration offer = SharedOffer();
  offer.capacity["bandwidth"].reserve = {Amount("1"), {}};
  EXPECT_EQ(JoinOne(Host({offer}), Nic("eth1")).devices.at(0).capacity.at("bandwidth").value, Amount("9900M"));
  offer.capacity["bandwidth"].reserve = {Amount("105M"), {}};
  EXPECT_EQ(JoinOne(Host({offer}), Nic("eth1")).devices.at(0).capacity.at("bandwidth").value, Amount("9890M"));
  offer.capacity["bandwidth"].reserve = {{}, 100};
  const Snapshot nothing = JoinOne(Host({offer}), Nic("eth1"));
  EXPECT_TRUE(nothing.devices.empty());
  EXPECT_THAT(Reason(nothing), HasSubstr("nothing of 10G is left"));
}

TEST(Join, EverySharedCapacityGetsADefault) {
  const auto default_of = [](std::optional<RequestPolicy> configured, std::optional<RequestPolicy> of_backend) {
    config::OfferConfiguration offer = Offer("shared", Mode::kShare);
    offer.capacity["bandwidth"].policy = std::move(configured);
    PhysicalDevice device = Nic("eth1");
    device.capacities["bandwidth"].request_policy = std::move(of_backend);
    const Snapshot snapshot = JoinOne(Host({offer}), device);
    EXPECT_EQ(snapshot.devices.size(), 1U) << Reason(snapshot);
    return snapshot.devices.at(0).capacity.at("bandwidth").request_policy->default_value->ToString();
  };
  EXPECT_EQ(default_of({}, {}), "9900M");
  EXPECT_EQ(default_of(RequestPolicy{{}, {}, ValidRange{Amount("20M"), {}, {}}}, {}), "20M");
  EXPECT_EQ(default_of(RequestPolicy{{}, {}, ValidRange{Amount("0"), {}, Amount("5M")}}, {}), "5M");
  EXPECT_EQ(default_of(RequestPolicy{{}, {Amount("1G"), Amount("2G")}, {}}, {}), "1G");
  EXPECT_EQ(default_of({}, RequestPolicy{Amount("30M"), {}, {}}), "30M");
  EXPECT_EQ(default_of(RequestPolicy{Amount("40M"), {}, {}}, RequestPolicy{{}, {}, ValidRange{Amount("20M"), {}, Amount("20M")}}), "40M");
}

TEST(Join, WithholdsWithAReason) {
  PhysicalDevice soft = Nic("eth1");
  soft.capacities["bandwidth"].enforcement = Enforcement::kNone;
  EXPECT_THAT(Reason(JoinOne(Host({SharedOffer()}), soft)), HasSubstr("not enforced"));

  PhysicalDevice whole = Nic("eth1");
  whole.modes = {Mode::kWhole};
  EXPECT_THAT(Reason(JoinOne(Host({SharedOffer()}), whole)), HasSubstr("mode share"));

  config::OfferConfiguration typo = SharedOffer();
  typo.capacity["bandwith"] = {};
  EXPECT_THAT(Reason(JoinOne(Host({typo}), Nic("eth1"))), HasSubstr("bandwith"));

  config::OfferConfiguration large = SharedOffer();
  large.capacity["bandwidth"].policy->valid_range->max = Amount("20G");
  EXPECT_THAT(Reason(JoinOne(Host({large}), Nic("eth1"))), HasSubstr("max"));

  EXPECT_THAT(Reason(Join(Host({SharedOffer()}), {}, "n", {}, nullptr)), HasSubstr("no device"));
  EXPECT_THAT(Reason(Join(Host({SharedOffer()}), {{"uplink", Found({Nic("a"), Nic("a")})}}, "n", {}, nullptr)), HasSubstr("two devices"));
}

TEST(Join, WholeDevicesHaveNoPolicyAndKeepUnenforcedCapacities) {
  PhysicalDevice device = Nic("eth1");
  device.capacities["bandwidth"].enforcement = Enforcement::kNone;
  device.capacities["bandwidth"].request_policy = RequestPolicy{Amount("1M"), {}, {}};
  const Snapshot snapshot = JoinOne(Host({Offer("whole", Mode::kWhole)}), device);
  ASSERT_EQ(snapshot.devices.size(), 1U) << Reason(snapshot);
  EXPECT_FALSE(snapshot.devices[0].capacity.at("bandwidth").request_policy.has_value());
  EXPECT_EQ(snapshot.devices[0].enforcement, Enforcement::kNone);
}

TEST(Join, OffersOnOneSiliconShareACounterSet) {
  const Snapshot snapshot = JoinOne(Host({SharedOffer(), Offer("whole", Mode::kWhole)}), Gpu());
  ASSERT_EQ(snapshot.devices.size(), 2U) << Reason(snapshot);
  ASSERT_EQ(snapshot.counter_sets.at("vnic.tranche.dev").size(), 1U);
  const CounterSet& set = snapshot.counter_sets.at("vnic.tranche.dev")[0];
  EXPECT_TRUE(IsDnsLabel(set.name));
  for (const PublishedDevice& device : snapshot.devices) {
    ASSERT_EQ(device.consumes_counters.size(), 1U);
    EXPECT_EQ(device.consumes_counters[0].counter_set, set.name);
    EXPECT_EQ(device.consumes_counters[0].counters, set.counters);
    EXPECT_TRUE(IsDnsLabel(set.counters.begin()->first));
  }
}

TEST(Join, OneSiliconBelongsToOneDriver) {
  config::HostConfiguration host = Host({SharedOffer()});
  host.drivers.push_back({"gpu.tranche.dev", {Offer("whole", Mode::kWhole)}, {}, 0});
  const Snapshot snapshot = JoinOne(host, Gpu());
  EXPECT_EQ(snapshot.devices.size(), 1U);
  EXPECT_THAT(Reason(snapshot), HasSubstr("already offered by driver vnic.tranche.dev"));
}

TEST(Join, OrderIsOfferThenPhysicalName) {
  const Snapshot snapshot = Join(Host({SharedOffer(), Offer("whole", Mode::kWhole)}), {{"uplink", Found({Nic("b"), Nic("a10"), Nic("a9")})}}, "n", {}, nullptr);
  std::vector<std::string> names;
  for (const PublishedDevice& device : snapshot.devices) names.push_back(device.name);
  EXPECT_THAT(names, testing::ElementsAre("a9-shared", "a10-shared", "b-shared", "a9-whole", "a10-whole", "b-whole"));
}

const HeldOffer kHeld{"vnic.tranche.dev", "node-1", "gpu0-shared", "shared", "uplink", "gpu0", Mode::kShare};

TEST(HeldOffer, KeepsItsPublishedShapeWhileDraining) {
  const Snapshot before = JoinOne(Host({SharedOffer()}), Gpu());
  const Snapshot after = Join(Host({}), {{"uplink", Found({Gpu()})}}, "node-1", {kHeld}, &before);
  ASSERT_EQ(after.devices.size(), 1U);
  PublishedDevice expected = before.devices[0];
  expected.draining = true;
  EXPECT_EQ(after.devices[0], expected);
  EXPECT_EQ(after.counter_sets, before.counter_sets);
  const Snapshot still = Join(Host({}), {}, "node-1", {kHeld}, &after);
  EXPECT_EQ(still.devices, after.devices);
  EXPECT_TRUE(Join(Host({}), {}, "node-1", {}, &after).devices.empty());
}

TEST(HeldOffer, IsMadeAgainAfterARestart) {
  const Snapshot known = Join(Host({}), {{"uplink", Found({Gpu()})}}, "node-1", {kHeld}, nullptr);
  ASSERT_EQ(known.devices.size(), 1U);
  EXPECT_TRUE(known.devices[0].draining);
  EXPECT_EQ(known.devices[0].name, "gpu0-shared");
  EXPECT_EQ(known.devices[0].capacity.count("bandwidth"), 1U);
  EXPECT_EQ(known.counter_sets.at("vnic.tranche.dev").size(), 1U);
  const Snapshot gone = Join(config::HostConfiguration{}, {}, "node-1", {kHeld}, nullptr);
  ASSERT_EQ(gone.devices.size(), 1U);
  EXPECT_TRUE(gone.devices[0].draining);
  EXPECT_EQ(gone.devices[0].physical, "gpu0");
}

TEST(HeldOffer, ThatIsConfiguredIsNotDraining) {
  const Snapshot snapshot = Join(Host({SharedOffer()}), {{"uplink", Found({Gpu()})}}, "node-1", {kHeld}, nullptr);
  ASSERT_EQ(snapshot.devices.size(), 1U);
  EXPECT_FALSE(snapshot.devices[0].draining);
}

TEST(Inventory, SnapshotsStayAndChangesAreTold) {
  std::vector<HeldOffer> held;
  Inventory inventory("node-1", [&held] { return held; });
  int changes = 0;
  inventory.OnChange([&] {
    ++changes;
    EXPECT_EQ(inventory.pool(), "node-1");
    static_cast<void>(inventory.Current());
  });
  inventory.SetConfiguration(Host({SharedOffer()}));
  inventory.SetDiscovered("uplink", Found({Gpu()}));
  const std::shared_ptr<const Snapshot> kept = inventory.Current();
  EXPECT_EQ(kept->devices.size(), 1U);
  EXPECT_EQ(changes, 2);
  inventory.SetDiscovered("uplink", Found({Gpu()}));
  EXPECT_EQ(changes, 2);
  held = {kHeld};
  inventory.SetConfiguration(Host({}));
  EXPECT_TRUE(inventory.Current()->devices.at(0).draining);
  held.clear();
  inventory.Rejoin();
  EXPECT_TRUE(inventory.Current()->devices.empty());
  EXPECT_EQ(changes, 4);
  EXPECT_EQ(kept->devices.size(), 1U);
}

TEST(Inventory, ReadersAndWritersRunTogether) {
  Inventory inventory("node-1", nullptr);
  inventory.SetConfiguration(Host({SharedOffer()}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&inventory, i] {
      for (int round = 0; round < 50; ++round) {
        inventory.SetDiscovered("uplink", Found({Nic(i % 2 == 0 ? "a" : "b")}));
        EXPECT_LE(inventory.Current()->devices.size(), 1U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inventory.Current()->devices.size(), 1U);
}

}  // namespace
}  // namespace tranche::inventory
