#include "backend/runner_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "base/fault.h"
#include "runner/wire.h"

namespace tranche::backend {
namespace {

absl::Status Failure(const std::string& what, int error) { return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error))); }

void Close(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_init(&actions_);
    sigset_t none, ignored;
    sigemptyset(&none);
    sigfillset(&ignored);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &ignored);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  int Spawn(pid_t& pid, const std::string& program, const std::string& name, int socket, int output) {
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, runner::kSocketFd);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, runner::kSocketFd + 1);
    std::string own_program = program, own_name = name;  // the name is what ps shows
    std::array<char*, 3> arguments = {own_program.data(), own_name.data(), nullptr};
    return ::posix_spawn(&pid, program.c_str(), &actions_, &attributes_, arguments.data(), environ);
  }

 private:
  posix_spawnattr_t attributes_{};
  posix_spawn_file_actions_t actions_{};
};

// Above the numbers that the child's file actions write to, so that none of them is overwritten before it is used.
int Raise(int fd) {
  const int raised = ::fcntl(fd, F_DUPFD_CLOEXEC, runner::kSocketFd + 1);
  ::close(fd);
  return raised;
}

std::string Describe(int status) {
  if (WIFEXITED(status)) return absl::StrCat("exit code ", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) {
    const char* words = ::sigdescr_np(WTERMSIG(status));
    return absl::StrCat("signal ", WTERMSIG(status), " (", words == nullptr ? "unknown" : words, ")");
  }
  return absl::StrCat("wait status ", status);
}

}  // namespace

absl::StatusOr<RunnerProcess> RunnerProcess::Start(const std::string& program, const std::string& name) {
  std::array<int, 2> sockets{-1, -1}, pipes{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) return Failure("a socket pair cannot be made", errno);
  RunnerProcess process;
  process.socket_ = sockets[0];
  if (::pipe2(pipes.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    Close(sockets[1]);
    return Failure("a pipe cannot be made", error);
  }
  process.output_ = pipes[0];
  ::fcntl(process.output_, F_SETFL, O_NONBLOCK);
  sockets[1] = Raise(sockets[1]);
  pipes[1] = Raise(pipes[1]);
  pid_t pid = -1;
  const int error = sockets[1] < 0 || pipes[1] < 0 ? EMFILE : Attributes().Spawn(pid, program, name, sockets[1], pipes[1]);
  Close(sockets[1]);
  Close(pipes[1]);
  if (error != 0) return Failure(absl::StrCat(program, " cannot be started"), error);
  process.pid_ = pid;
  process.watch_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  return process;
}

RunnerProcess::~RunnerProcess() {
  Close(socket_);
  Close(output_);
  Close(watch_);
}

void RunnerProcess::Swap(RunnerProcess& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(socket_, other.socket_);
  std::swap(output_, other.output_);
  std::swap(watch_, other.watch_);
}

void RunnerProcess::CloseOutput() { Close(output_); }

std::optional<std::string> RunnerProcess::End(std::chrono::milliseconds patience) {
  // A test's fault stands for a process that the signal does not reach.
  if (TRANCHE_FAULT_STATUS("runner/kill").ok()) ::kill(-pid_, SIGKILL);
  return Reap(patience);
}

std::optional<std::string> RunnerProcess::Reap(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  std::chrono::milliseconds pause{1};
  while (true) {
    siginfo_t information{};
    const int looked = ::waitid(P_PID, static_cast<id_t>(pid_), &information, WEXITED | WNOHANG | WNOWAIT);
    if (looked == 0 && information.si_pid == pid_) {
      ::kill(-pid_, SIGKILL);  // what it started and left; the number of the group is its own until it is reaped
      int status = 0;
      return ::waitpid(pid_, &status, 0) == pid_ ? Describe(status) : "nothing known of its end";
    }
    if (looked < 0 && errno != EINTR) return "nothing known of its end";
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

bool HasEnded(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; }

}  // namespace tranche::backend
