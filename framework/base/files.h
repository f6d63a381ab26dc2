// Durable and atomic file operations. Every function names the path in its error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche {

enum class Durability {
  kVisible,  // renamed into place: readers see old or new, never part. For tmpfs and files rebuilt from the store.
  kDurable,  // fsync of the file and of its directory as well
};

// Writes a temporary file (name starts with '.') in the same directory and renames it over `path`.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content, mode_t mode, Durability durability);
// ResourceExhausted when larger than max_bytes, NotFound when absent.
absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t max_bytes);
// Absent is success.
absl::Status RemoveFile(const std::string& path);
// Like mkdir -p; existing directories keep their mode.
absl::Status MakeDirectories(const std::string& path, mode_t mode);
// Names in a directory, sorted, without "." and "..". NotFound when absent.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// An exclusive flock(2) on `path` (created 0600), held until destruction. Blocks.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Acquire(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace tranche
