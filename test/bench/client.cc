#include "bench/client.h"

#include <grpcpp/grpcpp.h>

#include "base/text.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1/api.grpc.pb.h"

namespace tranche::bench {
namespace {

namespace v1 = k8s::io::kubelet::pkg::apis::dra::v1;

class EmptyService final : public v1::DRAPlugin::CallbackService {
  grpc::ServerUnaryReactor* NodePrepareResources(grpc::CallbackServerContext* context, const v1::NodePrepareResourcesRequest*,
                                                 v1::NodePrepareResourcesResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

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

template <typename Response>
absl::Status Check(const grpc::Status& status, const Response& response, const std::vector<ClaimReference>& references) {
  if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  for (const ClaimReference& reference : references) {
    const auto entry = response.claims().find(reference.uid);
    if (entry == response.claims().end()) return absl::InternalError(Cat("no answer for claim UID ", reference.uid));
    if (!entry->second.error().empty()) return absl::UnknownError(Cat("claim ", reference.name, ": ", entry->second.error()));
  }
  return absl::OkStatus();
}

}  // namespace

struct Client::Impl {
  std::chrono::milliseconds call_time;
  std::unique_ptr<v1::DRAPlugin::Stub> stub;
};

Client::Client(const std::string& socket, std::chrono::milliseconds call_time) : impl_(std::make_unique<Impl>()) {
  impl_->call_time = call_time;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  impl_->stub = v1::DRAPlugin::NewStub(grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
}
Client::~Client() = default;

absl::Status Client::Prepare(const std::vector<ClaimReference>& claims) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + impl_->call_time);
  v1::NodePrepareResourcesResponse response;
  const grpc::Status status = impl_->stub->NodePrepareResources(&context, MakeRequest<v1::NodePrepareResourcesRequest>(claims), &response);
  return Check(status, response, claims);
}

absl::Status Client::Unprepare(const std::vector<ClaimReference>& claims) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + impl_->call_time);
  v1::NodeUnprepareResourcesResponse response;
  const grpc::Status status = impl_->stub->NodeUnprepareResources(&context, MakeRequest<v1::NodeUnprepareResourcesRequest>(claims), &response);
  return Check(status, response, claims);
}

absl::Status Client::Echo() const { return Prepare({}); }

struct EchoServer::Impl {
  EmptyService service;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(const std::string& socket) {
  auto impl = std::make_unique<Impl>();
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->service);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::UnavailableError(Cat("no gRPC server could listen on \"", socket, "\""));
  return std::unique_ptr<EchoServer>(new EchoServer(std::move(impl)));
}

EchoServer::EchoServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EchoServer::~EchoServer() { impl_->server->Shutdown(); }

}  // namespace tranche::bench
