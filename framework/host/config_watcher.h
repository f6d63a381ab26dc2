// Tells when a file may have changed: inotify on its directory (editors and Kubernetes replace files and links), and a look at its state every few
// seconds where inotify says nothing (network file systems). Spurious calls are possible: the reader compares content.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace tranche::host {

class ConfigWatcher {
 public:
  // `changed` is called from the watcher's thread.
  ConfigWatcher(std::string path, std::chrono::milliseconds poll_interval, std::function<void()> changed);
  ~ConfigWatcher();
  ConfigWatcher(const ConfigWatcher&) = delete;
  ConfigWatcher& operator=(const ConfigWatcher&) = delete;

 private:
  void Run();

  const std::string path_;
  const std::chrono::milliseconds poll_interval_;
  const std::function<void()> changed_;
  int inotify_ = -1;
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace tranche::host
