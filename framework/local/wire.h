// What a client of a driver's sockets needs on the wire: channels as the kubelet opens them, and one spelling over both versions of DRAPlugin.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <grpcpp/grpcpp.h>

#include "base/clock.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1/api.grpc.pb.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1beta1/api.grpc.pb.h"
#include "model/claim.h"

namespace tranche::local {

struct V1 {
  using Service = k8s::io::kubelet::pkg::apis::dra::v1::DRAPlugin;
  using Stub = Service::Stub;
  using PrepareRequest = k8s::io::kubelet::pkg::apis::dra::v1::NodePrepareResourcesRequest;
  using PrepareResponse = k8s::io::kubelet::pkg::apis::dra::v1::NodePrepareResourcesResponse;
  using UnprepareRequest = k8s::io::kubelet::pkg::apis::dra::v1::NodeUnprepareResourcesRequest;
  using UnprepareResponse = k8s::io::kubelet::pkg::apis::dra::v1::NodeUnprepareResourcesResponse;
};
struct V1Beta1 {
  using Service = k8s::io::kubelet::pkg::apis::dra::v1beta1::DRAPlugin;
  using Stub = Service::Stub;
  using PrepareRequest = k8s::io::kubelet::pkg::apis::dra::v1beta1::NodePrepareResourcesRequest;
  using PrepareResponse = k8s::io::kubelet::pkg::apis::dra::v1beta1::NodePrepareResourcesResponse;
  using UnprepareRequest = k8s::io::kubelet::pkg::apis::dra::v1beta1::NodeUnprepareResourcesRequest;
  using UnprepareResponse = k8s::io::kubelet::pkg::apis::dra::v1beta1::NodeUnprepareResourcesResponse;
};

// A connection of its own to a unix socket (gRPC would share one between equal targets, back-off of an earlier failure included). Any path.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& socket);

std::chrono::system_clock::time_point ToWall(Deadline deadline);

// The same code; the message says which call it was.
absl::Status FromGrpc(const grpc::Status& status, std::string_view what);

template <typename Request>
Request MakeRequest(const std::vector<ClaimReference>& references) {
  Request request;
  for (const ClaimReference& reference : references) {
    auto& claim = *request.add_claims();
    claim.set_namespace_(reference.namespace_name);
    claim.set_name(reference.name);
    claim.set_uid(reference.uid);
  }
  return request;
}

}  // namespace tranche::local
