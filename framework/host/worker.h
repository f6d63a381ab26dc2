// One thread with keyed tasks: posting a key that waits already replaces its task and keeps the earlier time, so a burst of events is one
// run. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace tranche::host {

class Worker {
 public:
  Worker();
  ~Worker();  // Stop
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(const std::string& key, std::function<void()> task, std::chrono::milliseconds delay = std::chrono::milliseconds(0));
  // Waits for the task in progress, drops the others; later posts do nothing.
  void Stop();

 private:
  struct Task {
    std::chrono::steady_clock::time_point due;
    std::function<void()> run;
  };
  void Run();
  std::map<std::string, Task>::iterator Earliest();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tranche::host
