#include "base/fault.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

namespace tranche::fault {

namespace {
std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "NAME#N"
struct Target {
  std::string name;
  int pass = 1;
};

Target ParseTarget(const std::string& text) {
  const std::size_t mark = text.rfind('#');
  if (mark == std::string::npos) return {text, 1};
  Target target{text.substr(0, mark), 1};
  std::from_chars(text.data() + mark + 1, text.data() + text.size(), target.pass);
  return target;
}

class Points {
 public:
  Points()
      : trace_(Environment("TRANCHE_FAULT_TRACE")),
        kill_(ParseTarget(Environment("TRANCHE_FAULT_KILL"))),
        error_(ParseTarget(Environment("TRANCHE_FAULT_ERROR"))),
        active_(!trace_.empty() || !kill_.name.empty() || !error_.name.empty()) {}

  // Whether this pass of `name` is the one that shall fail.
  bool Pass(const char* name) {
    if (!active_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(mutex_);
    const int pass = ++passes_[name];
    Trace(name);
    if (kill_.name == name && kill_.pass == pass) raise(SIGKILL);
    return error_.name == name && error_.pass == pass;
  }

 private:
  void Trace(std::string_view name) const {
    if (trace_.empty()) return;
    const int fd = open(trace_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const std::string line = absl::StrCat(std::string(name), "\n");
    [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
    close(fd);
  }

  const std::string trace_;
  const Target kill_, error_;
  const std::atomic<bool> active_;
  std::mutex mutex_;
  std::map<std::string, int> passes_;
};

Points& ThePoints() {
  static Points* const points = new Points;  // never destroyed: threads may pass points while the process ends
  return *points;
}
}  // namespace

void Pass(const char* name) { ThePoints().Pass(name); }

absl::Status PassStatus(const char* name) {
  if (!ThePoints().Pass(name)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("fault point ", name, " was told to fail by TRANCHE_FAULT_ERROR"));
}

}  // namespace tranche::fault
