// A process that survives SIGKILL. A fault stands for the kernel's uninterruptible sleep, so this program does nothing else.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "runner_fixture.h"

namespace tranche::backend {
namespace {

using namespace std::chrono_literals;

const bool kFault = ::setenv("TRANCHE_FAULT_ERROR", "runner/kill#1", 1) == 0;  // before the first fault point reads it

class RunnerStuckTest : public RunnerFixture {};

TEST_F(RunnerStuckTest, AProcessThatSurvivesSigkillIsReportedNeverUsedAgainAndReplaced) {
#if !defined(TRANCHE_FAULT_POINTS)
  GTEST_SKIP() << "this build has no fault points";
#endif
  ASSERT_TRUE(kFault);
  Make();
  const int stuck = Pid();
  ::kill(stuck, SIGSTOP);
  EXPECT_EQ(Prepare("c", 100ms).status.code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(test::Eventually([&] { return backend_->Process()->stuck == std::vector<int>{stuck}; }));
  ASSERT_TRUE(test::Eventually([&] { return backend_->Process()->restarts == 1; }));
  EXPECT_TRUE(Serves());
  EXPECT_NE(Pid(), stuck);
  EXPECT_EQ(::kill(stuck, 0), 0) << "it is still there";
  EXPECT_TRUE(Prepare("c").status.ok());
  ::kill(stuck, SIGCONT);  // the sleep ends: its socket is gone, so it ends itself
  EXPECT_TRUE(test::Eventually([&] { return Prepare("d").status.ok() && backend_->Process()->stuck.empty(); }));
}

}  // namespace
}  // namespace tranche::backend
