// Random prepare, retry, unprepare, reboot, lost kernel objects and crashes at a random durable step. After each step no device holds more than it
// has; after each start the store, the kernel and the files say the same.
#include "claims_fixture.h"

#include <chrono>
#include <iostream>
#include <random>

#include "base/status.h"

namespace tranche::claims {
namespace {

constexpr auto kRunFor = std::chrono::seconds(12);
constexpr int kClaims = 24;

class Walk {
 public:
  explicit Walk(std::uint32_t seed) : random_(seed) {
    for (int i = 0; i < kClaims; ++i) {
      const std::string uid = "uid-" + std::to_string(i);
      const std::string device = Pick(2) == 0 ? "eth1" : "eth2";
      if (Pick(8) == 0) {
        claims_.push_back(MakeClaim(uid, "", device + "-exclusive", "nic-whole"));
      } else {
        claims_.push_back(MakeClaim(uid, std::to_string(10 * (1 + Pick(40))) + "M", device + "-shared"));
      }
    }
    for (const Claim& claim : claims_) node_.reader.Put(claim.uid, claim);
  }

  void Step() {
    const Claim& claim = claims_[static_cast<std::size_t>(Pick(kClaims))];
    const int choice = Pick(1000);
    if (choice < 60) ArmCrash();
    if (choice >= 60 && choice < 90) Break();
    if (choice < 520) {
      Prepare(claim);
    } else if (choice < 985) {
      Unprepare(claim);
    } else if (choice < 990) {
      RebootOrLoss();
    } else {
      CheckStart();
    }
    Mend();
    if (node_.store->dead || choice < 60) CheckStart();
    CheckSums();
  }

  bool failed() const { return ::testing::Test::HasFailure(); }
  int prepared() const { return prepared_; }
  int refused() const { return refused_; }
  int crashes() const { return crashes_; }

 private:
  int Pick(int below) { return static_cast<int>(random_() % static_cast<std::uint32_t>(below)); }

  void ArmCrash() {
    node_.store->writes_to_live = 1 + Pick(3);
    node_.store->commit_last = Pick(2) == 0;
  }
  void Break() {
    const int kind = Pick(3);
    if (kind == 0) node_.backend->refuse = [](const backend::PrepareItem&) { return absl::UnavailableError("refused"); };
    if (kind == 1) node_.backend->break_midway = [](const backend::PrepareItem&) { return absl::InternalError("broken"); };
    if (kind == 2) node_.backend->unprepare_error = absl::UnavailableError("busy");
  }
  void Mend() {
    node_.backend->refuse = node_.backend->break_midway = [](const backend::PrepareItem&) { return absl::OkStatus(); };
    node_.backend->unprepare_error = absl::OkStatus();
  }
  void Prepare(const Claim& claim) {
    const auto answer = node_.claims->Prepare(kDriver, {Node::Reference(claim)}, Node::Soon()).at(claim.uid);
    ++(answer.ok() ? prepared_ : refused_);
    if (!answer.ok()) return;
    EXPECT_EQ(answer->size(), 1U);
    EXPECT_EQ(Applied(claim.uid), 1);  // an answer means that it is there
    EXPECT_TRUE(node_.Cdi().Read(kDriver, claim.uid).ok());
  }
  void Unprepare(const Claim& claim) {
    if (!node_.claims->Unprepare(kDriver, {Node::Reference(claim)}, Node::Soon()).at(claim.uid).ok()) return;
    EXPECT_EQ(Applied(claim.uid), 0);
    EXPECT_FALSE(node_.Cdi().Read(kDriver, claim.uid).ok());
  }
  int Applied(const std::string& uid) const {
    int count = 0;
    for (const auto& [key, share] : node_.backend->applied) count += key.claim_uid == uid ? 1 : 0;
    return count;
  }
  void RebootOrLoss() {
    if (Pick(2) == 0) {
      for (const std::string& uid : node_.Files()) EXPECT_TRUE(node_.Cdi().Remove(kDriver, uid).ok());
      node_.backend->applied.clear();
      CheckStart();
    } else if (!node_.backend->applied.empty()) {
      node_.backend->applied.erase(node_.backend->applied.begin());
      EXPECT_TRUE(node_.claims->Reconcile("uplink", Node::Soon()).ok());
    }
  }
  void CheckStart() {
    ++crashes_;
    node_.Restart();
    const auto repairs = node_.claims->Reconcile("", Node::Soon());
    EXPECT_TRUE(repairs.ok()) << repairs.status();
    std::set<ShareKey> stored;
    std::set<std::string> uids;
    for (const store::ShareRow& share : node_.Shares()) {
      EXPECT_EQ(share.state, store::ShareState::kApplied);
      stored.insert(share.key);
      uids.insert(share.key.claim_uid);
    }
    EXPECT_EQ(stored, node_.backend->Keys());
    EXPECT_EQ(uids, node_.Files());
  }
  void CheckSums() {
    EXPECT_FALSE(node_.backend->over_granted);
    std::map<std::string, std::pair<int, int>> users;  // physical: whole, shares
    for (const auto& [key, share] : node_.backend->applied) {
      auto& [whole, shares] = users[share.first];
      ++(key.device.ends_with("exclusive") ? whole : shares);
    }
    for (const auto& [physical, counts] : users) {
      EXPECT_LE(counts.first, 1) << physical;
      if (counts.first > 0) { EXPECT_EQ(counts.second, 0) << physical; }
    }
  }

  std::mt19937 random_;
  Node node_;
  std::vector<Claim> claims_;
  int prepared_ = 0, refused_ = 0, crashes_ = 0;
};

TEST(ClaimsPropertyTest, NoOrderOfEventsGrantsMoreThanThereIsOrLosesAShare) {
  const auto end = std::chrono::steady_clock::now() + kRunFor;
  std::uint32_t seed = 1;
  int steps = 0, prepared = 0, refused = 0, crashes = 0;
  while (std::chrono::steady_clock::now() < end) {
    Walk walk(seed);
    for (int i = 0; i < 2000 && std::chrono::steady_clock::now() < end; ++i, ++steps) {
      walk.Step();
      ASSERT_FALSE(walk.failed()) << "seed " << seed << ", step " << i;
    }
    prepared += walk.prepared();
    refused += walk.refused();
    crashes += walk.crashes();
    ++seed;
  }
  std::cout << steps << " steps, " << prepared << " prepared, " << refused << " refused or failed, " << crashes << " starts\n";
  EXPECT_GT(prepared, 0);
  EXPECT_GT(crashes, 0);
}

}  // namespace
}  // namespace tranche::claims
