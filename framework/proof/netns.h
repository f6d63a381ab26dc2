// Network namespaces by name or path. A namespace is "" (the caller's own), a name under /run/netns, or a path such as
// /proc/4711/ns/net. Nothing here creates one.
#pragma once

#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche::proof {

// An open namespace file; closed on destruction. Invalid for "".
class NamespaceFile {
 public:
  // NotFound names the path that is absent.
  static absl::StatusOr<NamespaceFile> Open(const std::string& network_namespace);
  NamespaceFile(NamespaceFile&& other) noexcept;
  NamespaceFile& operator=(NamespaceFile&& other) noexcept;
  ~NamespaceFile();
  int fd() const { return fd_; }  // -1: the caller's own namespace

 private:
  explicit NamespaceFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Runs `work` in a thread of its own that has entered the namespace, and waits for it. Sockets opened there stay in that namespace
// wherever they are used later; the calling thread's namespace never changes.
absl::Status RunInNamespace(const std::string& network_namespace, const std::function<absl::Status()>& work);

}  // namespace tranche::proof
