// The publisher against an API server in memory.
#include <gtest/gtest.h>

#include <atomic>

#include "slices/publisher.h"
#include "unit/slice_server.h"
#include "unit/slices_fixture.h"

namespace tranche::slices {
namespace {

using namespace std::chrono_literals;

PublisherOptions Options() { return {.driver = kDriver, .node = kNode, .longest_wait = 200ms, .refusal_wait = 100ms}; }

SlicePlan PlanFor(const Shape& shape, ServerFeatures features = {}) { return Plan(kDriver, kNode, MakeSnapshot(shape), {}, features); }

class PublisherTest : public ::testing::Test {
 protected:
  void Start(const Shape& shape) {
    publisher_ = std::make_unique<Publisher>(server_, Options());
    publisher_->Publish({Shared(shape), {}});
  }
  bool Becomes(const Shape& shape, ServerFeatures features = {}) {
    const SlicePlan plan = PlanFor(shape, features);
    return Eventually([&] { return IsExactly(server_.All(), plan); });
  }
  // Nothing more is written once everything is right.
  bool IsQuiet() {
    std::this_thread::sleep_for(50ms);
    const std::uint64_t writes = server_.writes();
    std::this_thread::sleep_for(300ms);
    return server_.writes() == writes;
  }
  std::map<std::string, std::string> Versions() {
    std::map<std::string, std::string> versions;
    for (const Slice& slice : server_.All()) versions[slice.name] = slice.resource_version;
    return versions;
  }

  SliceServer server_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(PublisherTest, EveryCountOfEveryKindIsPublishedByEveryVersion) {
  for (const int minor : {34, 35, 36, 37}) {
    for (const std::size_t devices : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 129U, 300U, 1000U}) {
      for (const int kind : {0, 3}) {
        SliceServer server({.minor = minor, .seed = static_cast<unsigned>(devices)});
        const Shape shape{.devices = devices, .taints = (kind & 1) != 0, .counters = (kind & 2) != 0, .sets = 20};
        ServerFeatures features;
        features.minor = minor;
        const SlicePlan plan = PlanFor(shape, features);
        Publisher publisher(server, Options());
        publisher.Publish({Shared(shape), {}});
        EXPECT_TRUE(Eventually([&] { return IsExactly(server.All(), plan); })) << minor << " " << devices << " " << kind;
        EXPECT_LE(server.writes(), plan.slices.size());
      }
    }
  }
}

TEST_F(PublisherTest, TellsOnceWhenTheApiHasWhatIsWanted) {
  std::atomic<int> settled = 0;
  PublisherOptions options = Options();
  options.on_settled = [&] { ++settled; };
  publisher_ = std::make_unique<Publisher>(server_, options);
  publisher_->Publish({Shared({.devices = 300}), {}});
  ASSERT_TRUE(Becomes({.devices = 300}));
  ASSERT_TRUE(Eventually([&] { return settled == 1; }));
  publisher_->Publish({Shared({.devices = 300}), {}});
  EXPECT_TRUE(IsQuiet());
  EXPECT_EQ(settled, 1);
  publisher_->Publish({Shared({.devices = 299}), {}});
  EXPECT_TRUE(Eventually([&] { return settled == 2; }));
  EXPECT_TRUE(Becomes({.devices = 299}));
  publisher_.reset();
}

TEST_F(PublisherTest, OneChangedSliceKeepsTheGenerationAndTouchesNothingElse) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  const std::int64_t generation = server_.All()[0].generation;
  const auto before = Versions();
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 300});
  snapshot.devices[200].attributes["revision"] = std::int64_t{9};
  const SlicePlan plan = Plan(kDriver, kNode, snapshot, {}, {});
  publisher_->Publish({std::make_shared<const inventory::Snapshot>(snapshot), {}});
  ASSERT_TRUE(Eventually([&] { return IsExactly(server_.All(), plan); }));
  EXPECT_EQ(server_.All()[0].generation, generation);
  std::size_t changed = 0;
  for (const auto& [name, version] : Versions()) changed += before.at(name) != version ? 1 : 0;
  EXPECT_EQ(changed, 1U);
}

TEST_F(PublisherTest, SeveralChangedSlicesOrAnotherCountRaiseTheGeneration) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  const std::int64_t generation = server_.All()[0].generation;
  publisher_->Publish({Shared({.devices = 300, .revision = 2}), {}});
  ASSERT_TRUE(Becomes({.devices = 300, .revision = 2}));
  EXPECT_EQ(server_.All()[0].generation, generation + 1);
  publisher_->Publish({Shared({.devices = 1, .revision = 2}), {}});
  ASSERT_TRUE(Becomes({.devices = 1, .revision = 2}));
  EXPECT_EQ(server_.All()[0].generation, generation + 2);
  publisher_->Publish({Shared({.devices = 0}), {}});
  ASSERT_TRUE(Becomes({.devices = 0}));
  EXPECT_EQ(server_.All()[0].generation, generation + 2);  // one slice in place
}

TEST_F(PublisherTest, ARestartAdoptsWhatIsThereAndWritesNothing) {
  Start({.devices = 300, .taints = true});
  ASSERT_TRUE(Becomes({.devices = 300, .taints = true}));
  publisher_.reset();
  EXPECT_EQ(server_.All().size(), 5U);  // a stop leaves the slices
  const std::uint64_t writes = server_.writes();
  Start({.devices = 300, .taints = true});
  EXPECT_TRUE(Eventually([&] { return publisher_->Status().slices_published == 5; }));
  EXPECT_TRUE(IsQuiet());
  EXPECT_EQ(server_.writes(), writes);
}

TEST_F(PublisherTest, DeletedSlicesAreBack) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  server_.DeleteByHand(1);
  EXPECT_TRUE(Becomes({.devices = 300}));
  server_.DeleteAll();
  EXPECT_TRUE(Becomes({.devices = 300}));
  EXPECT_TRUE(IsQuiet());
}

TEST_F(PublisherTest, ADeleteRightAfterTheCreateIsSeen) {
  std::atomic<int> admitted = 0;
  server_.SetAdmission([&](Slice&) {
    ++admitted;
    return absl::OkStatus();
  });
  Start({.devices = 10});
  ASSERT_TRUE(Eventually([&] { return admitted > 0; }));
  server_.DeleteAll();  // the kubelet at its start
  EXPECT_TRUE(Becomes({.devices = 10}));
}

TEST_F(PublisherTest, DeletionsAndEditsThatGoOnAreAnsweredEverMoreSlowly) {
  Start({.devices = 10});
  ASSERT_TRUE(Becomes({.devices = 10}));
  const std::uint64_t before = server_.writes();
  for (int i = 0; i < 100; ++i) {
    server_.Spoil(0);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LT(server_.writes() - before, 30U);
  EXPECT_TRUE(Becomes({.devices = 10}));
}

TEST_F(PublisherTest, ForeignAndDoubleSlicesOfOurDriverGo) {
  const SlicePlan plan = PlanFor({.devices = 10});
  for (const char* name :
       {"node-1-vnic.tranche.dev-old", "00000-vnic.tranche.dev-node-1-aaaaa", "00000-vnic.tranche.dev-node-1-bbbbb", "00007-vnic.tranche.dev-node-1-ccccc"}) {
    Slice slice = plan.slices[0];
    slice.name = name;
    slice.generation = 5;
    slice.owner = {"node-1", "node-uid-1"};
    server_.Put(slice);
  }
  Slice elsewhere = plan.slices[0];
  elsewhere.name = "another-node";
  elsewhere.node_name = elsewhere.pool_name = "node-2";
  server_.Put(elsewhere);
  Start({.devices = 10});
  EXPECT_TRUE(Eventually([&] { return server_.All().size() == 2; }));
  EXPECT_EQ(server_.All()[0].name, "00000-vnic.tranche.dev-node-1-aaaaa");
  EXPECT_EQ(server_.All()[1].name, "another-node");
  EXPECT_GE(server_.All()[0].generation, 5);
}

TEST_F(PublisherTest, DroppedGatesAreFoundReportedOnceAndPlannedAround) {
  SliceServer server({.minor = 37, .taints = false, .partitionable = false, .consumable_capacity = false});
  inventory::Snapshot snapshot = MakeSnapshot({.devices = 20, .taints = true, .counters = true});
  snapshot.devices.push_back(MakePublished("share", Mode::kShare));
  Publisher publisher(server, Options());
  publisher.Publish({std::make_shared<const inventory::Snapshot>(snapshot), {}});
  const SlicePlan plan = Plan(kDriver, kNode, snapshot, {}, {37, false, false, false});
  EXPECT_TRUE(Eventually([&] { return IsExactly(server.All(), plan); }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(publisher.Status().dropped_gates, (std::vector<std::string>{"DRAConsumableCapacity", "DRADeviceTaints", "DRAPartitionableDevices"}));
  EXPECT_LE(server.writes(), 8U);
  EXPECT_EQ(publisher.Status().last_error, "");
}

TEST_F(PublisherTest, GatesOfAnOldServerAreAskedForByADryRun) {
  for (const bool on : {true, false}) {
    SliceServer server({.minor = 35, .taints = on, .partitionable = on, .consumable_capacity = on});
    Publisher publisher(server, Options());
    publisher.Publish({Shared({.devices = 20, .taints = true, .counters = true}), {}});
    const SlicePlan plan = PlanFor({.devices = 20, .taints = true, .counters = true}, {35, on, on, on});
    EXPECT_TRUE(Eventually([&] { return IsExactly(server.All(), plan); }));
    EXPECT_EQ(server.writes(), plan.slices.size());  // nothing wrong was ever visible
    EXPECT_EQ(publisher.Status().dropped_gates.size(), on ? 0U : 3U);
  }
}

TEST_F(PublisherTest, AWebhookThatChangesSlicesCausesNoLoop) {
  server_.SetAdmission([](Slice& slice) {
    SliceContent content = *slice.content;
    for (SliceDevice& device : content.devices) device.attributes["webhook"] = true;
    slice.content = std::make_shared<const SliceContent>(std::move(content));
    return absl::OkStatus();
  });
  Start({.devices = 10});
  EXPECT_TRUE(Eventually([&] { return server_.All().size() == 1; }));
  EXPECT_TRUE(IsQuiet());
  EXPECT_EQ(server_.writes(), 1U);
}

TEST_F(PublisherTest, ARefusedSliceDoesNotHoldUpTheOthersAndIsTriedAgain) {
  std::atomic<bool> refuse = true;
  server_.SetAdmission([&](Slice& slice) {
    const bool second = slice.content->devices.size() == 128 && slice.content->devices[0].name == "dev-128";
    return refuse && second ? absl::InvalidArgumentError("spec.devices[3]: no") : absl::OkStatus();
  });
  Start({.devices = 300});
  EXPECT_TRUE(Eventually([&] {
    const std::vector<Slice> all = server_.All();
    return all.size() == 2 && all[0].slice_count == 2 && all[1].slice_count == 2 && all[0].generation == all[1].generation;
  }));
  ASSERT_EQ(publisher_->Status().refused.size(), 1U);
  EXPECT_NE(publisher_->Status().refused[0].find("spec.devices[3]: no"), std::string::npos);
  refuse = false;
  EXPECT_TRUE(Becomes({.devices = 300}));
  EXPECT_TRUE(Eventually([&] { return publisher_->Status().refused.empty(); }));
}

TEST_F(PublisherTest, RefusedCounterSetsTakeOnlyTheCountersAway) {
  server_.SetAdmission([](Slice& slice) { return slice.content->shared_counters.empty() ? absl::OkStatus() : absl::InvalidArgumentError("no counters here"); });
  Start({.devices = 20, .counters = true});
  EXPECT_TRUE(Becomes({.devices = 20, .counters = true}, {37, true, false, true}));
  EXPECT_EQ(publisher_->Status().refused.size(), 1U);
}

TEST_F(PublisherTest, FailuresAreShownAndOvercome) {
  server_.FailNext(3, absl::PermissionDeniedError("cannot create resourceslices"));
  Start({.devices = 300});
  EXPECT_TRUE(
      Eventually([&] { return publisher_->Status().last_error.find("cannot create") != std::string::npos || publisher_->Status().slices_published == 3; }));
  EXPECT_TRUE(Becomes({.devices = 300}));
  EXPECT_TRUE(Eventually([&] { return publisher_->Status().last_error.empty(); }));
}

TEST_F(PublisherTest, ANodeMadeAnewOwnsTheSlicesAgain) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  server_.SetNode("");
  EXPECT_TRUE(Eventually([&] { return publisher_->Status().last_error.find("node-1") != std::string::npos; }));
  EXPECT_TRUE(server_.All().empty());
  server_.SetNode("node-uid-2");
  ASSERT_TRUE(Becomes({.devices = 300}));
  EXPECT_EQ(server_.All()[0].owner.uid, "node-uid-2");
}

TEST_F(PublisherTest, TimesOfTaintsStayWhenOtherThingsChange) {
  Start({.devices = 20, .taints = true});
  ASSERT_TRUE(Becomes({.devices = 20, .taints = true}));
  const auto since = [&] { return server_.All()[0].content->devices[0].taints.at(0).time_added; };
  const std::optional<WallTime> first = since();
  ASSERT_TRUE(first.has_value());
  std::this_thread::sleep_for(1100ms);
  publisher_->Publish({Shared({.devices = 20, .taints = true, .revision = 2}), {}});
  ASSERT_TRUE(Becomes({.devices = 20, .taints = true, .revision = 2}));
  EXPECT_EQ(since(), first);
  server_.DeleteAll();
  ASSERT_TRUE(Becomes({.devices = 20, .taints = true, .revision = 2}));
  EXPECT_EQ(since(), first);
}

TEST_F(PublisherTest, WithdrawDeletesEverySliceAndPublishingBeginsAnew) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  EXPECT_EQ(publisher_->Withdraw(DeadlineIn(10s)), absl::OkStatus());
  EXPECT_TRUE(server_.All().empty());
  publisher_->Publish({Shared({.devices = 2}), {}});
  EXPECT_TRUE(Becomes({.devices = 2}));
}

TEST_F(PublisherTest, ABrokenWatchLosesNothing) {
  Start({.devices = 300});
  ASSERT_TRUE(Becomes({.devices = 300}));
  server_.DeleteAll();
  server_.BreakWatches();  // the deletions are never told
  EXPECT_TRUE(Becomes({.devices = 300}));
  EXPECT_TRUE(IsQuiet());
}

TEST_F(PublisherTest, AServerOfANewerVersionGetsTheNewLayout) {
  server_.SetOptions({.minor = 34});
  Start({.devices = 20, .counters = true});
  ASSERT_TRUE(Becomes({.devices = 20, .counters = true}, {34, true, true, true}));
  server_.SetOptions({.minor = 37});
  server_.BreakWatches();
  EXPECT_TRUE(Becomes({.devices = 20, .counters = true}, {37, true, true, true}));
}

}  // namespace
}  // namespace tranche::slices
