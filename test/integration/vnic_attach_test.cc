// vnic-attach: its logic in namespaces of the test, and the static program itself once.
#include <chrono>
#include <cstdio>
#include <future>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include "integration/vnic_harness.h"

namespace vnic_test {
namespace {

constexpr std::int64_t kMega = 1'000'000;

class VnicAttach : public testing::Test {
 protected:
  void SetUp() override {
    VNIC_NEEDS_ROOT();
    world_ = std::make_unique<World>();
    host_ = std::make_unique<Host>(Config("1G"), world_->directory());
    ASSERT_TRUE(host_->created()) << host_->error();
    const Outcome outcome = host_->Prepare({ShareRequest("a", 50 * kMega)}).at("a");
    ASSERT_EQ(outcome.code, TRANCHE_OK) << outcome.message;
    share_ = outcome.share;
  }
  // net1 as the pod sees it: up, with its MAC and address.
  void ExpectAttached(const Namespace& pod) {
    const vnic::AttachRequest request = AttachRequestOf(share_);
    pod.Run([&] {
      vnic::Socket socket = std::move(*vnic::Socket::Open());
      const vnic::Result<vnic::Link> link = vnic::GetLink(socket, "net1");
      ASSERT_TRUE(link.ok());
      EXPECT_TRUE(link->up);
      EXPECT_EQ(link->mac, request.mac);
      EXPECT_EQ(*vnic::ListAddresses(socket, *link), std::vector<vnic::InterfaceAddress>{request.address});
      EXPECT_TRUE(vnic::GetLink(socket, "lo")->up);
    });
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<Host> host_;
  json::object share_;
};

TEST_F(VnicAttach, GivesTheInterfaceOnceAndAgain) {
  const Namespace pod = Namespace::New();
  for (int container = 0; container < 3; ++container) {
    const vnic::Status status = world_->Attach(share_, pod);
    ASSERT_TRUE(status.ok()) << status.failure().message;
    ExpectAttached(pod);
  }
}

TEST_F(VnicAttach, CompletesWhatAnEarlierRunLeftHalfDone) {
  const Namespace pod = Namespace::New();
  const int fd = open(pod.Path().c_str(), O_RDONLY | O_CLOEXEC);
  const std::string pod_end = AttachRequestOf(share_).pod_end;
  ASSERT_TRUE(vnic::MoveToNamespace(world_->socket(), world_->Link(pod_end), fd, pod_end).ok());
  close(fd);
  ASSERT_TRUE(world_->Attach(share_, pod).ok());
  ExpectAttached(pod);
}

TEST_F(VnicAttach, RefusesASecondPodAtOnce) {
  const Namespace first = Namespace::New(), second = Namespace::New();
  ASSERT_TRUE(world_->Attach(share_, first).ok());
  const auto begin = std::chrono::steady_clock::now();
  const vnic::Status status = world_->Attach(share_, second);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, TRANCHE_FAILED_PRECONDITION);
  EXPECT_NE(status.failure().message.find("another pod"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  ExpectAttached(first);
}

TEST_F(VnicAttach, RefusesANameThatThePodHasAndLeavesTheEndParked) {
  const Namespace pod = Namespace::New();
  pod.Run([] {
    vnic::Socket socket = std::move(*vnic::Socket::Open());
    ASSERT_TRUE(vnic::CreateVeth(socket, {"net1", "other", {0x02, 9, 9, 9, 9, 9}, 1500, 0}).ok());
  });
  const vnic::Status status = world_->Attach(share_, pod);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, TRANCHE_ALREADY_EXISTS);
  EXPECT_TRUE(world_->HasLink(AttachRequestOf(share_).pod_end));
}

TEST_F(VnicAttach, RefusesThePodThatUsesTheHostsNetwork) {
  EXPECT_EQ(world_->Attach(share_, Namespace::Current()).failure().code, TRANCHE_FAILED_PRECONDITION);
}

TEST_F(VnicAttach, WaitsForAShareThatIsMadeAgain) {
  const Namespace pod = Namespace::New();
  json::object request = ShareRequest("a", 50 * kMega);
  request["state"] = share_.at("state");
  ASSERT_TRUE(vnic::DeleteLink(world_->socket(), world_->Link(HostEndOf(share_))).ok());
  auto later = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return host_->Prepare({request}).at("a").code;
  });
  const vnic::Status status = world_->Attach(share_, pod);
  EXPECT_TRUE(status.ok()) << status.failure().message;
  EXPECT_EQ(later.get(), TRANCHE_OK);
  ExpectAttached(pod);
}

TEST_F(VnicAttach, GivesUpOnAShareThatDoesNotComeBack) {
  ASSERT_TRUE(vnic::DeleteLink(world_->socket(), world_->Link(HostEndOf(share_))).ok());
  const vnic::Status status = world_->Attach(share_, Namespace::New(), 200);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, TRANCHE_DEADLINE_EXCEEDED);
}

// A "pod": a process in a namespace of its own that lives until its pipe closes.
class PodProcess {
 public:
  PodProcess() {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(pipe_[1]);
      char byte = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      (void)!write(ready[1], &byte, 1);
      (void)!read(pipe_[0], &byte, 1);
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    close(ready[0]);
    close(ready[1]);
  }
  ~PodProcess() {
    close(pipe_[1]);
    waitpid(pid_, nullptr, 0);
    close(pipe_[0]);
  }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2];
  pid_t pid_;
};

struct ProgramRun {
  int status = -1;
  std::string output;
};
// The program as a runtime calls it; test values hold nothing that a shell would read.
ProgramRun RunProgram(const std::vector<std::string>& arguments, const std::string& state) {
  std::string command = "printf '%s' '" + state + "' | '" TRANCHE_BINARY_DIRECTORY "/bin/vnic-attach'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  ProgramRun run;
  char buffer[512];
  while (fgets(buffer, sizeof buffer, pipe) != nullptr) run.output += buffer;
  run.status = WEXITSTATUS(pclose(pipe));
  return run;
}

TEST_F(VnicAttach, TheProgramIsAnOciHook) {
  std::vector<std::string> arguments;
  for (const json::value& argument : share_.at("containerEdits").at("hooks").at(0).at("args").as_array()) arguments.emplace_back(argument.as_string());
  arguments.erase(arguments.begin());
  const PodProcess pod, other;
  const auto state = [](pid_t pid) { return R"({"ociVersion":"1.2.0","id":"c1","status":"creating","pid":)" + std::to_string(pid) + R"(,"bundle":"/b"})"; };
  const ProgramRun first = RunProgram(arguments, state(pod.pid()));
  EXPECT_EQ(first.status, 0) << first.output;
  EXPECT_EQ(RunProgram(arguments, state(pod.pid())).status, 0);
  const ProgramRun second_pod = RunProgram(arguments, state(other.pid()));
  EXPECT_EQ(second_pod.status, 1);
  EXPECT_EQ(std::count(second_pod.output.begin(), second_pod.output.end(), '\n'), 1) << second_pod.output;
  EXPECT_NE(second_pod.output.find("another pod"), std::string::npos);
  EXPECT_EQ(RunProgram(arguments, "not json").status, 1);
  EXPECT_EQ(RunProgram({"--host-end", "x"}, state(pod.pid())).status, 1);
}

}  // namespace
}  // namespace vnic_test
