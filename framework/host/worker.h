// Keyed tasks on one thread, or on a few where one that hangs must not keep the others waiting: posting a key that waits already replaces its task and
// keeps the earlier time, so a burst of events is one run. Tasks of one key never overlap. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tranche::host {

class Worker {
 public:
  explicit Worker(std::size_t most_threads = 1);
  ~Worker();  // Stop
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(const std::string& key, std::function<void()> task, std::chrono::milliseconds delay = std::chrono::milliseconds(0));
  // Waits for the tasks in progress, drops the others; later posts do nothing.
  void Stop();

 private:
  struct Task {
    std::chrono::steady_clock::time_point due;
    std::function<void()> run;
  };
  void Run();
  std::map<std::string, Task>::iterator Earliest();

  const std::size_t most_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Task> tasks_;
  std::set<std::string> running_;
  bool stopping_ = false;
  std::size_t free_ = 1;  // threads without a task
  std::vector<std::thread> threads_;
};

}  // namespace tranche::host
