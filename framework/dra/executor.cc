#include "dra/executor.h"

#include <utility>

namespace tranche::dra {

BoundedExecutor::BoundedExecutor(std::size_t threads, std::size_t queue_capacity) : queue_capacity_(queue_capacity) {
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { RunWorker(); });
}

BoundedExecutor::~BoundedExecutor() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool BoundedExecutor::TrySubmit(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || queue_.size() >= queue_capacity_) return false;
    queue_.push_back(std::move(work));
  }
  work_available_.notify_one();
  return true;
}

void BoundedExecutor::RunWorker() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      work_available_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace tranche::dra
