#include "local/subprocess.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::local {
namespace {

constexpr std::size_t kMaxErrorOutput = 64 * 1024;
constexpr std::chrono::milliseconds kPollInterval{20};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

absl::Status SystemError(int error, std::string_view what) { return absl::ErrnoToStatus(error, std::string(what)); }

// An anonymous file with the input: unlike a pipe it needs no writer and cannot raise SIGPIPE.
absl::StatusOr<Descriptor> InputFile(std::string_view input) {
  Descriptor file(memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0) return SystemError(errno, "cannot make a file for standard input");
  while (!input.empty()) {
    const ssize_t written = write(file.get(), input.data(), input.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError(errno, "cannot write standard input");
    input.remove_prefix(static_cast<std::size_t>(written));
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) return SystemError(errno, "cannot rewind standard input");
  return file;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));  // posix_spawn does not write to them
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> Spawn(const Command& command, int input, int error_output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, error_output, STDERR_FILENO);
  sigset_t no_signals, all_signals;
  sigemptyset(&no_signals);
  sigfillset(&all_signals);
  posix_spawnattr_setsigmask(&attributes, &no_signals);
  posix_spawnattr_setsigdefault(&attributes, &all_signals);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, command.path.c_str(), &actions, &attributes, Pointers(command.arguments).data(), Pointers(command.environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return SystemError(error, Cat("cannot start \"", command.path, "\""));
  return pid;
}

// What there is to read now, after waiting for at most one interval. Empty at the end of the stream too: the process' end decides.
std::string ReadSome(int fd) {
  pollfd event{fd, POLLIN, 0};
  if (poll(&event, 1, static_cast<int>(kPollInterval.count())) <= 0) return "";
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof buffer);
  if (count > 0) return std::string(buffer, static_cast<std::size_t>(count));
  if ((event.revents & POLLHUP) != 0) usleep(2000);  // stderr was closed but the program still runs: do not spin
  return "";
}

int ExitCode(int wait_status) { return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status); }

Outcome Await(pid_t pid, int error_output, Deadline deadline) {
  Outcome outcome;
  int status = 0;
  const auto keep = [&outcome](const std::string& text) {
    outcome.error_output.append(text, 0, std::min(text.size(), kMaxErrorOutput - outcome.error_output.size()));
  };
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Passed(deadline) && !outcome.timed_out) {
      outcome.timed_out = true;
      kill(-pid, SIGKILL);
    }
    keep(ReadSome(error_output));
  }
  for (std::string rest = ReadSome(error_output); !rest.empty(); rest = ReadSome(error_output)) keep(rest);
  outcome.exit_code = ExitCode(status);
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> RunCommand(const Command& command) {
  TRANCHE_ASSIGN_OR_RETURN(const Descriptor input, InputFile(command.input));
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError(errno, "cannot make a pipe");
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  TRANCHE_ASSIGN_OR_RETURN(const pid_t pid, Spawn(command, input.get(), write_end.get()));
  write_end.Reset();
  return Await(pid, read_end.get(), DeadlineIn(command.timeout));
}

}  // namespace tranche::local
