// Old and new host of a rolling update at once, with everything that happens to slices around them, end with exactly the right slices.
#include <gtest/gtest.h>

#include "slices/publisher.h"
#include "unit/slice_server.h"
#include "unit/slices_fixture.h"

namespace tranche::slices {
namespace {

using namespace std::chrono_literals;

class Rollout {
 public:
  explicit Rollout(unsigned seed) : random_(seed), server_({.max_event_delay_ms = 3, .repeats_events = true, .seed = seed}) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      if (Pick(4) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(Pick(6)));
    }
  }

  // Both hosts know the same devices in the end, as they read the same hardware and configuration.
  void Settle() {
    final_ = RandomShape();
    for (auto& host : hosts_) {
      if (host == nullptr) host = Make();
      host->Publish({Shared(final_), {}});
    }
  }
  void StopOld() { hosts_[0].reset(); }
  bool Right() {
    const SlicePlan plan = Plan(kDriver, kNode, MakeSnapshot(final_), {}, {});
    return Eventually([&] { return IsExactly(server_.All(), plan); });
  }
  std::uint64_t writes() const { return server_.writes(); }
  std::string Describe() const {
    std::string text;
    for (const Slice& slice : server_.All()) {
      Append(text, slice.name, " generation ", slice.generation, " count ", slice.slice_count, " devices ", slice.content->devices.size(), "\n");
    }
    return text;
  }

 private:
  unsigned Pick(unsigned below) { return static_cast<unsigned>(random_()) % below; }
  std::unique_ptr<Publisher> Make() {
    return std::make_unique<Publisher>(server_, PublisherOptions{.driver = kDriver, .node = kNode, .longest_wait = 100ms, .refusal_wait = 50ms});
  }
  Shape RandomShape() {
    constexpr std::array<std::size_t, 8> kCounts = {0, 1, 63, 65, 129, 200, 260, 300};
    return {.devices = kCounts[Pick(kCounts.size())], .taints = Pick(2) == 0, .counters = Pick(2) == 0, .sets = 1 + Pick(20), .revision = Pick(3)};
  }
  void Step() {
    std::unique_ptr<Publisher>& host = hosts_[Pick(2)];
    switch (Pick(10)) {
      case 0: server_.DeleteByHand(Pick(8)); break;
      case 1:
        if (Pick(4) == 0) server_.DeleteAll();
        break;
      case 2: server_.Spoil(Pick(8)); break;
      case 3:
        if (Pick(3) == 0) server_.BreakWatches();
        break;
      case 4: server_.FailNext(static_cast<int>(Pick(4)), absl::UnavailableError("restarting")); break;
      case 5: host.reset(); break;
      case 6:
        if (Pick(8) == 0) server_.SetNode(Cat("node-uid-", Pick(1000)));
        break;
      default:
        if (host == nullptr) host = Make();
        host->Publish({Shared(RandomShape()), {}});
    }
  }

  std::minstd_rand random_;
  SliceServer server_;
  std::array<std::unique_ptr<Publisher>, 2> hosts_;
  Shape final_;
};

TEST(SlicesProperty, AThousandRandomStepsOfTwoHostsEndWithExactlyTheRightSlices) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    Rollout rollout(seed);
    rollout.Run(250);
    rollout.Settle();
    ASSERT_TRUE(rollout.Right()) << "seed " << seed << "\n" << rollout.Describe();
    rollout.StopOld();
    std::this_thread::sleep_for(400ms);  // late events
    ASSERT_TRUE(rollout.Right()) << "seed " << seed << "\n" << rollout.Describe();
    const std::uint64_t writes = rollout.writes();
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(rollout.writes(), writes) << "seed " << seed << ": somebody goes on writing";
  }
}

TEST(SlicesProperty, TwoHostsThatStartTogetherAgreeWithFewWrites) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SliceServer server({.max_event_delay_ms = 5, .repeats_events = true, .seed = seed});
    const Shape shape{.devices = 300};
    const SlicePlan plan = Plan(kDriver, kNode, MakeSnapshot(shape), {}, {});
    Publisher old_host(server, {.driver = kDriver, .node = kNode}), new_host(server, {.driver = kDriver, .node = kNode});
    old_host.Publish({Shared(shape), {}});
    new_host.Publish({Shared(shape), {}});
    // Exactly right may be passed through before the slower of the two has begun: both must have come to rest.
    const auto at_rest = [&] {
      const std::uint64_t writes = server.writes();
      std::this_thread::sleep_for(50ms);
      return server.writes() == writes && old_host.Status().slices_published == 3 && new_host.Status().slices_published == 3;
    };
    ASSERT_TRUE(Eventually([&] { return at_rest() && IsExactly(server.All(), plan); })) << seed;
    EXPECT_LE(server.writes(), 30U) << seed;  // 3 slices, made twice at worst, some deleted twice, a generation or two
  }
}

}  // namespace
}  // namespace tranche::slices
