#include "proof/netns.h"

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "base/status.h"

namespace tranche::proof {

absl::StatusOr<NamespaceFile> NamespaceFile::Open(const std::string& network_namespace) {
  if (network_namespace.empty()) return NamespaceFile(-1);
  const bool is_path = network_namespace.find('/') != std::string::npos;
  const std::string path = is_path ? network_namespace : absl::StrCat("/run/netns/", network_namespace);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return NamespaceFile(fd);
  const int error = errno;
  const std::string message = absl::StrCat("cannot open the network namespace ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

NamespaceFile::NamespaceFile(NamespaceFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

NamespaceFile& NamespaceFile::operator=(NamespaceFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

NamespaceFile::~NamespaceFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RunInNamespace(const std::string& network_namespace, const std::function<absl::Status()>& work) {
  TRANCHE_ASSIGN_OR_RETURN(const NamespaceFile file, NamespaceFile::Open(network_namespace));
  absl::Status status;
  std::thread thread([&] {
    if (file.fd() >= 0 && setns(file.fd(), CLONE_NEWNET) != 0) {
      status = absl::PermissionDeniedError(absl::StrCat("cannot enter the network namespace ", network_namespace, ": ", std::strerror(errno), "; run as root"));
      return;
    }
    status = work();
  });
  thread.join();
  return status;
}

}  // namespace tranche::proof
