#include "conformance/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace tranche::conform {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = 64 * 1024;
constexpr char kUnit = '\x1f', kEnd = '\x1e';  // ASCII separators: Printable() leaves none in the texts

// The parent's reading of one child.
class Watcher {
 public:
  Watcher(Report& report, pid_t pid, int lines, int output, Clock::time_point end) : report_(report), pid_(pid), lines_(lines), output_(output), end_(end) {}

  Ending Run() {
    bool open = true;
    while (open) {
      pollfd sources[] = {{lines_, POLLIN, 0}, {output_, POLLIN, 0}};
      ::poll(sources, 2, 20);
      // The case's end, not the pipes': a process left behind may hold them.
      if (::waitpid(pid_, &ending_.status, WNOHANG) == pid_) open = false;
      Drain(lines_, buffer_);
      Parse();
      Drain(output_, ending_.output);
      if (ending_.output.size() > kMaxOutput) ending_.output.resize(kMaxOutput);
      const bool late = Clock::now() > end_ || (!ending_.during.empty() && Clock::now() > call_end_);
      if (open && late && !ending_.killed) {
        ending_.killed = true;
        ::kill(-pid_, SIGKILL);
        ::kill(pid_, SIGKILL);
      }
    }
    ::kill(-pid_, SIGKILL);  // what the backend started and left
    return std::move(ending_);
  }

 private:
  static void Drain(int fd, std::string& text) {
    std::array<char, 16384> chunk{};
    for (int i = 0; i < 64; ++i) {
      const ssize_t count = ::read(fd, chunk.data(), chunk.size());
      if (count <= 0) return;
      text.append(chunk.data(), static_cast<std::size_t>(count));
    }
  }

  void Parse() {
    for (std::size_t end = buffer_.find(kEnd); end != std::string::npos; end = buffer_.find(kEnd)) {
      const std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      const std::size_t first = line.find(kUnit), second = line.find(kUnit, first + 1);
      if (first == std::string::npos || second == std::string::npos) continue;
      Take(line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1));
    }
  }

  void Take(const std::string& kind, const std::string& name, const std::string& text) {
    if (kind == "pass") report_.Pass(name);
    if (kind == "fail") report_.Fail(name, text);
    if (kind == "n/a") report_.NotApplicable(name, text);
    if (kind == "note") ending_.notes[name] = text;
    if (kind == "done") ending_.done = true;
    if (kind == "leave") ending_.during.clear();
    if (kind == "enter") {
      ending_.during = name;
      call_end_ = Clock::now() + std::chrono::milliseconds(std::stoll(text));
    }
  }

  Report& report_;
  const pid_t pid_;
  const int lines_, output_;
  const Clock::time_point end_;
  Clock::time_point call_end_;
  std::string buffer_;
  Ending ending_;
};

[[noreturn]] void RunChild(int lines, int output, const std::function<void(Reporter&)>& body) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_DUMPABLE, 0);  // a crash here is an answer, not a core file
  std::fflush(nullptr);
  ::dup2(output, 1);
  ::dup2(output, 2);
  if (output > 2) ::close(output);
  Reporter reporter(lines);
  try {
    body(reporter);
    std::fflush(nullptr);
    reporter.Done();
  } catch (const std::exception& error) { reporter.Note("error", error.what()); }
  ::_exit(0);
}

}  // namespace

void Reporter::Send(std::string_view kind, std::string_view name, std::string_view text) {
  std::string line;
  line.append(kind).append(1, kUnit).append(name).append(1, kUnit).append(text).append(1, kEnd);
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t count = ::write(fd_, line.data() + at, line.size() - at);
    if (count > 0) at += static_cast<std::size_t>(count);
    else if (errno != EINTR && errno != EAGAIN) return;
  }
}

void Reporter::Pass(std::string_view rule) { Send("pass", rule, ""); }
void Reporter::Fail(std::string_view rule, std::string_view detail) { Send("fail", rule, Printable(detail)); }
void Reporter::NotApplicable(std::string_view rule, std::string_view why) { Send("n/a", rule, Printable(why)); }
void Reporter::Note(std::string_view name, std::string_view value) { Send("note", name, Printable(value, 1 << 20)); }
void Reporter::Enter(std::string_view function, std::chrono::milliseconds limit) { Send("enter", function, std::to_string(limit.count())); }
void Reporter::Leave() { Send("leave", "", ""); }
void Reporter::Done() { Send("done", "", ""); }

std::string Ending::Describe() const {
  const std::string where = during.empty() ? "" : " in " + during;
  if (killed) return "did not return" + where;
  if (WIFSIGNALED(status)) return std::string("ended by ") + ::strsignal(WTERMSIG(status)) + where;
  if (const auto error = notes.find("error"); error != notes.end()) return "the kit failed: " + error->second;
  return "the process exited with code " + std::to_string(WEXITSTATUS(status)) + where;
}

Ending RunCase(Report& report, std::chrono::milliseconds limit, const std::function<void(Reporter&)>& body) {
  int lines[2], output[2];
  if (::pipe2(lines, O_CLOEXEC) != 0 || ::pipe2(output, O_CLOEXEC) != 0) throw std::runtime_error("no pipe: the process is out of descriptors");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork failed: the process limit is reached");
  if (pid == 0) {
    ::close(lines[0]);
    ::close(output[0]);
    RunChild(lines[1], output[1], body);
  }
  ::close(lines[1]);
  ::close(output[1]);
  ::fcntl(lines[0], F_SETFL, O_NONBLOCK);
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  Ending ending = Watcher(report, pid, lines[0], output[0], Clock::now() + limit).Run();
  ::close(lines[0]);
  ::close(output[0]);
  return ending;
}

}  // namespace tranche::conform
