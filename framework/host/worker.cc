#include "host/worker.h"

#include <algorithm>
#include <utility>

namespace tranche::host {

Worker::Worker() : thread_([this] { Run(); }) {}

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
  changed_.notify_one();
}

void Worker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::map<std::string, Worker::Task>::iterator Worker::Earliest() {
  return std::min_element(tasks_.begin(), tasks_.end(), [](const auto& left, const auto& right) { return left.second.due < right.second.due; });
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
    const std::function<void()> run = std::move(next->second.run);
    tasks_.erase(next);
    lock.unlock();
    run();
    lock.lock();
  }
}

}  // namespace tranche::host
