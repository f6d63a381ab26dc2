// One backend instance as the rest of the host sees it, whatever hosts it: this process (in_process.h) or one of its own (runner_backend.h).
// Every call is safe from any thread: the host serialises them per instance unless the backend declared CONCURRENT.
// No call throws; a backend's bad answer is an error of that item or call, named after the backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"
#include "model/share.h"

namespace tranche::backend {

struct PrepareItem {
  ShareKey key;
  std::string physical;
  Mode mode = Mode::kShare;
  Quantities consumed;        // the claim's own figures, already checked by the host
  std::string state;          // what the backend returned last time, "" at first
  std::string configuration;  // merged class and claim parameters, a JSON object
  std::string policy_version;
  std::string claim_namespace, claim_name;
  std::vector<std::string> pod_uids;
  int result_index = 0;  // position among the claim's results of this driver
};

struct PrepareOutcome {
  ShareKey key;
  absl::Status status;
  std::optional<AppliedShare> share;  // set exactly when status is OK
};

struct UnprepareItem {
  ShareKey key;
  std::string state;
};

struct UnprepareOutcome {
  ShareKey key;
  absl::Status status;
};

// Events from a backend's own threads. Callbacks return quickly and do not call the backend back.
struct Events {
  std::function<void()> devices_changed;
  std::function<void(const ShareKey&)> share_lost;      // something applied vanished: reconcile
  std::function<void(const std::string& json)> health;  // report_health payload
  // Of a backend in a process of its own: why it does not answer, then OK once it does again; devices and shares want a look then.
  std::function<void(const absl::Status&)> availability;
};

// Of a backend in a process of its own.
struct ProcessStatus {
  int pid = 0;          // 0 while none runs
  std::string version;  // what the library says of itself
  std::int64_t restarts = 0;
  std::vector<int> stuck;  // processes that survive SIGKILL; never used again
  bool is_greedy = false;  // took more CPU time than its calls are worth: runs only when nobody else wants to
};

// How often the backend's own prepare was called, and the time spent inside it: without the host's checks of what goes in and comes out.
struct CallTimes {
  std::uint64_t calls = 0;
  std::chrono::microseconds total{};
  friend bool operator==(const CallTimes&, const CallTimes&) = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;  // as configured
  virtual absl::StatusOr<std::vector<PhysicalDevice>> Discover(Deadline deadline) = 0;
  // One outcome per item, in the order of items. Idempotent by key.
  virtual std::vector<PrepareOutcome> Prepare(const std::vector<PrepareItem>& items, Deadline deadline) = 0;
  virtual std::vector<UnprepareOutcome> Unprepare(const std::vector<UnprepareItem>& items, Deadline deadline) = 0;
  // What the kernel or hardware has now, orphans of ours included.
  virtual absl::StatusOr<std::vector<AppliedShare>> ListPrepared(Deadline deadline) = 0;
  virtual CallTimes PrepareTimes() const { return {}; }                       // since it was created
  virtual std::map<std::string, std::int64_t> Metrics() const { return {}; }  // what it recorded with record_metric: the last values
  // Not OK while calls are refused (Unavailable) because its process ended or hangs: what is known of its devices is of before.
  virtual absl::Status Availability() const { return absl::OkStatus(); }
  virtual std::optional<ProcessStatus> Process() const { return std::nullopt; }  // nullopt: in this process
  virtual absl::StatusOr<AppliedShare> Verify(const ShareKey& key, const std::string& state, Deadline deadline) = 0;
};

// What an operator allows a backend's container edits to contain (`allowEdits`). Edits are root on the node: everything that
// is not listed is refused. Prefixes end at a path separator.
struct EditAllowList {
  std::vector<std::string> device_nodes, mounts, hooks, env;  // path prefixes; env: variable-name prefixes
  bool net_devices = false;
  friend bool operator==(const EditAllowList&, const EditAllowList&) = default;
};
// PermissionDenied naming the edit and the configuration key that would allow it.
absl::Status CheckEdits(const ContainerEdits& edits, const EditAllowList& allowed);

}  // namespace tranche::backend
