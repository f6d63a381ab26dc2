// The kubelet's plugin registration service for one driver.
#pragma once

#include <memory>
#include <string>

namespace grpc {
class Service;
}

namespace tranche::dra {

// GetInfo answers with the driver's name, the absolute path of its DRA socket and the DRAPlugin versions, v1 first (the kubelet takes the first
// that it knows). NotifyRegistrationStatus logs, and answers an error when the kubelet did not register the plugin, as Kubernetes' own helper does.
std::unique_ptr<grpc::Service> MakeRegistrationService(const std::string& driver, const std::string& service_socket);

}  // namespace tranche::dra
