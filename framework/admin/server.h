// The admin socket of a host: a unix socket of mode 0600 that serves root and the host's own user only (SO_PEERCRED is checked for each connection).
// Protocol: admin/protocol.h. Garbage, long lines, slow and vanished clients cost their own connection only.
//
//   admin::Methods methods{{"status", [&](const boost::json::value&) { return host.Status(); }}};
//   TRANCHE_ASSIGN_OR_RETURN(auto server, admin::AdminServer::Start({.path = "/run/tranche/admin.sock", .methods = methods}));
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

namespace tranche::admin {

// Called from the connection's thread, several at once; `params` is an object. An exception of the JSON library becomes InvalidArgument.
using Method = std::function<absl::StatusOr<boost::json::value>(const boost::json::value& params)>;
using Methods = std::map<std::string, Method>;

struct ServerOptions {
  std::string path;  // its directory exists
  Methods methods;
  std::size_t max_connections = 64;                                   // one more is told so and closed
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(60);  // between requests
  std::chrono::milliseconds io_timeout = std::chrono::seconds(10);    // for one line in or out
};

class AdminServer {
 public:
  // AlreadyExists when another process listens on `path`; a socket on which nobody listens is replaced. Any other file is left alone
  // (FailedPrecondition).
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(ServerOptions options);
  // InvalidArgument when no socket can have this path.
  static absl::Status CheckPath(const std::string& path);
  // Closes the connections, waits for methods in progress, removes the socket if it still is ours.
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

 private:
  class Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::admin
