// A fixed number of threads over a bounded queue: where gRPC calls do their work, because gRPC's own callback threads must never block and
// a thread for each call would cost about 11 MiB at 64 calls in flight. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tranche::dra {

class BoundedExecutor {
 public:
  BoundedExecutor(std::size_t threads, std::size_t queue_capacity);
  // Runs what was accepted, then joins.
  ~BoundedExecutor();
  BoundedExecutor(const BoundedExecutor&) = delete;
  BoundedExecutor& operator=(const BoundedExecutor&) = delete;

  // False when the queue is full; `work` then was not and will not be run. Never blocks for longer than the queue's lock.
  [[nodiscard]] bool TrySubmit(std::function<void()> work);

 private:
  void RunWorker();

  const std::size_t queue_capacity_;
  std::mutex mutex_;
  std::condition_variable work_available_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tranche::dra
