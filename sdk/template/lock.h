// One process at a time at the hardware: while a new version of this library or a new host takes over, two of them serve the same devices. The lock is
// a file in the runtime directory, which they share; it ends with the process that holds it, however that ends.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <tranche/backend.hpp>

namespace fake_accelerator {

class Lock {
 public:
  // Waits until the lock is free. Throws DEADLINE_EXCEEDED when the call's time is over before, UNAVAILABLE when `file` cannot be locked.
  Lock(const std::string& file, const tranche::sdk::Call& call) : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    while (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const bool held = fd_ >= 0 && (error == EWOULDBLOCK || error == EINTR);
      if (held && !call.Cancelled()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      if (fd_ >= 0) ::close(fd_);  // no destructor runs for what was not constructed
      if (held) throw tranche::sdk::Error(TRANCHE_DEADLINE_EXCEEDED, "another process holds " + file + " for longer than this call may take");
      throw tranche::sdk::Error(TRANCHE_UNAVAILABLE, file + " cannot be locked: " + std::strerror(error));
    }
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int fd_;
};

}  // namespace fake_accelerator
