#include "dra/registration.h"

#include <utility>

#include <grpcpp/grpcpp.h>

#include "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.grpc.pb.h"
#include "telemetry/log.h"

namespace tranche::dra {
namespace {

class RegistrationService final : public pluginregistration::Registration::CallbackService {
 public:
  RegistrationService(std::string driver, std::string service_socket) : driver_(std::move(driver)), service_socket_(std::move(service_socket)) {}

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context, const pluginregistration::InfoRequest*,
                                    pluginregistration::PluginInfo* response) override {
    response->set_type("DRAPlugin");
    response->set_name(driver_);
    response->set_endpoint(service_socket_);
    response->add_supported_versions("v1.DRAPlugin");
    response->add_supported_versions("v1beta1.DRAPlugin");
    return Finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* NotifyRegistrationStatus(grpc::CallbackServerContext* context, const pluginregistration::RegistrationStatus* request,
                                                     pluginregistration::RegistrationStatusResponse*) override {
    if (request->plugin_registered()) {
      LogInfo("the kubelet registered the driver", {{"driver", driver_}});
      return Finish(context, grpc::Status::OK);
    }
    LogError("the kubelet did not register the driver; it will ask again", {{"driver", driver_}, {"error", request->error()}});
    return Finish(context, grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the driver is not registered"));
  }

 private:
  static grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  const std::string driver_;
  const std::string service_socket_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRegistrationService(const std::string& driver, const std::string& service_socket) {
  return std::make_unique<RegistrationService>(driver, service_socket);
}

}  // namespace tranche::dra
