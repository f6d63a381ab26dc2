// The configured backends of a host and what became of each: serving, refused with its reason (and tried again with back-off), or retained: no
// longer configured, or not with this configuration, but loaded as long as shares need it to be released.
//
// What a backend was last created with is kept in DIR/<name>.json, so that its shares can be released after a restart with another configuration.
//
// Thread-safe for readers; Configure, Retry and ReleaseUnused are called by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "backend/backend.h"
#include "backend/loader.h"
#include "base/clock.h"
#include "config/config.h"

namespace tranche::host {

enum class BackendState { kServing, kRefused, kRetained };
std::string_view BackendStateName(BackendState state);  // serving | refused | retained

struct BackendStatus {
  std::string name, library, version;
  BackendState state = BackendState::kRefused;
  bool configured = true;
  config::Isolation requested_isolation = config::Isolation::kProcess;
  absl::Status problem;                 // why it is refused or retained, or what its last discovery said
  std::optional<WallTime> retry_at;
  std::vector<PhysicalDevice> devices;  // of its last discovery
  backend::CallTimes prepare;
};

class BackendPool {
 public:
  struct Options {
    std::string backend_directory;
    std::string runtime_directory;      // one sub-directory a backend
    std::string saved_directory;
    std::function<backend::Events(const std::string& name)> events;
  };
  explicit BackendPool(Options options);

  // Brings the pool to `backends`. An instance whose library and configuration did not change is kept. A new backend that fails is refused alone; a
  // serving one whose changed configuration fails is an error, and nothing has changed. Backends in `in_use` that are not configured
  // any more are retained. Returns the names that have a new instance.
  absl::StatusOr<std::vector<std::string>> Configure(const std::vector<config::BackendConfiguration>& backends, const std::set<std::string>& in_use);
  // Tries those again whose time has come: the names that serve now.
  std::vector<std::string> Retry();
  // Time until Retry has something to do.
  std::optional<std::chrono::milliseconds> UntilRetry() const;
  // Lets go of retained backends that no share needs.
  void ReleaseUnused(const std::set<std::string>& in_use);
  bool HasRetained() const;

  // NotFound for a name that does not serve.
  absl::StatusOr<std::vector<PhysicalDevice>> Discover(const std::string& name, Deadline deadline);
  // Serving and retained ones; nullptr otherwise.
  std::shared_ptr<backend::Backend> Find(const std::string& name) const;
  std::vector<std::string> Serving() const;
  std::vector<BackendStatus> Statuses() const;

 private:
  struct Entry {
    config::BackendConfiguration configuration;   // what is wanted, or was for a retained one
    BackendState state = BackendState::kRefused;
    bool configured = true;
    std::shared_ptr<backend::Backend> instance;
    std::string version;
    absl::Status problem;
    int failures = 0;
    Deadline retry_at{};
    std::vector<PhysicalDevice> devices;
  };
  struct Created {
    std::shared_ptr<backend::Backend> instance;
    std::string version;
  };

  absl::StatusOr<Created> Create(const config::BackendConfiguration& configuration);
  absl::StatusOr<Entry> Next(const config::BackendConfiguration& configuration, bool in_use);
  std::optional<Entry> Known(const std::string& name) const;
  Entry Restore(const std::string& name, const absl::Status& why);
  Entry Refused(const config::BackendConfiguration& configuration, const absl::Status& why, int failures);
  void Save(const config::BackendConfiguration& configuration) const;
  std::string SavedPath(const std::string& name) const { return options_.saved_directory + "/" + name + ".json"; }

  const Options options_;
  backend::Loader loader_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace tranche::host
