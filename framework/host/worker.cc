#include "host/worker.h"

#include <utility>

namespace tranche::host {

Worker::Worker(std::size_t most_threads) : most_threads_(most_threads) {
  const std::lock_guard lock(mutex_);
  threads_.emplace_back([this] { Run(); });
}

Worker::~Worker() { Stop(); }

void Worker::Post(const std::string& key, std::function<void()> task, std::chrono::milliseconds delay) {
  const auto due = std::chrono::steady_clock::now() + delay;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const auto [waiting, fresh] = tasks_.try_emplace(key, Task{due, nullptr});
    waiting->second.due = std::min(waiting->second.due, due);
    waiting->second.run = std::move(task);
  }
  changed_.notify_all();
}

void Worker::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// Of those whose key is not at work.
std::map<std::string, Worker::Task>::iterator Worker::Earliest() {
  auto earliest = tasks_.end();
  for (auto task = tasks_.begin(); task != tasks_.end(); ++task) {
    const bool sooner = earliest == tasks_.end() || task->second.due < earliest->second.due;
    if (sooner && !running_.contains(task->first)) earliest = task;
  }
  return earliest;
}

void Worker::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next = Earliest();
    if (next == tasks_.end()) {
      changed_.wait(lock);
      continue;
    }
    if (const auto due = next->second.due; due > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, due);
      continue;
    }
    const std::string key = next->first;
    const std::function<void()> run = std::move(next->second.run);
    tasks_.erase(next);
    running_.insert(key);
    // One more to wait for what comes meanwhile.
    if (--free_ == 0 && threads_.size() < most_threads_) {
      ++free_;
      threads_.emplace_back([this] { Run(); });
    }
    lock.unlock();
    run();
    lock.lock();
    ++free_;
    running_.erase(key);
    changed_.notify_all();
  }
}

}  // namespace tranche::host
