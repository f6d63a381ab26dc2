// A copy of a library under a name that says what is in it: NAME-SHA256.so. What a runner opens never changes under it, whatever becomes of the
// original; the same content is one file. Held by a shared lock; what nobody holds is removed when the next one of that name is made.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "backend/loader.h"

namespace tranche::backend {

class LibraryCopy {
 public:
  // FailedPrecondition when the file is not what the manifest states: it was replaced in the meantime.
  static absl::StatusOr<LibraryCopy> Make(const CheckedLibrary& library, const std::string& directory);
  LibraryCopy(LibraryCopy&& other) noexcept;
  LibraryCopy& operator=(LibraryCopy&& other) noexcept;
  ~LibraryCopy();
  const std::string& path() const { return path_; }

 private:
  LibraryCopy(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

}  // namespace tranche::backend
