// Waits between tries: doubling from `first` to `most`, each shortened at random by up to a half so that many nodes do not come at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace tranche::kube {

// Not thread-safe.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most) : first_(first), most_(most), next_(first), random_(std::random_device{}()) {}

  std::chrono::milliseconds Next() {
    const std::chrono::milliseconds full = next_;
    next_ = std::min(most_, 2 * next_);
    return std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(full.count() / 2, full.count())(random_));
  }
  void Reset() { next_ = first_; }

 private:
  std::chrono::milliseconds first_, most_, next_;
  std::minstd_rand random_;
};

}  // namespace tranche::kube
