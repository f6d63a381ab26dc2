#include "conformance/process.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

extern char** environ;

namespace tranche::conform {
namespace {

template <class Visit>
void EachEntry(const char* path, const Visit& visit) {
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return;
  const int own = ::dirfd(directory);
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') visit(entry->d_name, own);
  }
  ::closedir(directory);
}

int CountThreads() {
  int threads = 0;
  EachEntry("/proc/self/task", [&](const char*, int) { ++threads; });
  return threads;
}

std::map<int, std::string> Descriptors() {
  std::map<int, std::string> descriptors;
  EachEntry("/proc/self/fd", [&](const char* name, int own) {
    const int fd = std::atoi(name);
    if (fd == own) return;
    char target[512];
    const ssize_t size = ::readlink((std::string("/proc/self/fd/") + name).c_str(), target, sizeof target);
    descriptors[fd] = std::string(target, size > 0 ? static_cast<std::size_t>(size) : 0);
  });
  return descriptors;
}

std::string Surroundings() {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) text.append("environment ").append(*variable).append("\n");
  char directory[4096];
  text.append("directory ").append(::getcwd(directory, sizeof directory) == nullptr ? "?" : directory).append("\n");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  text.append("umask ").append(std::to_string(mask)).append("\n");
  text.append("locale ").append(std::setlocale(LC_ALL, nullptr)).append("\n");
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    const bool masked = sigismember(&blocked, number) == 1;
    char line[96];
    std::snprintf(line, sizeof line, "signal %d handler %p%s\n", number, reinterpret_cast<void*>(action.sa_handler), masked ? " blocked" : "");
    text += line;
  }
  return text;
}

// The first line in which the texts differ.
std::string Difference(const std::string& before, const std::string& after) {
  std::size_t at = 0;
  while (at < before.size() && at < after.size() && before[at] == after[at]) ++at;
  const std::size_t start = at == 0 ? 0 : after.rfind('\n', at - 1) + 1;
  return after.substr(start, after.find('\n', start) - start);
}

long StatusLine(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::strtol(line.c_str() + line.find(':') + 1, nullptr, 10);
  }
  return 0;
}

}  // namespace

ProcessState ReadProcess() { return {CountThreads(), Descriptors(), Surroundings()}; }
long ResidentKilobytes() { return StatusLine("VmRSS"); }
long PeakKilobytes() { return StatusLine("VmHWM"); }

void JudgeProcess(Reporter& reporter, const ProcessState& before, std::string_view moment) {
  const std::string when(moment);
  // A joined thread may be seen for a moment longer.
  int threads = CountThreads();
  for (int i = 0; i < 20 && threads > before.threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    threads = CountThreads();
  }
  if (threads > before.threads) {
    reporter.Fail("TB-033", when + ": " + std::to_string(threads - before.threads) + " threads are left");
  } else {
    reporter.Pass("TB-033");
  }
  bool kept = false;
  for (const auto& [fd, target] : Descriptors()) {
    const auto found = before.descriptors.find(fd);
    if (found != before.descriptors.end() && found->second == target) continue;
    kept = true;
    reporter.Fail("TB-034", when + ": descriptor " + std::to_string(fd) + " is open (" + target + ")");
  }
  if (!kept) reporter.Pass("TB-034");
  const std::string now = Surroundings();
  if (now != before.surroundings) {
    reporter.Fail("TB-036", when + ": " + Difference(before.surroundings, now));
  } else {
    reporter.Pass("TB-036");
  }
  const pid_t child = ::waitpid(-1, nullptr, WNOHANG);
  if (child >= 0) {
    reporter.Fail("TB-037", when + ": a child process is left");
  } else {
    reporter.Pass("TB-037");
  }
}

}  // namespace tranche::conform
