// tranched: one process that serves vendor backends as DRA drivers. Owns and wires the rooms; the parts are in backend_pool.h, config_watcher.h,
// methods.h.
//
// Start: configuration → store → backends → discovery → reconcile → DRA servers → admin socket. A backend that cannot serve is refused alone.
// Destruction: registration goes first, calls in flight end, backends are destroyed; prepared shares stay in force.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "admin/server.h"
#include "claims/claims.h"
#include "dra/server.h"
#include "host/backend_pool.h"
#include "host/config_watcher.h"
#include "host/control_plane.h"
#include "host/host_lock.h"
#include "host/worker.h"
#include "inventory/inventory.h"
#include "store/store.h"

namespace tranche::host {

inline constexpr std::string_view kVersion = "0.1.0";
inline constexpr std::size_t kEventThreads = 8;  // backends that hang at one time and still keep no other waiting

struct Options {
  std::string local;       // directory of local mode; empty: a Kubernetes node
  std::string kubeconfig;  // empty: the service account of the pod
  std::string kubelet_root;
  std::string config, node_name, backend_directory, state_directory, cdi_directory, plugin_directory, registry_directory, runtime_directory;
  std::string runner;  // tranche-runner; empty: the one beside this program
  std::string log_level = "info";
  std::string instance;  // empty, or what tells overlapping hosts apart
  std::chrono::seconds reconcile_interval = std::chrono::minutes(3);
  std::chrono::seconds verify_interval{20};        // between two looks at the limits in force
  std::chrono::milliseconds longest_pause{30000};  // between two starts of a backend's process
  std::chrono::seconds trial{10};                  // of a backend whose library was replaced, until the old one goes
};

struct ConfigurationStatus {
  std::string file, version;  // "sha256:…" of the text in force
  WallTime loaded_at{};
  std::string last_error;  // why the file as it is now was refused; empty when it is in force
  std::optional<WallTime> last_error_at;
};

struct DriverStatus {
  std::string name, service_socket, registration_socket;
  bool configured = true;  // false: kept for shares that are still to be released
  absl::Status problem;
};

struct ReconcileStatus {
  std::optional<WallTime> last_at;
  std::map<std::string, std::int64_t> repairs;  // by what was done, since the start
  absl::Status problem;
};

class Host {
 public:
  // InvalidArgument: the configuration is wrong, with every error. Anything else names what could not be set up. Nothing keeps running after a failure.
  static absl::StatusOr<std::unique_ptr<Host>> Start(Options options);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Looks at the configuration file soon, also when its text was refused before.
  void RequestReload();

  // For the admin methods. Thread-safe.
  const Options& options() const { return options_; }
  WallTime started_at() const { return started_at_; }
  store::Store& store() { return *store_; }
  const BackendPool& pool() const { return *pool_; }
  ControlPlaneStatus control_plane() const { return plane_->status(); }
  const inventory::Inventory& inventory() const { return inventory_; }
  bool Alone() { return lock_->Alone(); }
  ConfigurationStatus configuration() const;
  std::vector<DriverStatus> drivers() const;
  ReconcileStatus reconciliation() const;
  absl::StatusOr<std::vector<claims::Repair>> Reconcile(const std::string& backend);
  std::vector<claims::UnknownShare> UnknownShares() const { return claims_->Unknown(); }
  absl::StatusOr<std::vector<ShareKey>> ReleaseUnknown(const std::string& claim_uid);

 private:
  struct Driver {
    std::unique_ptr<dra::DraServer> server;
    bool configured = true;
    absl::Status problem;
  };
  struct InUse {
    std::set<std::string> backends, drivers;
  };

  explicit Host(Options options);
  absl::Status Initialise();
  absl::Status CheckSockets(const std::set<std::string>& drivers) const;
  std::string AdminSocket() const;
  absl::Status OpenState();
  absl::Status StartServing();

  absl::StatusOr<std::string> ReadConfigurationText() const;
  absl::Status Apply(const std::string& text);
  void Reload(bool again);
  void RecordApplied(const std::string& version);
  void RecordRefused(const std::string& version, const absl::Status& why);
  void AuditConfiguration(const std::string& version, const absl::Status& outcome);

  backend::Events EventsOf(const std::string& backend);
  void Discover(const std::string& backend);
  void TakeUp(const std::vector<std::string>& backends);
  void PostRetry();
  void PostRefresh(std::chrono::milliseconds delay);
  void PostReconcile(const std::string& backend, std::chrono::milliseconds delay, int attempt);
  void PostPeriodicReconcile();
  void PostPeriodicVerification();
  void NoteRepairs(const absl::StatusOr<std::vector<claims::Repair>>& repairs);
  void ReleaseUnused();
  InUse ReadInUse();
  absl::Status UpdateServers(const std::set<std::string>& configured, const std::set<std::string>& in_use);
  absl::StatusOr<std::unique_ptr<dra::DraServer>> StartServer(const std::string& driver);
  void Publish();

  const Options options_;
  const WallTime started_at_ = std::chrono::system_clock::now();
  // Backends' threads post here until their instances are destroyed: first in, last out.
  Worker events_{kEventThreads};  // reconcile and rediscover: waits for no backend's creation, and no backend for another
  Worker changes_;                // configuration, retries, servers
  std::unique_ptr<HostLock> lock_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<ControlPlane> plane_;
  std::unique_ptr<BackendPool> pool_;
  std::unique_ptr<claims::Claims> claims_;
  inventory::Inventory inventory_;
  std::mutex publish_mutex_;
  std::atomic<bool> publishing_ = false;

  mutable std::mutex mutex_;  // what follows
  ConfigurationStatus configuration_status_;
  std::string refused_version_;  // the text that was refused last
  ReconcileStatus reconcile_status_;
  std::map<std::string, Driver> drivers_;

  std::unique_ptr<admin::AdminServer> admin_;
  std::unique_ptr<ConfigWatcher> watcher_;
};

}  // namespace tranche::host
