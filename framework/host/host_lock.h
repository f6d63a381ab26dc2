// Which hosts work on one state directory: each holds a shared flock(2) on a file there, and whoever can make it exclusive for a moment is alone.
// A host that starts waits until that moment is over, so "alone" stays true for as long as a scope says so. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <absl/status/statusor.h>

namespace tranche::host {

class HostLock {
 public:
  // Takes the shared lock; waits for another host's scope.
  static absl::StatusOr<std::unique_ptr<HostLock>> Acquire(const std::string& path);
  ~HostLock();
  HostLock(const HostLock&) = delete;
  HostLock& operator=(const HostLock&) = delete;

  class Scope {
   public:
    explicit Scope(HostLock& lock) : lock_(lock) { lock_.Enter(); }
    ~Scope() { lock_.Leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HostLock& lock_;
  };

  // Whether no other host holds the lock: lasting inside a Scope, a look otherwise.
  bool Alone();

 private:
  HostLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void Enter();
  void Leave();

  const std::string path_;
  const int fd_;
  std::mutex mutex_;
  int scopes_ = 0;
  bool exclusive_ = false;
};

}  // namespace tranche::host
