// The configured backends of a host and what became of each: serving, refused with its reason (and tried again with back-off), or retained: no
// longer configured, or not with this configuration, but loaded as long as shares need it to be released.
//
// A backend in a process of its own whose library file changes is replaced under its live shares: the new one must create, discover and list every
// share that the old one lists; then it serves, and the old one stays at hand, uncalled, for a trial. A new one that fails or ends in that time is
// rolled back, and the reason stays in Statuses() until the file changes again.
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
#include "backend/in_process.h"
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
  std::optional<backend::ProcessStatus> process;  // of a backend in a process of its own
  absl::Status available;                         // not OK while its process is not there: its devices are unknown
  absl::Status problem;                           // why it is refused, retained, not available or not replaced, or what its last discovery said
  std::optional<WallTime> retry_at;
  PhysicalDevices devices = std::make_shared<const std::vector<PhysicalDevice>>();  // of its last discovery
  backend::CallTimes prepare;
  std::map<std::string, std::int64_t> metrics = {};  // what the backend recorded itself
};

class BackendPool {
 public:
  struct Options {
    std::string backend_directory;
    std::string runtime_directory;  // one sub-directory a backend
    std::string saved_directory;
    std::function<backend::Events(const std::string& name)> events;
    std::string runner;                              // tranche-runner; empty: no backend can have a process of its own
    std::chrono::milliseconds trial{10000};          // of a replaced backend
    std::chrono::milliseconds longest_pause{30000};  // between two starts of a backend's process
  };
  explicit BackendPool(Options options);

  // Brings the pool to `backends`. An instance whose library and configuration did not change is kept. A new backend that fails is refused alone; a
  // serving one whose changed configuration fails is an error, and nothing has changed. Backends in `in_use` that are not configured
  // any more are retained. Returns the names that have a new instance.
  absl::StatusOr<std::vector<std::string>> Configure(const std::vector<config::BackendConfiguration>& backends, const std::set<std::string>& in_use);
  // Tries those again whose time has come: the names that serve now.
  std::vector<std::string> Retry();
  // Looks whether library files have changed, and after backends on trial. The names that have another instance now.
  std::vector<std::string> Refresh();
  bool OnTrial() const;
  // Time until Retry has something to do.
  std::optional<std::chrono::milliseconds> UntilRetry() const;
  // Lets go of retained backends that no share needs.
  void ReleaseUnused(const std::set<std::string>& in_use);
  bool HasRetained() const;

  // NotFound for a name that does not serve.
  absl::StatusOr<PhysicalDevices> Discover(const std::string& name, Deadline deadline);
  // Not OK: why this backend's devices are not known to be well.
  absl::Status Availability(const std::string& name) const;
  // Serving and retained ones; nullptr otherwise.
  std::shared_ptr<backend::Backend> Find(const std::string& name) const;
  std::vector<std::string> Serving() const;
  std::vector<BackendStatus> Statuses() const;

 private:
  struct Created {
    std::shared_ptr<backend::Backend> instance;
    std::string version;
    std::string sha256, files;  // of a process: what it loaded, and how its files looked then
  };
  struct Entry {
    config::BackendConfiguration configuration;  // what is wanted, or was for a retained one
    BackendState state = BackendState::kRefused;
    bool configured = true;
    Created created;
    absl::Status problem;
    int failures = 0;
    Deadline retry_at{};
    PhysicalDevices devices = std::make_shared<const std::vector<PhysicalDevice>>();
    Created previous;  // while its successor is on trial
    Deadline trial_until{};
    std::string refused_files;  // how the files looked that were not taken over
    absl::Status not_replaced;  // and why
  };

  absl::StatusOr<Created> Create(const config::BackendConfiguration& configuration);
  absl::StatusOr<Created> CreateInProcess(const config::BackendConfiguration& configuration, const backend::CreateOptions& options);
  absl::StatusOr<Created> CreateProcess(const config::BackendConfiguration& configuration, const backend::CreateOptions& options);
  absl::StatusOr<Created> Successor(const Entry& entry);
  bool Replace(const std::string& name, const Entry& entry, const std::string& files);
  bool EndTrial(const std::string& name, const Entry& entry);
  std::string LookOfFiles(const std::string& library) const;
  std::string CopiesDirectory() const;
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
