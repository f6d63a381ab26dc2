#include "host/host_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

// flock(2) changes a lock by giving it up first: two hosts that try at once could each see the other's gap. Changes to or from nothing
// happen under this second lock.
std::string GatePath(const std::string& path) { return path + ".gate"; }

bool Flock(int fd, int operation) {
  while (::flock(fd, operation) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostLock>> HostLock::Acquire(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::UnavailableError(Cat("opening ", path, ": ", std::strerror(errno)));
  std::unique_ptr<HostLock> lock(new HostLock(path, fd));
  TRANCHE_ASSIGN_OR_RETURN(const FileLock gate, FileLock::Acquire(GatePath(path)));
  if (!Flock(fd, LOCK_SH)) return absl::UnavailableError(Cat("locking ", path, ": ", std::strerror(errno)));
  return lock;
}

HostLock::~HostLock() { ::close(fd_); }

bool HostLock::Alone() {
  const Scope scope(*this);
  const std::lock_guard lock(mutex_);
  return exclusive_;
}

void HostLock::Enter() {
  const std::lock_guard lock(mutex_);
  if (scopes_++ > 0) return;
  const absl::StatusOr<FileLock> gate = FileLock::Acquire(GatePath(path_));
  if (!gate.ok()) {
    LogWarning("whether other hosts work on this state is not known; assuming that some do", {{"reason", std::string(gate.status().message())}});
    return;
  }
  exclusive_ = Flock(fd_, LOCK_EX | LOCK_NB);
  if (!exclusive_) Flock(fd_, LOCK_SH);
}

void HostLock::Leave() {
  const std::lock_guard lock(mutex_);
  if (--scopes_ > 0 || !exclusive_) return;
  exclusive_ = false;
  Flock(fd_, LOCK_SH);
}

}  // namespace tranche::host
