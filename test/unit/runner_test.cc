// One backend in a process of its own that crashes, hangs, lies and leaks: what its callers see, and that it comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <thread>

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/runner_priority.h"
#include "runner/wire.h"
#include "runner_fixture.h"

namespace tranche::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class RunnerTest : public RunnerFixture {};

struct Fault {
  std::string kind;
  absl::StatusCode code;
  std::string words;
  bool replaced;  // the process ends by it
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.kind; }

class RunnerFaultTest : public RunnerFixture, public testing::WithParamInterface<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Each, RunnerFaultTest,
    testing::Values(Fault{"segv", absl::StatusCode::kUnavailable, "signal 11", true}, Fault{"abort", absl::StatusCode::kUnavailable, "signal 6", true},
                    Fault{"exit", absl::StatusCode::kUnavailable, "exit code", true},
                    Fault{"spin", absl::StatusCode::kDeadlineExceeded, "did not answer", true},
                    Fault{"sleep", absl::StatusCode::kDeadlineExceeded, "did not answer", true},
                    Fault{"throw", absl::StatusCode::kInternal, "an exception through C", false},
                    Fault{"garbage", absl::StatusCode::kUnavailable, "protocol version 23130", true},
                    Fault{"oversize", absl::StatusCode::kUnavailable, "a frame of 104857600 bytes", true}, Fault{"huge", absl::StatusCode::kOk, "", false},
                    Fault{"utf8", absl::StatusCode::kInternal, "no characters: ??", false}, Fault{"descriptors", absl::StatusCode::kInternal, "", true},
                    Fault{"thread", absl::StatusCode::kOk, "", false}, Fault{"print", absl::StatusCode::kOk, "", false}),
    [](const auto& fault) { return fault.param.kind; });

TEST_P(RunnerFaultTest, FailsItsCallClearlyAndRecovers) {
  const Fault& fault = GetParam();
  if (kHasAddressSanitizer && std::string_view(fault.kind) == "descriptors") GTEST_SKIP() << kNeedsDescriptors;
  Make();
  ASSERT_TRUE(Prepare("before").status.ok());
  const int first = Pid();
  Feel("prepare " + fault.kind);
  const PrepareOutcome outcome = Prepare("during", fault.code == absl::StatusCode::kDeadlineExceeded ? 500ms : 10s);
  EXPECT_EQ(outcome.status.code(), fault.code) << outcome.status;
  EXPECT_THAT(Message(outcome.status), HasSubstr(fault.words));
  FeelWell();
  if (fault.replaced) {
    EXPECT_TRUE(test::Eventually([&] { return backend_->Process()->restarts >= 1; })) << outcome.status;
  }
  ASSERT_TRUE(Serves());
  EXPECT_EQ(Pid() != first, fault.replaced);
  const PrepareOutcome after = Prepare("after");
  EXPECT_TRUE(after.status.ok()) << after.status;
  const auto listed = backend_->ListPrepared(DeadlineIn(5s));
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_GE(listed->size(), 2u) << "a share that was in force before is gone";
  if (!fault.replaced) return;
  const std::vector<absl::Status> said = Availabilities();
  ASSERT_GE(said.size(), 2u);
  EXPECT_EQ(said.front().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(said.back().ok()) << said.back();
}

TEST_F(RunnerTest, TwoGibibytesAreNotToBeHad) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow needs more than any limit";
#endif
  Make();
  Feel("prepare allocate");
  const PrepareOutcome outcome = Prepare("large");
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  FeelWell();
  EXPECT_TRUE(Prepare("large").status.ok());
}

TEST_F(RunnerTest, ACrashEndsEveryCallInProgressAtOnce) {
  Make();
  Feel("prepare sleep");
  std::vector<std::thread> callers;
  std::mutex mutex;
  std::vector<absl::Status> seen;
  const auto start = std::chrono::steady_clock::now();
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      const absl::Status status = Prepare("c" + std::to_string(caller), 30s).status;
      const std::lock_guard lock(mutex);
      seen.push_back(status);
    });
  }
  std::this_thread::sleep_for(100ms);
  FeelWell();
  ::kill(Pid(), SIGKILL);
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  for (const absl::Status& status : seen) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("signal 9"), HasSubstr("retry")));
  }
}

TEST_F(RunnerTest, WhileItCannotStartItsCallsAreRefusedAndItComesBack) {
  Make();
  Feel("any segv");
  EXPECT_EQ(Prepare("c").status.code(), absl::StatusCode::kUnavailable);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(Prepare("c").status.code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(backend_->Availability().ok());
  }
  FeelWell();
  ASSERT_TRUE(Serves());
  EXPECT_TRUE(Prepare("c").status.ok());
}

TEST_F(RunnerTest, AFailureAtTheFirstStartIsTold) {
  Feel("create segv");
  const auto library = Loader(directory_.path() + "/backends").Check("moody_backend");
  ASSERT_TRUE(library.ok());
  RunnerOptions runner;
  runner.program = std::string(TRANCHE_BINARY_DIRECTORY) + "/bin/tranche-runner";
  runner.copies_directory = directory_.path() + "/copies";
  const CreateOptions options{.name = "moody", .config = R"({"moodFile": ")" + MoodFile() + R"("})", .timeout = 300ms};
  const absl::Status crashed = CreateRunnerBackend(*library, options, runner, {}).status();
  EXPECT_THAT(Message(crashed), AllOf(HasSubstr("backend moody"), HasSubstr("signal 11")));
  Feel("create spin");
  EXPECT_THAT(Message(CreateRunnerBackend(*library, options, runner, {}).status()), HasSubstr("create did not return"));
  FeelWell();
  runner.program += "-absent";
  EXPECT_THAT(Message(CreateRunnerBackend(*library, options, runner, {}).status()), HasSubstr("cannot be started"));
}

TEST_F(RunnerTest, ItHasGivenUpWhatItDoesNotNeed) {
  Make();
  Feel("none probe");
  const PrepareOutcome outcome = Prepare("c");
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  const std::string& words = outcome.share->state;
  for (const char* call : {"mount", "ptrace", "setns", "module", "kexec", "reboot", "kill", "fork", "exec"}) {
    EXPECT_THAT(words, HasSubstr(std::string(call) + "=denied"));
  }
  EXPECT_THAT(words, AllOf(HasSubstr("self=0"), HasSubstr("privileges=1"), HasSubstr("files=512"), HasSubstr("capabilities=0000000000000000")));
  EXPECT_THAT(words, HasSubstr("open=6")) << "nothing of the host's but its socket: 0, 1, 2, 3 and the two that were read";
}

TEST_F(RunnerTest, AnEndlessLoopRunsBehindEverybodyAndSoDoesTheNextProcess) {
  Make();
  EXPECT_TRUE(AllThreadsHave(SCHED_OTHER));
  EXPECT_FALSE(backend_->Process()->is_greedy);
  const int first = Pid();
  Feel("prepare spin");
  std::thread caller([this] { EXPECT_FALSE(Prepare("spins", 5s).status.ok()); });
  EXPECT_TRUE(test::Eventually([&] { return backend_->Process()->is_greedy && AllThreadsHave(SCHED_IDLE); }));
  EXPECT_EQ(Pid(), first);
  FeelWell();
  ::kill(first, SIGKILL);
  caller.join();
  ASSERT_TRUE(test::Eventually([&] { return Pid() != 0 && Pid() != first && backend_->Availability().ok(); }));
  EXPECT_TRUE(Prepare("after").status.ok());
  EXPECT_TRUE(backend_->Process()->is_greedy);
  EXPECT_TRUE(AllThreadsHave(SCHED_IDLE));
}

TEST_F(RunnerTest, AfterAGoodWhileItHasItsPriorityBack) {
  probation_ = 300ms;
  Make();
  Feel("prepare spin");
  EXPECT_FALSE(Prepare("spins", 1s).status.ok());
  FeelWell();
  ASSERT_TRUE(test::Eventually([&] { return backend_->Process()->restarts >= 1; }));
  ASSERT_TRUE(Serves());
  EXPECT_TRUE(test::Eventually([&] {
    EXPECT_TRUE(Prepare("well").status.ok());
    return !backend_->Process()->is_greedy && AllThreadsHave(SCHED_OTHER);
  }));
}

// This thread, and those that it starts, without CAP_SYS_NICE, as a host in a pod.
class WithoutSysNice {
 public:
  WithoutSysNice() {
    ::syscall(SYS_capget, &head_, before_.data());
    auto less = before_;
    less[0].effective &= ~(1u << CAP_SYS_NICE);
    ::syscall(SYS_capset, &head_, less.data());
  }
  ~WithoutSysNice() { ::syscall(SYS_capset, &head_, before_.data()); }
  WithoutSysNice(const WithoutSysNice&) = delete;
  WithoutSysNice& operator=(const WithoutSysNice&) = delete;

 private:
  __user_cap_header_struct head_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_{};
};

TEST_F(RunnerTest, AProcessThatMayNotHaveItsPriorityBackIsReplaced) {
  probation_ = 300ms;
  {
    const WithoutSysNice less;
    Make();
  }
  Feel("prepare spin");
  EXPECT_FALSE(Prepare("spins", 3s).status.ok());
  FeelWell();
  EXPECT_TRUE(test::Eventually([&] { return backend_->Process()->restarts >= 2; })) << "once for the hang, once for the priority";
  ASSERT_TRUE(Serves());
  EXPECT_TRUE(test::Eventually([&] { return !backend_->Process()->is_greedy && AllThreadsHave(SCHED_OTHER); }));
  EXPECT_TRUE(Prepare("well").status.ok());
}

TEST_F(RunnerTest, ManyGoodCallsAreNotGreedy) {
  Make();
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Prepare("c-" + std::to_string(i % 10)).status.ok());
  EXPECT_FALSE(backend_->Process()->is_greedy);
}

TEST(CpuAccount, CallsPayForWhatTheyUseAndNotForMuchMore) {
  const auto idle = true, called = false;
  CpuAccount account;
  EXPECT_TRUE(account.Draw(20ms, 0us, 0us, idle)) << "what is left of its start";
  EXPECT_TRUE(account.Draw(20ms, 20ms, 20ms, called)) << "what a call is worth";
  EXPECT_TRUE(account.Draw(1ms, 0us, 20ms, called)) << "time itself pays a little";
  EXPECT_FALSE(account.Draw(20ms, 0us, 20ms, called)) << "a loop";
  EXPECT_FALSE(account.Draw(20ms, 0us, 20ms, called));
  EXPECT_TRUE(account.Draw(1ms, 20ms, 20ms, called)) << "debts are forgotten";
  EXPECT_TRUE(account.Draw(100ms, 2s, 20ms, called)) << "a call of many shares";
  EXPECT_TRUE(account.Draw(100ms, 0us, 20ms, called)) << "may use all that it is worth";
  EXPECT_TRUE(account.Draw(0us, 0us, 1h, idle));
  EXPECT_FALSE(account.Draw(50ms, 0us, 20ms, idle)) << "little is saved up";
}

TEST(CpuAccount, TheWorthGrowsWithTheSharesOfACall) {
  EXPECT_EQ(WorthOf(runner::Function::kPrepare, 64 * 1024, 0), 65 * WorthOf(runner::Function::kPrepare, 500, 0));
  EXPECT_GT(WorthOf(runner::Function::kDiscover, 0, 0), WorthOf(runner::Function::kUnprepare, 0, 0));
  EXPECT_GT(WorthOf(runner::Function::kListPrepared, 0, 512 * 1024), 10 * WorthOf(runner::Function::kListPrepared, 0, 0));
}

TEST(CpuAccount, TheFirstQuestionsMayTakeLonger) {
  CpuAccount account(1s);
  EXPECT_TRUE(account.Draw(600ms, 0us, 20ms, false));
  EXPECT_TRUE(account.Draw(0us, 0us, 1h, true)) << "kept until it is used";
  EXPECT_TRUE(account.Draw(400ms, 0us, 20ms, false));
  EXPECT_FALSE(account.Draw(50ms, 0us, 20ms, false)) << "and used once";
}

TEST_F(RunnerTest, AnOverwrittenLibraryIsHarmless) {
  Make();
  std::ofstream(Library(".so"), std::ios::binary | std::ios::trunc) << "no library";
  ASSERT_TRUE(Prepare("c").status.ok());
  ::kill(Pid(), SIGKILL);
  ASSERT_TRUE(test::Eventually([&] { return backend_->Process()->restarts == 1; }));
  EXPECT_TRUE(Serves());
  EXPECT_TRUE(Prepare("d").status.ok());
}

TEST_F(RunnerTest, DestroyKeepsSharesAndEndsTheProcessAlsoWhileItHangs) {
  Make();
  ASSERT_TRUE(Prepare("c").status.ok());
  const int first = Pid();
  backend_.reset();
  EXPECT_EQ(::kill(first, 0), -1);
  Make();
  EXPECT_EQ(backend_->ListPrepared(DeadlineIn(5s))->size(), 1u);
  Feel("prepare spin");
  const int second = Pid();
  EXPECT_FALSE(Prepare("d", 50ms).status.ok());
  backend_.reset();
  EXPECT_EQ(::kill(second, 0), -1);
}

TEST_F(RunnerTest, WhatItPrintsIsInTheLogWithItsNameAndBounded) {
  Make();
  Feel("prepare print");
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Prepare("c").status.ok());
  backend_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("line 0 of a backend that prints"), HasSubstr("\"backend\":\"moody\"")));
  EXPECT_THAT(log, testing::Not(HasSubstr("line 1999 of")));
}

// ---- the wire

TEST(Wire, EveryMessageSurvivesTheTrip) {
  runner::Done done;
  done.code = 13;
  done.failed = 13;
  done.message = "why";
  done.threw = done.exhausted = true;
  done.devices = {"a", ""};
  done.shares = {std::string("\0b", 2)};
  done.results = {{"k", 14, "m"}};
  const auto read = runner::DecodeDone(runner::Encode(done));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->message, "why");
  EXPECT_TRUE(read->threw && read->exhausted && !read->instance);
  EXPECT_EQ(read->devices, done.devices);
  EXPECT_EQ(read->shares, done.shares);
  EXPECT_EQ(read->results.at(0).message, "m");
  const auto start = runner::DecodeStart(runner::Encode(runner::Start{.name = "n",
                                                                      .path = "/p",
                                                                      .device_bytes = 1,
                                                                      .call_bytes = 2,
                                                                      .memory_bytes = 3,
                                                                      .open_files = 4,
                                                                      .capabilities = {"NET_ADMIN"},
                                                                      .system_calls = {"bpf"}}));
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->capabilities, std::vector<std::string>{"NET_ADMIN"});
}

TEST(Wire, NoPrefixAndNoChangedByteIsReadPastItsEnd) {
  runner::Done done;
  done.devices = {"device", "another"};
  done.results = {{"key", 1, "message"}};
  const std::string whole = runner::Encode(done);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(runner::DecodeDone(std::string_view(whole).substr(0, size)).has_value()) << size;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(0xff);
    runner::DecodeDone(changed);  // may be readable; must not read outside
  }
}

TEST(Wire, FramesAreCutAnywhereAndWrongOnesStopTheReader) {
  const std::string bytes = runner::Frame(runner::FrameType::kLog, 0, runner::Encode(runner::Log{1, "one"})) + runner::Frame(runner::FrameType::kDone, 7, "") +
                            runner::Frame(runner::FrameType::kHealth, 0, "three");
  runner::FrameReader reader(1024);
  std::vector<std::uint64_t> calls;
  for (const char byte : bytes) {
    reader.Append({&byte, 1});
    while (const auto frame = reader.Next()) calls.push_back(frame->call);
  }
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{0, 7, 0}));
  reader.Append(runner::Frame(runner::FrameType::kHealth, 0, std::string(1025, 'x')));
  EXPECT_FALSE(reader.Next().has_value());
  EXPECT_THAT(reader.problem(), HasSubstr("1025 bytes"));
  reader.Append(runner::Frame(runner::FrameType::kDone, 7, ""));
  EXPECT_FALSE(reader.Next().has_value());
}

}  // namespace
}  // namespace tranche::backend
