#include "dra/server.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "dra/executor.h"
#include "dra/registration.h"
#include "dra/socket.h"
#include "telemetry/log.h"

namespace tranche::dra {
namespace {

constexpr int kMaxMessageBytes = 16 * 1024 * 1024;
constexpr std::size_t kMaxDriverName = 63;

// gRPC writes to stderr by itself otherwise.
void RouteGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* arguments) {
      const LogLevel level = arguments->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug;
      Log(level, arguments->message, {{"component", "grpc"}, {"source", Cat(arguments->file, ":", arguments->line)}});
    });
  });
}

absl::Status CheckDirectory(std::string_view what, const std::string& path) {
  if (!path.empty() && path.front() == '/') return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(what, " directory \"", path, "\" must be an absolute path: the kubelet dials the socket by it"));
}

absl::Status CheckOptions(const ServerOptions& options) {
  if (!IsDnsSubdomain(options.driver) || options.driver.size() > kMaxDriverName) {
    return absl::InvalidArgumentError(Cat("driver name \"", options.driver, "\" must be a DNS subdomain of at most ", kMaxDriverName, " characters"));
  }
  if (!options.instance.empty() && !IsDnsLabel(options.instance)) {
    return absl::InvalidArgumentError(Cat("instance \"", options.instance, "\" of driver \"", options.driver, "\" must be a DNS label (the pod's UID)"));
  }
  if (options.threads == 0 || !options.handler.prepare || !options.handler.unprepare) {
    return absl::InvalidArgumentError(Cat("driver \"", options.driver, "\" needs a handler and at least one thread"));
  }
  TRANCHE_RETURN_IF_ERROR(CheckDirectory("plugin", options.plugin_directory));
  return CheckDirectory("registry", options.registry_directory);
}

// One gRPC server on one published socket.
class Listener {
 public:
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const std::string& path, std::vector<std::unique_ptr<grpc::Service>> services) {
    TRANCHE_RETURN_IF_ERROR(CheckReplaceable(path));
    TRANCHE_ASSIGN_OR_RETURN(const std::string hidden, HiddenSocketPath(path));
    auto listener = std::make_unique<Listener>();
    listener->services_ = std::move(services);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(SocketUri(hidden), grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    for (const auto& service : listener->services_) builder.RegisterService(service.get());
    listener->server_ = builder.BuildAndStart();
    if (listener->server_ == nullptr) {
      return absl::UnavailableError(Cat("gRPC could not listen in the directory of \"", path, "\": check that it exists and is writable"));
    }
    TRANCHE_ASSIGN_OR_RETURN(listener->socket_, PublishSocket(hidden, path));
    return listener;
  }

  // The file goes before the server, so that nobody dials what no longer answers.
  void Stop(std::chrono::milliseconds drain_time) {
    if (server_ == nullptr) return;
    if (socket_.has_value()) {
      if (const absl::Status status = WithdrawSocket(*socket_); !status.ok()) LogWarning("a socket stays behind", {{"error", status.ToString()}});
    }
    server_->Shutdown(std::chrono::system_clock::now() + drain_time);
    server_->Wait();
    server_.reset();
  }

  ~Listener() { Stop(std::chrono::milliseconds(0)); }

 private:
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<PublishedSocket> socket_;
};

std::vector<std::unique_ptr<grpc::Service>> RegistrationServices(const std::string& driver, const std::string& service_socket) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(MakeRegistrationService(driver, service_socket));
  return services;
}

}  // namespace

class DraServer::Impl {
 public:
  explicit Impl(const ServerOptions& options) : executor_(options.threads, options.queue_capacity) {}

  absl::Status Start(const ServerOptions& options) {
    TRANCHE_ASSIGN_OR_RETURN(service_socket_, ServiceSocketPath(options.plugin_directory, options.driver, options.instance));
    TRANCHE_ASSIGN_OR_RETURN(registration_socket_, RegistrationSocketPath(options.registry_directory, options.driver, options.instance));
    const std::string directory = Cat(options.plugin_directory, "/", options.driver);
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(directory, 0750));
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(options.registry_directory, 0750));
    // Two processes that start at once must not both find the path free.
    TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Acquire(directory + "/.lock"));
    TRANCHE_ASSIGN_OR_RETURN(service_, Listener::Start(service_socket_, MakeDraPluginServices(options.driver, options.handler, executor_)));
    TRANCHE_ASSIGN_OR_RETURN(registration_, Listener::Start(registration_socket_, RegistrationServices(options.driver, service_socket_)));
    LogInfo("the driver serves", {{"driver", options.driver}, {"socket", service_socket_}, {"registration", registration_socket_}});
    return absl::OkStatus();
  }

  void Shutdown(std::chrono::milliseconds drain_time) {
    if (registration_ != nullptr) registration_->Stop(std::chrono::milliseconds(0));
    if (service_ != nullptr) service_->Stop(drain_time);
    registration_.reset();
    service_.reset();
  }

  const std::string& service_socket() const { return service_socket_; }
  const std::string& registration_socket() const { return registration_socket_; }

 private:
  BoundedExecutor executor_;  // outlives the servers: their calls finish in it
  std::string service_socket_, registration_socket_;
  std::unique_ptr<Listener> service_, registration_;
};

absl::StatusOr<std::unique_ptr<DraServer>> DraServer::Start(ServerOptions options) {
  RouteGrpcLog();
  TRANCHE_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(options);
  if (const absl::Status status = impl->Start(options); !status.ok()) {
    return Annotate(status, Cat("driver \"", options.driver, "\" cannot serve the kubelet"));
  }
  return std::unique_ptr<DraServer>(new DraServer(std::move(impl)));
}

DraServer::DraServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DraServer::~DraServer() { Shutdown(kDefaultDrainTime); }
const std::string& DraServer::service_socket() const { return impl_->service_socket(); }
const std::string& DraServer::registration_socket() const { return impl_->registration_socket(); }
void DraServer::Shutdown(std::chrono::milliseconds drain_time) { impl_->Shutdown(drain_time); }

}  // namespace tranche::dra
