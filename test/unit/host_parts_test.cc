// The parts of the host that need no backend: its worker, its lock and its watch on the configuration file.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/config_watcher.h"
#include "host/host_lock.h"
#include "host/worker.h"
#include "support/process.h"

namespace tranche::host {
namespace {

using std::chrono::milliseconds;

TEST(Worker, BurstOfOneKeyIsOneMoreRun) {
  std::atomic<int> runs = 0;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  Worker worker;
  std::promise<void> busy;
  worker.Post("busy", [&] {
    busy.set_value();
    open.wait();
  });
  busy.get_future().wait();
  for (int i = 0; i < 100; ++i) worker.Post("reconcile", [&] { ++runs; });
  gate.set_value();
  EXPECT_TRUE(test::Eventually([&] { return runs == 1; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(runs, 1);
}

TEST(Worker, RunsByTimeAndAnEarlierPostMovesAWaitingTaskForward) {
  std::mutex mutex;
  std::vector<std::string> order;
  const auto note = [&](const std::string& name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      order.push_back(name);
    };
  };
  Worker worker;
  worker.Post("late", note("late"), milliseconds(80));
  worker.Post("moved", note("old"), std::chrono::hours(1));
  worker.Post("moved", note("moved"), milliseconds(10));
  EXPECT_TRUE(test::Eventually([&] {
    const std::lock_guard lock(mutex);
    return order.size() == 2;
  }));
  EXPECT_EQ(order, (std::vector<std::string>{"moved", "late"}));
}

TEST(Worker, ATaskThatHangsKeepsOnlyItsOwnKeyWaiting) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> hung = 0, most = 0, others = 0;
  Worker worker(3);
  const std::function<void()> hang = [&] {
    most = std::max(most.load(), ++hung);
    open.wait();
    --hung;
  };
  worker.Post("a", hang);
  ASSERT_TRUE(test::Eventually([&] { return hung == 1; }));
  worker.Post("a", hang);
  worker.Post("b", hang);
  ASSERT_TRUE(test::Eventually([&] { return hung == 2; }));
  for (int i = 0; i < 5; ++i) worker.Post("c" + std::to_string(i), [&] { ++others; });
  EXPECT_TRUE(test::Eventually([&] { return others == 5; }));
  EXPECT_EQ(hung, 2) << "the second task of a key waits for the first";
  gate.set_value();
  EXPECT_TRUE(test::Eventually([&] { return hung == 0; }));
  worker.Stop();
  EXPECT_EQ(most, 2);
}

TEST(Worker, StopDropsWhatWaitsAndEndsAtOnce) {
  std::atomic<int> runs = 0;
  Worker worker;
  worker.Post(
      "never", [&] { ++runs; }, std::chrono::hours(1));
  worker.Stop();
  worker.Post("after", [&] { ++runs; });
  EXPECT_EQ(runs, 0);
}

TEST(Worker, ATaskMayPostItself) {
  std::atomic<int> runs = 0;
  Worker worker;
  std::function<void()> again = [&] {
    if (++runs < 5) worker.Post("again", again);
  };
  worker.Post("again", again);
  EXPECT_TRUE(test::Eventually([&] { return runs == 5; }));
  worker.Stop();
}

class HostLockTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostLock> Acquire() {
    absl::StatusOr<std::unique_ptr<HostLock>> lock = HostLock::Acquire(directory_.path() + "/tranche.db.host");
    EXPECT_TRUE(lock.ok()) << lock.status();
    return *std::move(lock);
  }
  test::TemporaryDirectory directory_;
};

TEST_F(HostLockTest, OnlyOneHostIsAlone) {
  const std::unique_ptr<HostLock> first = Acquire();
  EXPECT_TRUE(first->Alone());
  {
    const std::unique_ptr<HostLock> second = Acquire();
    EXPECT_FALSE(first->Alone());
    EXPECT_FALSE(second->Alone());
  }
  EXPECT_TRUE(first->Alone());
}

TEST_F(HostLockTest, ANewHostWaitsForAScopeToEnd) {
  const std::unique_ptr<HostLock> first = Acquire();
  std::atomic<bool> started = false;
  std::thread second;
  {
    const HostLock::Scope scope(*first);
    EXPECT_TRUE(first->Alone());
    second = std::thread([&] {
      const std::unique_ptr<HostLock> lock = Acquire();
      started = true;
    });
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(started);
    EXPECT_TRUE(first->Alone());
  }
  EXPECT_TRUE(test::Eventually([&] { return started.load(); }));
  second.join();
}

TEST_F(HostLockTest, NeverTwoAloneAtOnce) {
  std::atomic<int> inside = 0, together = 0;
  std::vector<std::thread> hosts;
  for (int host = 0; host < 4; ++host) {
    hosts.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const std::unique_ptr<HostLock> lock = Acquire();
        const HostLock::Scope scope(*lock);
        if (!lock->Alone()) continue;
        if (++inside > 1) ++together;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(together, 0);
}

TEST(ConfigWatcher, SeesWritesAndReplacements) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() + "/host.yaml";
  std::ofstream(path) << "one";
  std::atomic<int> changes = 0;
  ConfigWatcher watcher(path, std::chrono::seconds(30), [&] { ++changes; });
  std::this_thread::sleep_for(milliseconds(100));
  std::ofstream(path) << "two!";
  EXPECT_TRUE(test::Eventually([&] { return changes == 1; }));
  std::ofstream(path + ".new") << "three";
  std::filesystem::rename(path + ".new", path);
  EXPECT_TRUE(test::Eventually([&] { return changes == 2; }));
  std::ofstream(directory.path() + "/other") << "not watched";
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(changes, 2);
}

TEST(ConfigWatcher, PollsWhereInotifySaysNothing) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() + "/absent/host.yaml";
  std::atomic<int> changes = 0;
  ConfigWatcher watcher(path, milliseconds(20), [&] { ++changes; });
  std::filesystem::create_directories(directory.path() + "/absent");
  std::ofstream(path) << "there";
  EXPECT_TRUE(test::Eventually([&] { return changes >= 1; }));
}

}  // namespace
}  // namespace tranche::host
