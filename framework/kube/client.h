// A Kubernetes API client: REST with JSON over HTTP/2 and TLS (libcurl), and watches that stay current by themselves.
//
//   TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<kube::Client> client, kube::Client::Create({.kubeconfig = path}));
//   TRANCHE_ASSIGN_OR_RETURN(boost::json::object claim, client->Get("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/one", DeadlineIn(5s)));
//
// Calls run in parallel over kept connections; their number in flight is bounded, their rate is not. Each call is retried inside its deadline where
// that is safe: connection failures and GOAWAY before an answer, 429 and 503 with Retry-After, 500/502/504 for GET, one 401 after the token was read
// again. Credentials (in-cluster token and CA, kubeconfig files, client certificates) are re-read when their files change. Thread-safe.
//
// Errors: NotFound 404, AlreadyExists 409 with that reason, Aborted any other 409, OutOfRange 410, InvalidArgument 400 and 422, PermissionDenied 403,
// Unauthenticated 401, ResourceExhausted 429, Unavailable 5xx and no connection, DeadlineExceeded. A message names method, path and what the server said.
// An answer larger than kMaxResponseBytes or that is not JSON is an error of that call.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "base/clock.h"

namespace tranche::kube {

inline constexpr std::size_t kMaxResponseBytes = 64U << 20;   // of one answer
inline constexpr std::size_t kMaxWatchEventBytes = 8U << 20;  // of one event

struct ClientOptions {
  std::string kubeconfig = "";  // a file; empty: the service account of this pod
  std::string context = "";     // of the kubeconfig; empty: its current-context
  std::string user_agent = "tranched";
  std::string service_account_directory = "/var/run/secrets/kubernetes.io/serviceaccount";
  int max_in_flight = 64;
};

enum class PatchKind { kMerge, kStrategic, kJson, kApply };

struct Preconditions {  // empty: none
  std::string uid, resource_version;
};

struct ServerVersion {
  int major = 0, minor = 0;  // 1, 37
  std::string text;          // "v1.37.2"
};

enum class WatchEvent { kAdded, kModified, kDeleted };

// Called one after the other from a thread of the client. They return quickly and do not call the client synchronously.
struct WatchHandler {
  // The whole collection, at the start and after each time the watch had to begin anew.
  std::function<void(std::vector<boost::json::object> items)> on_list;
  std::function<void(WatchEvent event, boost::json::object item)> on_event;
  // Lists or watches fail (OK: they work again). Retried with jittered back-off until the watch is destroyed.
  std::function<void(const absl::Status& problem)> on_problem;
};

// Ends at destruction; no callback runs after that.
class Watch {
 public:
  virtual ~Watch() = default;
};

class Client {
 public:
  // InvalidArgument names the file and field of a kubeconfig that cannot be used; FailedPrecondition: not in a pod and no kubeconfig. Does not connect.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options);
  virtual ~Client() = default;

  // `path` is absolute, with its query ("/api/v1/nodes/n1", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=…"), already percent-encoded.
  virtual absl::StatusOr<boost::json::object> Get(const std::string& path, Deadline deadline) = 0;
  // Every page of a collection.
  virtual absl::StatusOr<std::vector<boost::json::object>> List(const std::string& path, Deadline deadline) = 0;
  virtual absl::StatusOr<boost::json::object> Create(const std::string& path, const boost::json::object& object, Deadline deadline) = 0;
  virtual absl::StatusOr<boost::json::object> Replace(const std::string& path, const boost::json::object& object, Deadline deadline) = 0;
  virtual absl::StatusOr<boost::json::object> Patch(const std::string& path, PatchKind kind, const boost::json::value& patch, Deadline deadline) = 0;
  virtual absl::Status Delete(const std::string& path, const Preconditions& preconditions, Deadline deadline) = 0;

  // A collection with its selectors, no watch parameters: "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=…".
  virtual std::unique_ptr<kube::Watch> Watch(const std::string& path, WatchHandler handler) = 0;

  virtual absl::StatusOr<ServerVersion> Version(Deadline deadline) = 0;

 protected:
  Client() = default;
};

// Percent-encodes one path segment or query value.
std::string Escape(std::string_view text);

}  // namespace tranche::kube
