#include "claims_fixture.h"

#include <atomic>
#include <thread>

namespace tranche::claims {
namespace {

// 64 threads, two hosts on one store, twenty shares fit. The backend watches the sum.
TEST(ClaimsThreadsTest, ConcurrentPreparesOfTwoHostsNeverOverGrant) {
  Node node(1);
  node.sole_host = false;
  const auto second_store = node.OpenStore();
  const auto second = node.MakeClaims(*second_store);
  constexpr int kThreads = 64, kRounds = 3;
  for (int i = 0; i < kThreads; ++i) node.reader.Put("uid-" + std::to_string(i), MakeClaim("uid-" + std::to_string(i), "50M"));
  std::atomic<int> granted = 0, refused = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Claims& claims = i % 2 == 0 ? *node.claims : *second;
      const std::vector<ClaimReference> reference{{"team-a", "claim-uid-" + std::to_string(i), "uid-" + std::to_string(i)}};
      for (int round = 0; round < kRounds; ++round) {
        const auto answer = claims.Prepare(kDriver, reference, DeadlineIn(std::chrono::seconds(60))).begin()->second;
        if (answer.ok()) ++granted;
        if (answer.status().code() == absl::StatusCode::kResourceExhausted) ++refused;
        if (!answer.ok() && answer.status().code() != absl::StatusCode::kResourceExhausted) ++wrong;
        if (round + 1 < kRounds && !claims.Unprepare(kDriver, reference, DeadlineIn(std::chrono::seconds(60))).begin()->second.ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(node.backend->over_granted);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(granted + refused, kThreads * kRounds);
  EXPECT_LE(node.backend->Sum("eth1"), 1'000'000'000);
  std::set<ShareKey> stored;
  for (const store::ShareRow& share : node.Shares()) stored.insert(share.key);
  EXPECT_EQ(stored, node.backend->Keys());
}

// Prepare, unprepare and reconcile of the same few claims from many threads: at the end the three views are one.
TEST(ClaimsThreadsTest, CallsForTheSameClaimsTakeTurns) {
  Node node(1);
  constexpr int kClaims = 4;
  for (int i = 0; i < kClaims; ++i) node.reader.Put("uid-" + std::to_string(i), MakeClaim("uid-" + std::to_string(i), "200M"));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const std::string uid = "uid-" + std::to_string(i % kClaims);
      const std::vector<ClaimReference> reference{{"team-a", "claim-" + uid, uid}};
      for (int round = 0; round < 10; ++round) {
        if (i == 0 && !node.claims->Reconcile("", Node::Soon()).ok()) ++wrong;
        if (!node.claims->Prepare(kDriver, reference, Node::Soon()).at(uid).ok()) ++wrong;
        if (!node.claims->Unprepare(kDriver, reference, Node::Soon()).at(uid).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(node.backend->over_granted);
  node.ExpectNothingLeft();
}

// The kubelet sends all claims of a pod in one call.
TEST(ClaimsThreadsTest, ClaimsOfOneCallAreReadSideBySide) {
  Node node(1);
  constexpr int kClaims = 3;
  std::vector<ClaimReference> references;
  for (int i = 0; i < kClaims; ++i) {
    const std::string uid = "uid-" + std::to_string(i);
    node.reader.Put(uid, MakeClaim(uid, "100M"));
    references.push_back({"team-a", "claim-" + uid, uid});
  }
  std::atomic<int> reading = 0, alone = 0;
  node.reader.on_read = [&] {
    ++reading;
    const Deadline deadline = Node::Soon();
    while (reading < kClaims && !Passed(deadline)) std::this_thread::yield();
    if (reading < kClaims) ++alone;
  };
  for (const auto& [uid, answer] : node.claims->Prepare(kDriver, references, Node::Soon())) EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(alone, 0);
}

}  // namespace
}  // namespace tranche::claims
