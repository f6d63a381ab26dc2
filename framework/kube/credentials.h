// The current Access of a client: read from a kubeconfig or from the service account of this pod, and read again when the files change.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <sys/stat.h>

#include "kube/access.h"
#include "kube/client.h"

namespace tranche::kube {

// Thread-safe. Where a changed file cannot be used, what was read before stays in force and a warning is logged once.
class Credentials {
 public:
  // How often Current() looks whether files changed.
  static constexpr std::chrono::seconds kCheckInterval{2};

  static absl::StatusOr<std::unique_ptr<Credentials>> Load(const ClientOptions& options);

  std::shared_ptr<const Access> Current();
  // Reads every file now (the server refused what we have).
  std::shared_ptr<const Access> Reload();

 private:
  struct Stamp {
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    timespec changed{};
    bool operator==(const Stamp& other) const;
  };

  explicit Credentials(const ClientOptions& options) : options_(options) {}
  static Stamp Look(const std::string& path);
  absl::StatusOr<AccessSource> ReadSource() const;
  absl::StatusOr<Access> ReadFiles(const AccessSource& source) const;
  absl::Status ReadAll();
  bool FilesChanged() const;
  void ReadAgain();

  const ClientOptions options_;
  std::mutex mutex_;
  std::shared_ptr<const Access> access_;
  std::vector<Stamp> stamps_;  // of the files that access_ was read from
  std::chrono::steady_clock::time_point checked_;
  std::string last_warning_;
};

}  // namespace tranche::kube
