#include "host/config_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "telemetry/log.h"

namespace tranche::host {
namespace {

// A file is often written in several steps: one look after they have settled is enough.
constexpr int kSettleMilliseconds = 30;

ConfigWatcher::FileState LookAt(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {.present = true, .inode = info.st_ino, .size = info.st_size, .seconds = info.st_mtim.tv_sec, .nanoseconds = info.st_mtim.tv_nsec};
}

void Drain(int fd) {
  std::array<char, 4096> events;
  while (::read(fd, events.data(), events.size()) > 0) {}
}

}  // namespace

ConfigWatcher::ConfigWatcher(std::string path, std::chrono::milliseconds poll_interval, std::function<void()> changed)
    : path_(std::move(path)), poll_interval_(poll_interval), changed_(std::move(changed)), known_(LookAt(path_)) {
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  inotify_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  const std::string directory = std::filesystem::path(path_).parent_path();
  if (inotify_ < 0 || ::inotify_add_watch(inotify_, directory.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ATTRIB) < 0) {
    LogWarning("the configuration's directory cannot be watched; it is looked at every few seconds",
               {{"directory", directory}, {"reason", std::strerror(errno)}});
  }
  thread_ = std::thread([this] { Run(); });
}

ConfigWatcher::~ConfigWatcher() {
  const std::uint64_t one = 1;
  if (::write(wake_, &one, sizeof(one)) < 0) LogError("the configuration watcher could not be woken");
  thread_.join();
  if (inotify_ >= 0) ::close(inotify_);
  ::close(wake_);
}

void ConfigWatcher::Run() {
  while (true) {
    std::array<pollfd, 2> polled{pollfd{wake_, POLLIN, 0}, pollfd{inotify_, POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), static_cast<int>(poll_interval_.count())) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) {
      if (::poll(polled.data(), 1, kSettleMilliseconds) > 0) return;
      Drain(inotify_);
    }
    // Other files of the directory change too: only this one's state counts.
    const FileState now = LookAt(path_);
    if (now == known_) continue;
    known_ = now;
    changed_();
  }
}

}  // namespace tranche::host
