// The client on an engine; tests make it with times of their own. Internal to the room.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kube/answer.h"
#include "kube/client.h"
#include "kube/credentials.h"
#include "kube/engine.h"
#include "kube/watch.h"

namespace tranche::kube {

// What watches need beyond the life of their client.
struct Core {
  std::unique_ptr<Credentials> credentials;
  Engine engine;
};

struct RetryTimes {
  std::chrono::milliseconds first_wait{50}, longest_wait{5'000};
};

class ClientImpl : public Client {
 public:
  ClientImpl(const ClientOptions& options, std::unique_ptr<Credentials> credentials, const RetryTimes& retry_times = {}, const WatchTimes& watch_times = {});
  ~ClientImpl() override;

  absl::StatusOr<boost::json::object> Get(const std::string& path, Deadline deadline) override;
  absl::StatusOr<std::vector<boost::json::object>> List(const std::string& path, Deadline deadline) override;
  absl::StatusOr<boost::json::object> Create(const std::string& path, const boost::json::object& object, Deadline deadline) override;
  absl::StatusOr<boost::json::object> Replace(const std::string& path, const boost::json::object& object, Deadline deadline) override;
  absl::StatusOr<boost::json::object> Patch(const std::string& path, PatchKind kind, const boost::json::value& patch, Deadline deadline) override;
  absl::Status Delete(const std::string& path, const Preconditions& preconditions, Deadline deadline) override;
  std::unique_ptr<kube::Watch> Watch(const std::string& path, WatchHandler handler) override;
  absl::StatusOr<ServerVersion> Version(Deadline deadline) override;

 private:
  class Slot;

  // The body of a 2xx answer.
  absl::StatusOr<std::string> Call(HttpRequest request, Deadline deadline);
  absl::StatusOr<boost::json::object> CallForObject(HttpRequest request, Deadline deadline);
  // Also waits for one of max_in_flight places.
  absl::StatusOr<HttpAnswer> Exchange(HttpRequest request, Deadline deadline);
  // False: the client is being destroyed, or the deadline comes first.
  bool Wait(std::chrono::milliseconds duration, Deadline deadline);

  const ClientOptions options_;
  const RetryTimes retry_times_;
  const WatchTimes watch_times_;
  const std::shared_ptr<Core> core_;

  std::mutex mutex_;
  std::condition_variable slot_freed_, closing_changed_, calls_changed_;
  int in_flight_ = 0;     // guarded by mutex_
  int calls_ = 0;         // guarded by mutex_: callers inside
  bool closing_ = false;  // guarded by mutex_
};

}  // namespace tranche::kube
