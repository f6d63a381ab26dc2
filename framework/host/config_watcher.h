// Tells when a file may have changed: inotify on its directory (editors and Kubernetes replace files and links), and a look at its state every few
// seconds where inotify says nothing (network file systems). Spurious calls are possible: the reader compares content.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tranche::host {

class ConfigWatcher {
 public:
  struct FileState {
    bool present = false;
    ino_t inode = 0;
    off_t size = 0;
    std::int64_t seconds = 0, nanoseconds = 0;  // of its last modification
    friend bool operator==(const FileState&, const FileState&) = default;
  };

  // A change from now on is told, also one before the watcher's thread runs. `changed` is called from the watcher's thread.
  ConfigWatcher(std::string path, std::chrono::milliseconds poll_interval, std::function<void()> changed);
  ~ConfigWatcher();
  ConfigWatcher(const ConfigWatcher&) = delete;
  ConfigWatcher& operator=(const ConfigWatcher&) = delete;

 private:
  void Run();

  const std::string path_;
  const std::chrono::milliseconds poll_interval_;
  const std::function<void()> changed_;
  FileState known_;  // the watcher's thread's
  int inotify_ = -1;
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace tranche::host
