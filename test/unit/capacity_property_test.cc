// CAP-1 as a state machine over the pure functions: whatever happens, in whatever order, the live grants never exceed what was
// published when they were granted. TRANCHE_SEED repeats a run.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "capacity/capacity.h"
#include "unit/capacity_values.h"

namespace tranche::capacity {
namespace {

using test::Q;

constexpr int kSteps = 120000;
constexpr int kRoundings = 100000;

std::uint64_t Seed() {
  const char* text = std::getenv("TRANCHE_SEED");
  const std::uint64_t seed = text == nullptr ? std::random_device{}() : std::strtoull(text, nullptr, 10);
  std::cout << "TRANCHE_SEED=" << seed << std::endl;
  return seed;
}

// One silicon of 8 slices as two partitions, two share devices and a whole one, and a share device of its own.
class Machine {
 public:
  explicit Machine(std::uint64_t seed) : random_(seed) {
    devices_ = {Part("mig0", Mode::kPartition, "2"), Part("mig1", Mode::kPartition, "6"), Part("shared", Mode::kShare, "8"),
                Part("fast", Mode::kShare, "8"),     Part("whole", Mode::kWhole, "8"),    Part("nic", Mode::kShare, "")};
    devices_[2].capacity["memory"] = {Q("80Gi"), Range(5, 40, 5), Enforcement::kHard};
    devices_[3].capacity["memory"] = {Q("80Gi"), Range(1, 80, 1), Enforcement::kHard};
    devices_[5].capacity["bandwidth"] = {Q("1"), test::Range("10m", "10m", "500m", "10m"), Enforcement::kHard};
  }

  void Step() {
    switch (Pick(10)) {
      case 0:
      case 1:
      case 2:
      case 3: return Grant();
      case 4:
      case 5: return Release();
      case 6: return ReleaseAgain();
      case 7: return Retry();
      case 8: return Resize();
      default: return Restart();
    }
  }

  // Checks by plain arithmetic, not by the functions under test.
  void Check() const {
    std::set<std::string> on_silicon;
    std::map<std::string, Quantity> sums;
    std::map<std::string, int> exclusive, all;
    for (const auto& grant : live_) {
      ++all[grant.key.device];
      if (grant.mode != Mode::kShare) ++exclusive[grant.key.device];
      if (grant.key.device != "nic") on_silicon.insert(grant.key.device);
      for (const auto& [name, quantity] : grant.consumed) {
        ASSERT_FALSE(quantity.IsNegative());
        sums[grant.key.device] += quantity;
      }
    }
    for (const auto& [device, count] : exclusive) ASSERT_EQ(all[device], count) << device << " is held alone and shared";
    for (const auto& [device, count] : exclusive) ASSERT_EQ(count, 1) << device << " is held alone twice";
    // 2 + 6 slices fill the silicon; everything else needs all of it.
    const bool partitions_only = std::all_of(on_silicon.begin(), on_silicon.end(), [](const std::string& name) { return name.starts_with("mig"); });
    ASSERT_TRUE(partitions_only || on_silicon.size() <= 1) << "two modes hold the silicon at once";
    for (const auto& [device, sum] : sums) ASSERT_LE(sum, ceiling_.at(device)) << device;
  }

  int granted() const { return granted_; }
  int refused() const { return refused_; }

 private:
  std::uint64_t Pick(std::uint64_t below) { return random_() % below; }

  static std::optional<RequestPolicy> Range(int min, int max, int step) {
    const auto gi = [](int value) { return std::to_string(value) + "Gi"; };
    return test::Range(gi(min), gi(min), gi(max), gi(step));
  }

  static PublishedDevice Part(const std::string& name, Mode mode, std::string_view slices) {
    PublishedDevice device = test::Device(name);
    device.mode = mode;
    device.allow_multiple_allocations = mode == Mode::kShare;
    if (!slices.empty()) device.consumes_counters = {{"gpu-0", {{"memory-slice", Q(slices)}}}};
    return device;
  }

  capacity::Grant Candidate(const PublishedDevice& device) {
    const std::string claim = "claim-" + std::to_string(++claims_);
    if (!device.allow_multiple_allocations) return test::WholeOf(device, claim);
    Quantities requested;
    if (Pick(4) != 0) {
      for (const auto& [name, capacity] : device.capacity) requested[name] = capacity.value.ScaleDown(static_cast<std::int64_t>(Pick(120)), 100);
    }
    const auto consumed = ConsumedAll(device, requested);
    if (!consumed.ok()) return test::ShareOf(device, "", {});  // above the maximum: the caller sees an empty claim
    return test::ShareOf(device, claim, *consumed);
  }

  void Grant() {
    const PublishedDevice& device = devices_[Pick(devices_.size())];
    const capacity::Grant candidate = Candidate(device);
    if (candidate.key.claim_uid.empty() || !CheckGrant(device, candidate, live_, sets_).ok()) {
      ++refused_;
      return;
    }
    ++granted_;
    live_.push_back(candidate);
    for (const auto& [name, capacity] : device.capacity) {  // CheckGrant held against the value of now
      const Quantity sum = Allocated(device.driver, device.pool, device.name, live_)[name];
      ASSERT_LE(sum, capacity.value) << device.name;
      ceiling_[device.name] = std::max(sum, ceiling_[device.name]);
    }
  }

  void Release() {
    if (live_.empty()) return;
    const auto victim = live_.begin() + static_cast<std::ptrdiff_t>(Pick(live_.size()));
    released_ = victim->key;
    live_.erase(victim);
    Lower();
  }

  // A release by key that is gone must change nothing.
  void ReleaseAgain() {
    const std::size_t before = live_.size();
    std::erase_if(live_, [&](const capacity::Grant& grant) { return grant.key == released_; });
    ASSERT_EQ(live_.size(), before);
  }

  // A retry of a live grant fits as long as the value still covers what is granted, and changes no sum.
  void Retry() {
    if (live_.empty()) return;
    const capacity::Grant grant = live_[Pick(live_.size())];
    const PublishedDevice& device = Find(grant.key.device);
    const Quantities sums = Allocated(device.driver, device.pool, device.name, live_);
    const bool covered = std::all_of(sums.begin(), sums.end(), [&](const auto& sum) { return sum.second <= device.capacity.at(sum.first).value; });
    ASSERT_EQ(CheckGrant(device, grant, live_, sets_).ok(), covered) << Describe(grant.key);
  }

  // The published value shrinks or grows under live shares, which keep what they have.
  void Resize() {
    PublishedDevice& device = devices_[Pick(2) == 0 ? 2 : 5];
    auto& capacity = device.capacity.begin()->second;
    const Quantity full = device.name == "nic" ? Q("1") : Q("80Gi");
    capacity.value = full.ScaleDown(static_cast<std::int64_t>(50 + Pick(51)), 100);
    if (capacity.value.IsZero()) capacity.value = Q("1");
  }

  // State is rebuilt from rows in another order.
  void Restart() {
    std::vector<capacity::Grant> rows(live_.rbegin(), live_.rend());
    std::shuffle(rows.begin(), rows.end(), random_);
    live_ = rows;
  }

  void Lower() {
    ceiling_.clear();
    for (const PublishedDevice& device : devices_) {
      for (const auto& [name, sum] : Allocated(device.driver, device.pool, device.name, live_)) ceiling_[device.name] = sum;
    }
  }

  const PublishedDevice& Find(const std::string& name) const {
    return *std::find_if(devices_.begin(), devices_.end(), [&](const PublishedDevice& device) { return device.name == name; });
  }

  std::mt19937_64 random_;
  std::vector<PublishedDevice> devices_;
  const std::vector<CounterSet> sets_ = {{"gpu-0", {{"memory-slice", Q("8")}}}};
  std::vector<capacity::Grant> live_;
  std::map<std::string, Quantity> ceiling_;  // the largest sum that was granted against a value of its time
  ShareKey released_;
  std::uint64_t claims_ = 0;
  int granted_ = 0, refused_ = 0;
};

TEST(CapacityPropertyTest, Cap1NoOrderOfEventsGrantsMoreThanThereIs) {
  Machine machine(Seed());
  for (int step = 0; step < kSteps && !testing::Test::HasFatalFailure(); ++step) {
    machine.Step();
    machine.Check();
  }
  EXPECT_GT(machine.granted(), kSteps / 100) << "the machine must really grant";
  EXPECT_GT(machine.refused(), kSteps / 100) << "the machine must really refuse";
}

TEST(CapacityPropertyTest, RoundingIsOnGridMinimalAndIdempotent) {
  std::mt19937_64 random(Seed());
  const std::vector<std::string> units = {"", "m", "k", "Ki", "Mi", "Gi", "n", "e3", "u"};
  const auto quantity = [&](std::uint64_t below) { return Q(std::to_string(random() % below) + units[random() % units.size()]); };
  for (int i = 0; i < kRoundings; ++i) {
    const Quantity min = quantity(1000);
    const Quantity step = quantity(1000) + Q("1n");
    const Quantity max = min + step.Times(static_cast<std::int64_t>(random() % 1000));
    const Quantity request = random() % 2 == 0 ? quantity(1000000) : min + step.Times(static_cast<std::int64_t>(random() % 1200)) - Q("1n");
    const PublishedCapacity capacity{max, RequestPolicy{min, {}, ValidRange{min, max, step}}, Enforcement::kHard};
    if (request.IsNegative()) continue;
    const auto consumed = Consumed("c", capacity, request);
    if (!consumed.ok()) {
      ASSERT_EQ(consumed.status().code(), absl::StatusCode::kOutOfRange);
      ASSERT_GT(request, max);  // max is on the grid, so nothing at or below it is refused
      continue;
    }
    ASSERT_TRUE(consumed->IsOnGrid(min, step));
    ASSERT_GE(*consumed, request);
    ASSERT_GE(*consumed, min);
    ASSERT_LE(*consumed, max);
    ASSERT_TRUE(*consumed == min || *consumed - step < request) << request.ToString() << " became " << consumed->ToString();
    ASSERT_EQ(*Consumed("c", capacity, *consumed), *consumed);
  }
}

TEST(CapacityPropertyTest, ValidValuesGiveTheSmallestThatCovers) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 20000; ++i) {
    std::vector<Quantity> values;
    for (std::uint64_t n = 1 + random() % 10; n > 0; --n) values.push_back(Quantity::FromInt64(static_cast<std::int64_t>(random() % 1000)));
    const Quantity request = Quantity::FromInt64(static_cast<std::int64_t>(random() % 1100));
    const PublishedCapacity capacity{Q("1000"), RequestPolicy{values[0], values, std::nullopt}, Enforcement::kHard};
    const auto consumed = Consumed("c", capacity, request);
    std::sort(values.begin(), values.end());
    const auto expected = std::lower_bound(values.begin(), values.end(), request);
    ASSERT_EQ(consumed.ok(), expected != values.end());
    if (!consumed.ok()) continue;
    ASSERT_EQ(*consumed, *expected);
  }
}

}  // namespace
}  // namespace tranche::capacity
