#include "backend/library_copy.h"

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"

namespace tranche::backend {
namespace {

constexpr int kAttempts = 10;

bool HasContent(int fd, const std::string& sha256) {
  const absl::StatusOr<std::string> content = ReadFile(absl::StrCat("/proc/self/fd/", fd), kMaxLibraryBytes);
  return content.ok() && Sha256Hex(*content) == sha256;
}

// The file, locked, if it is still the one under that name: another host may just remove it. One that a power failure cut short is removed. -1 otherwise.
int OpenLocked(const std::string& path, const std::string& sha256) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  struct stat held {};
  struct stat named {};
  const bool same = ::flock(fd, LOCK_SH | LOCK_NB) == 0 && ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
                    held.st_dev == named.st_dev;
  if (same && HasContent(fd, sha256)) return fd;
  if (same) ::unlink(path.c_str());
  ::close(fd);
  return -1;
}

void RemoveUnheld(const std::string& directory, const std::string& prefix, const std::string& keep) {
  const absl::StatusOr<std::vector<std::string>> files = ListDirectory(directory);
  if (!files.ok()) return;
  for (const std::string& file : *files) {
    if (!file.starts_with(prefix) || file == keep) continue;
    const std::string path = absl::StrCat(directory, "/", file);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace

absl::StatusOr<LibraryCopy> LibraryCopy::Make(const CheckedLibrary& library, const std::string& directory) {
  TRANCHE_RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  const std::string prefix = absl::StrCat(library.manifest.name, "-");
  const std::string name = absl::StrCat(prefix, library.manifest.sha256, ".so");
  const std::string path = absl::StrCat(directory, "/", name);
  int fd = -1;
  for (int attempt = 0; attempt < kAttempts && fd < 0; ++attempt) {
    fd = OpenLocked(path, library.manifest.sha256);
    if (fd >= 0) break;
    TRANCHE_ASSIGN_OR_RETURN(const std::string content, ReadFile(library.path, kMaxLibraryBytes));
    if (Sha256Hex(content) != library.manifest.sha256) {
      return absl::FailedPreconditionError(
          absl::StrCat("backend ", library.manifest.name, ": ", library.path, " was replaced while it was read; it is read again soon"));
    }
    TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(path, content, 0500, Durability::kVisible));
    fd = OpenLocked(path, library.manifest.sha256);
  }
  if (fd < 0)
    return absl::UnavailableError(absl::StrCat("backend ", library.manifest.name, ": ", path, " cannot be opened and locked: ", std::strerror(errno)));
  RemoveUnheld(directory, prefix, name);
  return LibraryCopy(path, fd);
}

LibraryCopy::LibraryCopy(LibraryCopy&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

LibraryCopy& LibraryCopy::operator=(LibraryCopy&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

LibraryCopy::~LibraryCopy() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tranche::backend
