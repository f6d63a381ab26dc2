// One driver as the kubelet sees it: a DRAPlugin server (v1 and v1beta1) and a registration server, each on its own unix socket.
//
//   dra::Handler handler{.prepare = …, .unprepare = …};
//   TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<dra::DraServer> server, dra::DraServer::Start(
//       {.driver = "vnic.example.com", .plugin_directory = "/var/lib/kubelet/plugins", .registry_directory = "/var/lib/kubelet/plugins_registry",
//        .instance = pod_uid, .handler = handler}));
//
// The registration socket appears after the DRA socket serves and goes first at shutdown. Sockets have mode 0600. A stale socket is replaced only if
// nobody listens on it; only a socket that still is ours is removed.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "dra/service.h"

namespace tranche::dra {

struct ServerOptions {
  std::string driver;              // DNS subdomain, at most 63 characters
  std::string plugin_directory;    // absolute; the service socket lies in its sub-directory <driver>, which is made with mode 0750
  std::string registry_directory;  // absolute
  std::string instance;            // the pod's UID in a rolling update, else empty
  Handler handler;
  std::size_t threads = 12;
  std::size_t queue_capacity = 256;
};

class DraServer {
 public:
  // InvalidArgument: a name or path that cannot work. AlreadyExists: another process serves this driver and instance. Nothing is left behind by a failure.
  static absl::StatusOr<std::unique_ptr<DraServer>> Start(ServerOptions options);
  // Shutdown with kDefaultDrainTime.
  ~DraServer();
  DraServer(const DraServer&) = delete;
  DraServer& operator=(const DraServer&) = delete;

  const std::string& service_socket() const;
  const std::string& registration_socket() const;

  // Removes the sockets, takes no new call, lets those in flight end until `drain_time`, then cancels them (their work still runs to its own
  // deadline, and this call waits for it). Later calls do nothing. One thread at a time.
  void Shutdown(std::chrono::milliseconds drain_time);
  static constexpr std::chrono::milliseconds kDefaultDrainTime = std::chrono::seconds(10);

 private:
  class Impl;
  explicit DraServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::dra
