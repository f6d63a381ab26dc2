#include "proof/process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "base/status.h"
#include "proof/netns.h"

namespace tranche::proof {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPoll(5);
constexpr std::size_t kMaxOutput = std::size_t{4} << 20;

// In the child, between fork and exec: system calls only.
[[noreturn]] void BecomeCommand(char* const* arguments, int namespace_fd, int output, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(125);
  if (namespace_fd >= 0 && setns(namespace_fd, CLONE_NEWNET) != 0) _exit(125);
  const int input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(125);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setpgid(0, 0);  // an interrupt typed at the terminal reaches the parent alone, which ends its children in order
  execvp(arguments[0], arguments);
  _exit(127);
}

absl::StatusOr<int> OpenOutput(const Command& command) {
  const int fd =
      command.output_path.empty() ? memfd_create("output", MFD_CLOEXEC) : open(command.output_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  return absl::InternalError(absl::StrCat("cannot open the output of ", command.arguments[0], ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<Process> Process::Start(const Command& command) {
  if (command.arguments.empty()) return absl::InvalidArgumentError("a command needs a program");
  TRANCHE_ASSIGN_OR_RETURN(const NamespaceFile network, NamespaceFile::Open(command.network_namespace));
  TRANCHE_ASSIGN_OR_RETURN(const int output, OpenOutput(command));
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeCommand(arguments.data(), network.fd(), output, parent);
  if (pid > 0) return Process(pid, output);
  const int error = errno;
  close(output);
  return absl::ResourceExhaustedError(absl::StrCat("cannot start ", command.arguments[0], ": ", std::strerror(error)));
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::exchange(other.output_, -1)), ended_(other.ended_), status_(other.status_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(ended_, other.ended_);
  std::swap(status_, other.status_);
  return *this;
}

Process::~Process() {
  if (pid_ > 0) Stop();
  if (output_ >= 0) close(output_);
}

bool Process::Running() {
  if (pid_ <= 0 || ended_) return false;
  const pid_t reaped = waitpid(pid_, &status_, WNOHANG);
  if (reaped == pid_ || (reaped < 0 && errno == ECHILD)) ended_ = true;
  return !ended_;
}

absl::StatusOr<int> Process::Wait(milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (Running()) {
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("process ", pid_, " still runs after ", timeout.count(), " ms"));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return status_;
}

void Process::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

void Process::Stop(milliseconds patience) {
  Signal(SIGTERM);
  if (Wait(patience).ok()) return;
  Signal(SIGKILL);
  const auto ended = Wait(milliseconds(5000));
  static_cast<void>(ended);  // a process that survives SIGKILL sits in the kernel: nothing more can be done
}

std::string Process::Output() const {
  std::string text;
  char buffer[16384];
  for (off_t offset = 0; text.size() < kMaxOutput;) {
    const ssize_t count = pread(output_, buffer, sizeof buffer, offset);
    if (count <= 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
    offset += count;
  }
  return text;
}

absl::StatusOr<Finished> RunCommand(const Command& command, milliseconds timeout) {
  TRANCHE_ASSIGN_OR_RETURN(Process process, Process::Start(command));
  const absl::StatusOr<int> status = process.Wait(timeout);
  if (!status.ok()) {
    process.Stop();
    return absl::DeadlineExceededError(absl::StrCat(absl::StrJoin(command.arguments, " "), ": did not end within ", timeout.count(), " ms"));
  }
  return Finished{WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status), process.Output()};
}

}  // namespace tranche::proof
