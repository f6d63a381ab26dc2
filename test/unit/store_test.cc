#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/process.h"

namespace tranche::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Quantity Amount(std::string_view text) { return *Quantity::Parse(text); }

ClaimRow MakeClaim(const std::string& uid, std::int64_t epoch = 1) {
  ClaimRow claim;
  claim.driver = "nic.example.com";
  claim.claim_uid = uid;
  claim.namespace_name = "team-a";
  claim.name = "fast";
  claim.epoch = epoch;
  claim.allocation_version = "sha256:1";
  claim.pod_uids = {"pod-1", "pod-2"};
  claim.created_at = claim.updated_at = std::chrono::system_clock::now();
  return claim;
}

ShareRow MakeShare(const std::string& uid, const std::string& share_id, std::string_view bandwidth) {
  ShareRow share;
  share.key = {uid, "nic", "nic.example.com", "node", "eth1-shared", share_id};
  share.backend = "uplink";
  share.physical = "eth1";
  share.offer = "shared";
  share.device_class = "nic-shared";
  share.consumed = {{"bandwidth", Amount(bandwidth)}, {"shares", Amount("1")}};
  share.policy_version = "sha256:2";
  share.configuration = R"({"mtu":1500})";
  return share;
}

AppliedShare MakeApplied(const ShareRow& row) {
  AppliedShare applied;
  applied.key = row.key;
  applied.limits = {{"bandwidth", "egress", 50'000'000, 50'000'000, Enforcement::kHard, WallTime(std::chrono::seconds(1'700'000'000)), "htb"}};
  applied.edits.env = {"SHARE=1"};
  applied.state = "opaque";
  return applied;
}

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open(OpenMode mode = OpenMode::kReadWrite) {
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path_, mode);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  absl::Status OpenError(OpenMode mode = OpenMode::kReadWrite) { return Store::Open(path_, mode).status(); }
  void ExecuteOk(const std::string& sql) { EXPECT_TRUE(Execute(sql).ok()) << sql; }
  // Straight to the file, as another program would.
  absl::Status Execute(const std::string& sql) {
    sqlite3* handle = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &handle), SQLITE_OK);
    char* message = nullptr;
    const int code = sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message);
    const std::string text = message == nullptr ? "" : message;
    sqlite3_free(message);
    sqlite3_close(handle);
    return code == SQLITE_OK ? absl::OkStatus() : absl::InternalError(text);
  }
  static std::size_t CountClaims(Store& store) {
    std::size_t count = 0;
    EXPECT_TRUE(store
                    .Read([&](Transaction& transaction) {
                      const auto claims = transaction.Claims();
                      count = claims.ok() ? claims->size() : 999;
                      return claims.status();
                    })
                    .ok());
    return count;
  }
  static absl::Status PutClaim(Store& store, const std::string& uid) {
    return store.Write([&](Transaction& transaction) { return transaction.PutClaim(MakeClaim(uid)); });
  }

  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/state.db";
};

TEST_F(StoreTest, RowsComeBackAsTheyWereAfterReopening) {
  const ClaimRow claim = MakeClaim("uid-1");
  ShareRow share = MakeShare("uid-1", "share-1", "50M");
  share.counters = {{"silicon", {{"slices", Amount("2")}}}};
  share.applied = MakeApplied(share);
  share.state = ShareState::kApplied;
  {
    auto store = Open();
    ASSERT_TRUE(store
                    ->Write([&](Transaction& transaction) {
                      EXPECT_TRUE(transaction.PutClaim(claim).ok());
                      EXPECT_TRUE(transaction.PutPolicy({"sha256:2", "{}"}).ok());
                      return transaction.PutShare(share);
                    })
                    .ok());
  }
  auto store = Open();
  ASSERT_TRUE(store
                  ->Read([&](Transaction& transaction) {
                    EXPECT_EQ(**transaction.FindClaim(claim.driver, "uid-1"), claim);
                    EXPECT_THAT(*transaction.SharesOfClaim(claim.driver, "uid-1"), ElementsAre(share));
                    EXPECT_THAT(*transaction.Shares(), ElementsAre(share));
                    EXPECT_EQ((*transaction.FindPolicy("sha256:2"))->json, "{}");
                    EXPECT_FALSE(transaction.FindPolicy("sha256:3")->has_value());
                    EXPECT_EQ(transaction.OffersInUse()->size(), 1U);
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(StoreTest, ALongerLogChangesNothingElse) {
  auto store = Open();
  ASSERT_TRUE(PutClaim(*store, "uid-1").ok());
  const auto size = std::filesystem::file_size(path_);
  ASSERT_TRUE(store->LengthenLog().ok());
  EXPECT_GE(std::filesystem::file_size(path_ + "-wal"), 4000000U);
  EXPECT_EQ(std::filesystem::file_size(path_), size);
  ASSERT_TRUE(PutClaim(*store, "uid-2").ok());
  store.reset();
  EXPECT_EQ(CountClaims(*Open()), 2U);
}

TEST_F(StoreTest, TheFileIsPrivate) {
  Open();
  struct stat information {};
  ASSERT_EQ(::stat(path_.c_str(), &information), 0);
  EXPECT_EQ(information.st_mode & 0777U, 0600U);
}

TEST_F(StoreTest, AFailedChangeLeavesNothing) {
  auto store = Open();
  const absl::Status status = store->Write([](Transaction& transaction) {
    EXPECT_TRUE(transaction.PutClaim(MakeClaim("uid-1")).ok());
    return absl::ResourceExhaustedError("no");
  });
  EXPECT_EQ(status, absl::ResourceExhaustedError("no"));
  EXPECT_EQ(CountClaims(*store), 0U);
}

TEST_F(StoreTest, AGroupOfWritersFailsOneByOne) {
  auto store = Open();
  std::vector<std::thread> threads;
  std::atomic<int> stored = 0, refused = 0;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] {
      const absl::Status status = store->Write([i](Transaction& transaction) {
        EXPECT_TRUE(transaction.PutClaim(MakeClaim("uid-" + std::to_string(i))).ok());
        return i % 4 == 0 ? absl::FailedPreconditionError("every fourth") : absl::OkStatus();
      });
      ++(status.ok() ? stored : refused);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored, 48);
  EXPECT_EQ(refused, 16);
  EXPECT_EQ(CountClaims(*store), 48U);
}

TEST_F(StoreTest, HoldingsAreExactSumsWithoutTheClaimItself) {
  auto store = Open();
  ASSERT_TRUE(store
                  ->Write([&](Transaction& transaction) {
                    for (int i = 0; i < 1000; ++i) {
                      const std::string uid = "uid-" + std::to_string(i);
                      EXPECT_TRUE(transaction.PutShare(MakeShare(uid, "s", i % 2 == 0 ? "1500k" : "100m")).ok());
                    }
                    return absl::OkStatus();
                  })
                  .ok());
  ASSERT_TRUE(store
                  ->Read([&](Transaction& transaction) {
                    const auto holdings = transaction.HoldingsOfPhysical("uplink", "eth1", {"nic.example.com", "uid-0"}, Holders::kCounted);
                    EXPECT_EQ(holdings->size(), 2U);
                    Quantity sum;
                    std::int64_t shares = 0;
                    for (const Holding& holding : *holdings) {
                      sum += holding.consumed.at("bandwidth");
                      shares += holding.shares;
                    }
                    EXPECT_EQ(shares, 999);
                    EXPECT_EQ(sum, Amount("748500050"));
                    EXPECT_EQ(transaction.HoldingsOfPhysical("uplink", "eth2", {}, Holders::kCounted)->size(), 0U);
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(StoreTest, CounterHoldingsLeaveOutTheDeviceItself) {
  auto store = Open();
  ASSERT_TRUE(store
                  ->Write([&](Transaction& transaction) {
                    for (const std::string physical : {"eth1", "eth2"}) {
                      ShareRow share = MakeShare("uid-" + physical, "s", "1M");
                      share.physical = physical;
                      share.key.device = physical;
                      share.counters = {{"chip", {{"slices", Amount("3")}}}};
                      EXPECT_TRUE(transaction.PutShare(share).ok());
                    }
                    return absl::OkStatus();
                  })
                  .ok());
  ASSERT_TRUE(store
                  ->Read([&](Transaction& transaction) {
                    const auto holdings = transaction.HoldingsOfCounterSet("chip", "uplink", "eth1", {"nic.example.com", "uid-x"}, Holders::kCounted);
                    EXPECT_EQ(holdings->size(), 1U);
                    EXPECT_EQ(holdings->front().physical, "eth2");
                    EXPECT_EQ(holdings->front().counters.front().counters.at("slices"), Amount("3"));
                    EXPECT_TRUE(transaction.HoldingsOfCounterSet("chip", "uplink", "eth1", {"nic.example.com", "uid-eth2"}, Holders::kCounted)->empty());
                    return absl::OkStatus();
                  })
                  .ok());
}

// What a count holds and what a look at every share gives are the same, but for the holder's name.
void ExpectCountsMatchShares(Store& store, const std::string& except_uid) {
  ASSERT_TRUE(store
                  .Read([&](Transaction& transaction) {
                    const ClaimKey except{"nic.example.com", except_uid};
                    for (const std::string physical : {"eth1", "eth2"}) {
                      for (const bool by_counter : {false, true}) {
                        const auto read = [&](Holders holders) {
                          auto holdings = by_counter ? transaction.HoldingsOfCounterSet("chip", "uplink", physical, except, holders)
                                                     : transaction.HoldingsOfPhysical("uplink", physical, except, holders);
                          EXPECT_TRUE(holdings.ok()) << holdings.status();
                          for (Holding& holding : *holdings) {
                            holding.holder.claim_uid = holding.holder.request = "";
                            if (!holding.holder.share_id.empty()) holding.holder.share_id = "*";
                          }
                          return *holdings;
                        };
                        EXPECT_EQ(read(Holders::kCounted), read(Holders::kNamed));
                      }
                    }
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(StoreTest, CountsFollowEveryChangeOfShares) {
  auto store = Open();
  std::mt19937 random(20261130);
  const auto pick = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int step = 0; step < 400; ++step) {
    const std::string uid = "uid-" + std::to_string(pick(12));
    const absl::Status status = store->Write([&](Transaction& transaction) -> absl::Status {
      if (pick(4) == 0) return transaction.DeleteClaim("nic.example.com", uid);
      ShareRow share = MakeShare(uid, "share-" + std::to_string(pick(3)), pick(2) == 0 ? "10M" : "20M");
      share.physical = pick(2) == 0 ? "eth1" : "eth2";
      if (pick(2) == 0) share.counters = {{pick(2) == 0 ? "chip" : "chip2", {{"slices", Amount("3")}}}};
      if (pick(2) == 0) share.applied = MakeApplied(share);
      const absl::Status put = transaction.PutShare(share);
      return put.ok() && pick(5) == 0 ? absl::AbortedError("undone") : put;
    });
    ASSERT_TRUE(status.ok() || status.code() == absl::StatusCode::kAborted) << status;
    ExpectCountsMatchShares(*store, uid);
  }
}

// A count that hides the share ids would make every share look like one that no other may stand beside, and each prepare read every share.
TEST_F(StoreTest, CountsSayWhetherAShareHasAnId) {
  auto store = Open();
  const auto id_of = [&](const std::string& except_uid) {
    std::string id;
    EXPECT_TRUE(store
                    ->Read([&](Transaction& transaction) {
                      const auto holdings = transaction.HoldingsOfPhysical("uplink", "eth1", {"nic.example.com", except_uid}, Holders::kCounted);
                      EXPECT_EQ(holdings->size(), 1U);
                      if (!holdings->empty()) id = holdings->front().holder.share_id;
                      return absl::OkStatus();
                    })
                    .ok());
    return id;
  };
  const auto put = [&](const ShareRow& share) { EXPECT_TRUE(store->Write([&](Transaction& transaction) { return transaction.PutShare(share); }).ok()); };
  put(MakeShare("uid-1", "share-1", "10M"));
  EXPECT_EQ(id_of(""), "*");
  put(MakeShare("uid-2", "", "10M"));
  EXPECT_EQ(id_of(""), "");
  EXPECT_EQ(id_of("uid-2"), "*");
  EXPECT_EQ(id_of("uid-1"), "");
}

TEST_F(StoreTest, WrongCountsAreCountedAnewAtTheStart) {
  {
    auto store = Open();
    ASSERT_TRUE(store->Write([](Transaction& transaction) { return transaction.PutShare(MakeShare("uid-1", "s", "10M")); }).ok());
  }
  ExecuteOk(
      "UPDATE holdings SET shares = 7; INSERT INTO holdings SELECT 'x', physical, driver, pool, device, mode, admin_access, consumed, counters, 1"
      " FROM holdings");
  auto store = Open();
  ExpectCountsMatchShares(*store, "");
}

TEST_F(StoreTest, AStoreOfSchema1IsBroughtUpToDateWithItsShares) {
  {
    auto store = Open();
    ASSERT_TRUE(store->Write([](Transaction& transaction) { return transaction.PutShare(MakeShare("uid-1", "s", "10M")); }).ok());
  }
  ExecuteOk(
      "DROP TRIGGER shares_count_insert; DROP TRIGGER shares_count_delete; DROP TRIGGER shares_count_update; DROP TABLE holdings;"
      "CREATE INDEX shares_by_physical ON shares (backend, physical, driver, pool, device, mode, admin_access, consumed, counters, claim_uid);"
      "CREATE TABLE share_counters (driver TEXT NOT NULL, claim_uid TEXT NOT NULL);"
      "CREATE INDEX share_counters_by_claim ON share_counters (driver, claim_uid); PRAGMA user_version = 1");
  auto store = Open();
  ExpectCountsMatchShares(*store, "");
  ASSERT_TRUE(store
                  ->Read([](Transaction& transaction) {
                    EXPECT_EQ(transaction.HoldingsOfPhysical("uplink", "eth1", {}, Holders::kCounted)->size(), 1U);
                    EXPECT_EQ(transaction.Shares()->size(), 1U);
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(StoreTest, TheEpochOutlivesTheClaim) {
  auto store = Open();
  ASSERT_TRUE(store
                  ->Write([](Transaction& transaction) {
                    EXPECT_TRUE(transaction.PutClaim(MakeClaim("uid-1", 7)).ok());
                    EXPECT_TRUE(transaction.PutShare(MakeShare("uid-1", "s", "1M")).ok());
                    return transaction.DeleteClaim("nic.example.com", "uid-1");
                  })
                  .ok());
  store = nullptr;
  store = Open();
  ASSERT_TRUE(store
                  ->Read([](Transaction& transaction) {
                    EXPECT_EQ(*transaction.LastEpoch("nic.example.com", "uid-1"), 7);
                    EXPECT_EQ(*transaction.LastEpoch("nic.example.com", "uid-2"), 0);
                    EXPECT_TRUE(transaction.Shares()->empty());
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(StoreTest, AuditIsAppendOnly) {
  auto store = Open();
  for (const std::string tenant : {"team-a", "team-b", "team-a"}) {
    ASSERT_TRUE(store
                    ->Write([&](Transaction& transaction) {
                      AuditRecord record;
                      record.tenant = tenant;
                      record.claim_uid = "uid-" + tenant;
                      record.outcome = "OK";
                      return transaction.AppendAudit(record);
                    })
                    .ok());
  }
  EXPECT_THAT(Execute("UPDATE audit SET outcome = 'lie'").ToString(), HasSubstr("append-only"));
  EXPECT_THAT(Execute("DELETE FROM audit").ToString(), HasSubstr("append-only"));
  EXPECT_THAT(Execute("INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE id = 1").ToString(), HasSubstr("append-only"));
  const auto records = store->Audit({});
  ASSERT_EQ(records->size(), 3U);
  EXPECT_LT((*records)[0].id, (*records)[1].id);
  EXPECT_GT((*records)[0].at, WallTime{});
  EXPECT_EQ(store->Audit({.tenant = "team-a"})->size(), 2U);
  EXPECT_EQ(store->Audit({.claim_uid = "uid-team-b"})->size(), 1U);
  EXPECT_EQ(store->Audit({.after_id = (*records)[1].id})->size(), 1U);
  EXPECT_EQ(store->Audit({.limit = 1})->size(), 1U);
}

TEST_F(StoreTest, ReadRefusesChanges) {
  auto store = Open();
  EXPECT_EQ(store->Read([](Transaction& transaction) { return transaction.PutClaim(MakeClaim("uid-1")); }).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StoreTest, ReadOnlyWhileAHostRunsAndWhenItIsDown) {
  EXPECT_EQ(OpenError(OpenMode::kReadOnly).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path_));
  auto host = Open();
  ASSERT_TRUE(PutClaim(*host, "uid-1").ok());
  auto reader = Open(OpenMode::kReadOnly);
  EXPECT_EQ(CountClaims(*reader), 1U);
  ASSERT_TRUE(PutClaim(*host, "uid-2").ok());
  EXPECT_EQ(CountClaims(*reader), 2U);
  EXPECT_EQ(PutClaim(*reader, "uid-3").code(), absl::StatusCode::kFailedPrecondition);
  reader = nullptr;
  host = nullptr;
  const auto written = std::filesystem::last_write_time(path_);
  EXPECT_EQ(CountClaims(*Open(OpenMode::kReadOnly)), 2U);
  EXPECT_EQ(std::filesystem::last_write_time(path_), written);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(StoreTest, AForeignFileIsRefusedAndLeftAlone) {
  std::ofstream(path_) << "this is a text file, and a longer one than a header of SQLite would be";
  EXPECT_EQ(OpenError().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenError(OpenMode::kReadOnly).code(), absl::StatusCode::kDataLoss);
  std::ifstream file(path_);
  std::string word;
  file >> word;
  EXPECT_EQ(word, "this");
}

TEST_F(StoreTest, AnotherProgramsDatabaseIsRefused) {
  ASSERT_TRUE(Execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").ok());
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("another program"));
  EXPECT_TRUE(Execute("SELECT x FROM theirs").ok());
}

TEST_F(StoreTest, ATruncatedFileIsDamaged) {
  {
    auto store = Open();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(PutClaim(*store, "uid-" + std::to_string(i)).ok());
  }
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_EQ(OpenError().code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(std::filesystem::file_size(path_), 0U);
}

TEST_F(StoreTest, AnEmptyFileNextToALogIsDamaged) {
  std::ofstream(path_).flush();
  std::ofstream(path_ + "-wal") << "log";
  EXPECT_EQ(OpenError().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(std::filesystem::exists(path_ + "-wal"));
}

TEST_F(StoreTest, ANewerSchemaIsRefused) {
  Open();
  ASSERT_TRUE(Execute("PRAGMA user_version = 99").ok());
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("99"));
}

TEST_F(StoreTest, AMissingDirectoryIsNamed) {
  EXPECT_THAT(Store::Open(directory_.path() + "/none/state.db", OpenMode::kReadWrite).status().ToString(), HasSubstr("/none/state.db"));
}

// Started by the test below with a fault set in its environment.
TEST(StoreChildTest, DISABLED_CommitFails) {
  const char* path = std::getenv("STORE_TEST_PATH");
  ASSERT_NE(path, nullptr);
  auto store = Store::Open(path, OpenMode::kReadWrite);
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE((*store)->Write([](Transaction& transaction) { return transaction.PutClaim(MakeClaim("uid-1")); }).ok());
  EXPECT_TRUE((*store)->Write([](Transaction& transaction) { return transaction.PutClaim(MakeClaim("uid-2")); }).ok());
}

TEST_F(StoreTest, AFailedCommitFailsItsChangeAndNoLaterOne) {
#if !defined(TRANCHE_FAULT_POINTS)
  GTEST_SKIP() << "this build has no fault points (release preset)";
#endif
  const auto run = test::RunProgram({std::filesystem::read_symlink("/proc/self/exe"), "--gtest_also_run_disabled_tests", "--gtest_filter=StoreChildTest.*"},
                                    {{"STORE_TEST_PATH", path_}, {"TRANCHE_FAULT_ERROR", "store.before_commit"}});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  auto store = Open();
  EXPECT_EQ(CountClaims(*store), 1U);
}

TEST_F(StoreTest, AnAnsweredChangeSurvivesAKill) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Store::Open(path_, OpenMode::kReadWrite);
    if (!store.ok() || !PutClaim(**store, "uid-1").ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(CountClaims(*Open(OpenMode::kReadOnly)), 1U);
  EXPECT_EQ(CountClaims(*Open()), 1U);
}

// As in a rolling update on a node whose store is new: whoever comes first makes the tables, the others find them whole.
TEST_F(StoreTest, ProcessesThatCreateTheStoreTogetherAllOpenIt) {
  for (int round = 0; round < 60; ++round) {
    const std::string path = directory_.path() + "/round-" + std::to_string(round);
    std::array<int, 2> start{};
    ASSERT_EQ(pipe(start.data()), 0);
    std::vector<pid_t> children;
    for (int process = 0; process < 6; ++process) {
      const pid_t child = fork();
      if (child != 0) {
        children.push_back(child);
        continue;
      }
      close(start[1]);
      char byte = 0;
      while (read(start[0], &byte, 1) > 0) {}  // until the parent closes its end
      const absl::Status status = Store::Open(path, OpenMode::kReadWrite).status();
      if (!status.ok()) std::cerr << status << std::endl;
      _exit(status.ok() ? 0 : 1);
    }
    close(start[0]);
    close(start[1]);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "round " << round;
    }
    EXPECT_EQ(CountClaims(*Store::Open(path, OpenMode::kReadWrite).value()), 0U);
  }
}

// Every process checks the sum and adds in one change. A hundred fit, twice as many are tried.
TEST_F(StoreTest, TwoProcessesNeverGrantMoreThanThereIs) {
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    auto store = Store::Open(path_, OpenMode::kReadWrite);
    if (!store.ok()) _exit(100);
    int granted = 0;
    for (int i = 0; i < 50; ++i) {
      const std::string uid = "uid-" + std::to_string(process) + "-" + std::to_string(i);
      const absl::Status status = (*store)->Write([&](Transaction& transaction) -> absl::Status {
        Quantity sum;
        const auto holdings = transaction.HoldingsOfPhysical("uplink", "eth1", {}, Holders::kCounted);
        if (!holdings.ok()) return holdings.status();
        for (const Holding& holding : *holdings) sum += holding.consumed.at("bandwidth");
        if (sum + Amount("10M") > Amount("1G")) return absl::ResourceExhaustedError("full");
        return transaction.PutShare(MakeShare(uid, "s", "10M"));
      });
      if (status.ok()) ++granted;
      if (!status.ok() && status.code() != absl::StatusCode::kResourceExhausted) _exit(101);
    }
    _exit(granted);
  }
  int granted = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_LE(WEXITSTATUS(status), 50);
    granted += WEXITSTATUS(status);
  }
  EXPECT_EQ(granted, 100);
}

}  // namespace
}  // namespace tranche::store
