// Calls on a backend's process at the edges: out of time, given up, late, while it is replaced; and what it says between calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include "backend/runner_link.h"
#include "runner_fixture.h"

namespace tranche::backend {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

class RunnerCallsTest : public RunnerFixture {
 protected:
  absl::Status Unprepare(const std::string& claim) const { return backend_->Unprepare({{Item(claim).key, ""}}, DeadlineIn(10s)).at(0).status; }
  std::vector<AppliedShare> Listed() const {
    auto listed = backend_->ListPrepared(DeadlineIn(10s));
    EXPECT_TRUE(listed.ok()) << listed.status();
    return listed.ok() ? *std::move(listed) : std::vector<AppliedShare>();
  }
};

TEST_F(RunnerCallsTest, ACallWithoutTimeIsNotMade) {
  Make();
  const int pid = Pid();
  const absl::Status late = backend_->ListPrepared(DeadlineIn(-5000ms)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("not made"));
  EXPECT_EQ(Prepare("c", -1s).status.code(), absl::StatusCode::kDeadlineExceeded);
  std::this_thread::sleep_for(300ms);  // three times what a hung call gets
  EXPECT_EQ(backend_->Process()->restarts, 0);
  EXPECT_EQ(Pid(), pid);
  EXPECT_THAT(Listed(), IsEmpty());
}

TEST_F(RunnerCallsTest, AnUnprepareDoesNotOvertakeAPrepareThatWasGivenUp) {
  hang_grace_ = 5s;
  Make();
  Feel("prepare lag 700");
  EXPECT_EQ(Prepare("c", 100ms).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Unprepare("c").ok());
  FeelWell();
  EXPECT_THAT(Listed(), IsEmpty());
  std::this_thread::sleep_for(900ms);
  EXPECT_THAT(Listed(), IsEmpty()) << "put in force after it was taken away";
  EXPECT_EQ(backend_->Process()->restarts, 0);
}

TEST_F(RunnerCallsTest, APrepareDoesNotOvertakeAnUnprepareThatWasGivenUp) {
  hang_grace_ = 5s;
  Make();
  ASSERT_TRUE(Prepare("c").status.ok());
  Feel("unprepare lag 700");
  EXPECT_EQ(backend_->Unprepare({{Item("c").key, ""}}, DeadlineIn(100ms)).at(0).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Prepare("c").status.ok());
  FeelWell();
  std::this_thread::sleep_for(900ms);
  EXPECT_EQ(Listed().size(), 1U) << "taken away after it was put in force";
}

TEST_F(RunnerCallsTest, AProcessThatIsReplacedEndsItsCallsFirst) {
  if (kHasAddressSanitizer) GTEST_SKIP() << kNeedsDescriptors;
  Make();
  Feel("prepare lag 6500");  // longer than a replacement waits for calls without a deadline
  PrepareOutcome slow;
  std::thread caller([&] { slow = Prepare("slow", 30s); });
  std::this_thread::sleep_for(300ms);
  Feel("list descriptors");
  EXPECT_FALSE(backend_->ListPrepared(DeadlineIn(5s)).ok());
  FeelWell();
  caller.join();
  EXPECT_EQ(slow.status.code(), absl::StatusCode::kInternal) << "its own answer, that it has no descriptors left: " << slow.status;
  EXPECT_TRUE(test::Eventually([&] { return backend_->Process()->restarts == 1; }));
}

TEST_F(RunnerCallsTest, ALibraryCopyThatWasCutShortIsMadeAnew) {
  const auto library = Loader(directory_.path() + "/backends").Check("moody_backend");
  ASSERT_TRUE(library.ok());
  std::filesystem::create_directories(directory_.path() + "/copies");
  const std::string copy = directory_.path() + "/copies/moody_backend-" + library->manifest.sha256 + ".so";
  std::ofstream(copy).close();
  std::filesystem::permissions(copy, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  Make();
  EXPECT_TRUE(Prepare("c").status.ok());
  EXPECT_EQ(std::filesystem::file_size(copy), std::filesystem::file_size(Library(".so")));
}

TEST_F(RunnerCallsTest, AFloodOfNoticesEndsTheProcessAndLeavesALogThatCanBeRead) {
  Make();
  Feel("prepare flood");
  testing::internal::CaptureStderr();
  Prepare("c").status.IgnoreError();
  FeelWell();
  EXPECT_TRUE(test::Eventually([&] { return backend_->Process()->restarts >= 1; }));
  EXPECT_TRUE(Serves());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 400);
  EXPECT_THAT(log, HasSubstr("thousands of notices"));
}

TEST_F(RunnerCallsTest, WhatACrashedProcessHadStartedEndsWithIt) {
  std::ifstream file(Library(".backend.json"));
  std::string manifest((std::istreambuf_iterator<char>(file)), {});
  manifest.insert(manifest.find('{') + 1, R"("process": {"systemCalls": ["fork"]},)");
  std::ofstream(Library(".backend.json")) << manifest;
  Make();
  Feel("prepare child");
  EXPECT_FALSE(Prepare("c").status.ok());
  FeelWell();
  ASSERT_TRUE(test::Eventually([&] { return backend_->Process()->restarts >= 1; }));
  pid_t child = 0;
  std::ifstream(MoodFile() + ".child") >> child;
  ASSERT_GT(child, 0);
  EXPECT_TRUE(test::Eventually([&] { return ::kill(child, 0) != 0; })) << "process " << child << " lives";
}

TEST_F(RunnerCallsTest, ABackendThatListsForLongIsNotReplacedAgainAndAgain) {
  probation_ = 500ms;
  Make();
  Feel("list burn 250");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(backend_->ListPrepared(DeadlineIn(5s)).ok());
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(backend_->Process()->is_greedy) << "the first questions may take longer";
  EXPECT_EQ(backend_->Process()->restarts, 0);
}

TEST(RunnerLinkTest, ACallForAProcessThatEndedDoesNotReachTheNextOne) {
  std::array<int, 2> first{}, second{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, first.data()), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, second.data()), 0);
  std::atomic<bool> entered = false, go_on = false;
  RunnerLink link(
      [&](runner::Function, std::size_t) {
        entered = true;
        while (!go_on) std::this_thread::sleep_for(1ms);
      },
      [] {});
  link.Open(first[0]);
  link.Serve(true);
  absl::Status status;
  std::thread caller([&] { status = link.Call(runner::Function::kPrepare, "{}", DeadlineIn(5s)).status(); });
  while (!entered) std::this_thread::sleep_for(1ms);
  link.Close(absl::UnavailableError("its process ended"));
  link.Open(second[0]);
  go_on = true;
  caller.join();
  EXPECT_EQ(status.message(), "its process ended");
  char byte = 0;
  EXPECT_LE(::recv(second[1], &byte, 1, MSG_DONTWAIT), 0);
  for (const int fd : {first[0], first[1], second[0], second[1]}) ::close(fd);
}

}  // namespace
}  // namespace tranche::backend
