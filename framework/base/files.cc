#include "base/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "base/fault.h"
#include "base/status.h"

namespace tranche {

namespace {
absl::Status SystemError(int error, std::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", std::string(what), " ", path));
}

// Closes a file descriptor on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

int Open(const std::string& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do { fd = open(path.c_str(), flags | O_CLOEXEC, mode); } while (fd < 0 && errno == EINTR);
  return fd;
}

absl::Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(errno, "write", path);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

std::string DirectoryOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string TemporaryName(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  return absl::StrCat(DirectoryOf(path), "/.", name, ".", getpid(), ".", counter.fetch_add(1, std::memory_order_relaxed));
}

absl::Status SyncDirectory(const std::string& directory) {
  const Descriptor descriptor(Open(directory, O_RDONLY | O_DIRECTORY));
  if (descriptor.get() < 0) return SystemError(errno, "open directory", directory);
  if (fsync(descriptor.get()) != 0) return SystemError(errno, "flush directory", directory);
  return absl::OkStatus();
}

absl::Status WriteTemporary(const std::string& temporary, std::string_view content, mode_t mode, Durability durability) {
  const Descriptor descriptor(Open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (descriptor.get() < 0) return SystemError(errno, "create", temporary);
  TRANCHE_RETURN_IF_ERROR(WriteAll(descriptor.get(), content, temporary));
  if (fchmod(descriptor.get(), mode) != 0) return SystemError(errno, "set the mode of", temporary);
  if (durability == Durability::kDurable && fsync(descriptor.get()) != 0) return SystemError(errno, "flush", temporary);
  return absl::OkStatus();
}

absl::Status PutInPlace(const std::string& temporary, const std::string& path) {
  TRANCHE_RETURN_IF_ERROR(TRANCHE_FAULT_STATUS("files.before_rename"));
  if (rename(temporary.c_str(), path.c_str()) != 0) return SystemError(errno, "rename a temporary file over", path);
  return absl::OkStatus();
}
}  // namespace

absl::Status WriteFileAtomically(const std::string& path, std::string_view content, mode_t mode, Durability durability) {
  const std::string temporary = TemporaryName(path);
  absl::Status status = WriteTemporary(temporary, content, mode, durability);
  if (status.ok()) status = PutInPlace(temporary, path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  if (durability == Durability::kVisible) return absl::OkStatus();
  return SyncDirectory(DirectoryOf(path));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t max_bytes) {
  const Descriptor descriptor(Open(path, O_RDONLY));
  if (descriptor.get() < 0) return SystemError(errno, "open", path);
  std::string content;
  char buffer[16384];
  while (true) {
    const ssize_t got = read(descriptor.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(errno, "read", path);
    if (got == 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
    if (content.size() > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("file ", path, " is larger than the ", max_bytes, " bytes that are read of it"));
    }
  }
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return SystemError(errno, "remove", path);
}

absl::Status MakeDirectories(const std::string& path, mode_t mode) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!part.empty() && mkdir(part.c_str(), mode) != 0 && errno != EEXIST) return SystemError(errno, "create directory", part);
    if (end == std::string::npos) break;
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return SystemError(errno, "inspect", path);
  if (!S_ISDIR(info.st_mode)) return absl::FailedPreconditionError(absl::StrCat("cannot create directory ", path, ": a file is in its place"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  const std::filesystem::directory_iterator end;
  while (!error && entry != end) {
    names.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  if (error) return SystemError(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  const int fd = Open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0) return SystemError(errno, "open lock file", path);
  FileLock lock(fd);
  int result = 0;
  do { result = flock(fd, LOCK_EX); } while (result != 0 && errno == EINTR);
  if (result != 0) return SystemError(errno, "lock", path);
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);  // the last close of the description releases the lock
}

}  // namespace tranche
