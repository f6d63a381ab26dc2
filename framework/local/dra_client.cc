#include "local/dra_client.h"

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_join.h>
#include <grpcpp/grpcpp.h>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.grpc.pb.h"
#include "local/wire.h"
#include "telemetry/log.h"

namespace tranche::local {
namespace {

constexpr std::string_view kV1Service = "v1.DRAPlugin";
constexpr std::string_view kV1Beta1Service = "v1beta1.DRAPlugin";
// The kubelet gives GetInfo one second; a dead socket refuses at once.
constexpr std::chrono::milliseconds kRegistrationTime = std::chrono::seconds(2);

// "RESOURCE_EXHAUSTED: …" as Tranche writes it becomes that code again; any other text is Unknown.
absl::Status FromClaimError(const std::string& error) {
  for (int code = 1; code <= 16; ++code) {
    const auto candidate = static_cast<absl::StatusCode>(code);
    const std::string prefix = Cat(CodeName(candidate), ": ");
    if (absl::StartsWith(error, prefix)) return absl::Status(candidate, error.substr(prefix.size()));
  }
  return absl::UnknownError(error);
}

template <typename Entry>
std::vector<claims::PreparedDevice> ReadDevices(const Entry& entry) {
  std::vector<claims::PreparedDevice> devices;
  for (const auto& from : entry.devices()) {
    claims::PreparedDevice device;
    device.request_names.assign(from.request_names().begin(), from.request_names().end());
    device.pool = from.pool_name();
    device.device = from.device_name();
    device.cdi_device_ids.assign(from.cdi_device_ids().begin(), from.cdi_device_ids().end());
    if constexpr (requires { from.share_id(); }) device.share_id = from.share_id();
    devices.push_back(std::move(device));
  }
  return devices;
}

template <typename Answers>
Answers FailAll(const std::vector<ClaimReference>& references, const absl::Status& status) {
  Answers answers;
  for (const ClaimReference& reference : references) answers.insert_or_assign(reference.uid, status);
  return answers;
}

template <typename Answers, typename Response>
Answers ReadResponse(const std::vector<ClaimReference>& references, const Response& response) {
  Answers answers;
  for (const ClaimReference& reference : references) {
    const auto entry = response.claims().find(reference.uid);
    if (entry == response.claims().end()) {
      answers.insert_or_assign(reference.uid, absl::InternalError(Cat("the plugin left out claim UID ", reference.uid)));
    } else if (!entry->second.error().empty()) {
      answers.insert_or_assign(reference.uid, FromClaimError(entry->second.error()));
    } else if constexpr (std::is_same_v<Answers, claims::PrepareAnswers>) {
      answers.insert_or_assign(reference.uid, ReadDevices(entry->second));
    } else {
      answers.insert_or_assign(reference.uid, absl::OkStatus());
    }
  }
  return answers;
}

template <typename Version>
claims::PrepareAnswers CallPrepare(typename Version::Stub& stub, const std::vector<ClaimReference>& references, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  typename Version::PrepareResponse response;
  const grpc::Status status = stub.NodePrepareResources(&context, MakeRequest<typename Version::PrepareRequest>(references), &response);
  if (!status.ok()) return FailAll<claims::PrepareAnswers>(references, FromGrpc(status, "NodePrepareResources"));
  return ReadResponse<claims::PrepareAnswers>(references, response);
}

template <typename Version>
claims::UnprepareAnswers CallUnprepare(typename Version::Stub& stub, const std::vector<ClaimReference>& references, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  typename Version::UnprepareResponse response;
  const grpc::Status status = stub.NodeUnprepareResources(&context, MakeRequest<typename Version::UnprepareRequest>(references), &response);
  if (!status.ok()) return FailAll<claims::UnprepareAnswers>(references, FromGrpc(status, "NodeUnprepareResources"));
  return ReadResponse<claims::UnprepareAnswers>(references, response);
}

bool Serves(const Plugin& plugin, std::string_view service) {
  return std::find(plugin.versions.begin(), plugin.versions.end(), service) != plugin.versions.end();
}

absl::Status CheckPlugin(const std::string& type, const Plugin& plugin) {
  if (type != "DRAPlugin") return absl::InvalidArgumentError(Cat("plugin type \"", type, "\" is not DRAPlugin"));
  if (plugin.driver.empty() || plugin.endpoint.empty()) return absl::InvalidArgumentError("name or endpoint is empty");
  if (Serves(plugin, kV1Service) || Serves(plugin, kV1Beta1Service)) return absl::OkStatus();
  return absl::InvalidArgumentError("no supported version of DRAPlugin");
}

absl::StatusOr<Plugin> AskPlugin(const std::string& socket, Deadline deadline) {
  const std::unique_ptr<pluginregistration::Registration::Stub> stub = pluginregistration::Registration::NewStub(OpenChannel(socket));
  grpc::ClientContext info_context;
  info_context.set_deadline(ToWall(deadline));
  pluginregistration::PluginInfo info;
  TRANCHE_RETURN_IF_ERROR(FromGrpc(stub->GetInfo(&info_context, pluginregistration::InfoRequest(), &info), "GetInfo"));
  Plugin plugin{info.name(), info.endpoint(), socket, {info.supported_versions().begin(), info.supported_versions().end()}};
  const absl::Status usable = CheckPlugin(info.type(), plugin);
  pluginregistration::RegistrationStatus outcome;
  outcome.set_plugin_registered(usable.ok());
  outcome.set_error(std::string(usable.message()));
  grpc::ClientContext notify_context;
  notify_context.set_deadline(ToWall(deadline));
  pluginregistration::RegistrationStatusResponse response;
  const grpc::Status notified = stub->NotifyRegistrationStatus(&notify_context, outcome, &response);
  TRANCHE_RETURN_IF_ERROR(usable);
  TRANCHE_RETURN_IF_ERROR(FromGrpc(notified, "NotifyRegistrationStatus"));
  return plugin;
}

}  // namespace

absl::StatusOr<std::vector<Plugin>> FindPlugins(const std::string& registry_directory, Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(registry_directory));
  std::vector<Plugin> plugins;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, ".") || !absl::EndsWith(name, ".sock")) continue;
    const std::string socket = Cat(registry_directory, "/", name);
    absl::StatusOr<Plugin> plugin = AskPlugin(socket, std::min(deadline, DeadlineIn(kRegistrationTime)));
    if (plugin.ok()) {
      plugins.push_back(*std::move(plugin));
    } else {
      LogDebug("a registration socket gave no usable answer", {{"socket", socket}, {"error", plugin.status().ToString()}});
    }
  }
  return plugins;
}

class DraClient::Impl {
 public:
  Impl(const std::string& endpoint, bool beta) {
    const std::shared_ptr<grpc::Channel> channel = OpenChannel(endpoint);
    if (beta) {
      beta_ = V1Beta1::Service::NewStub(channel);
    } else {
      stable_ = V1::Service::NewStub(channel);
    }
  }
  claims::PrepareAnswers Prepare(const std::vector<ClaimReference>& references, Deadline deadline) const {
    return beta_ != nullptr ? CallPrepare<V1Beta1>(*beta_, references, deadline) : CallPrepare<V1>(*stable_, references, deadline);
  }
  claims::UnprepareAnswers Unprepare(const std::vector<ClaimReference>& references, Deadline deadline) const {
    return beta_ != nullptr ? CallUnprepare<V1Beta1>(*beta_, references, deadline) : CallUnprepare<V1>(*stable_, references, deadline);
  }

 private:
  std::unique_ptr<V1::Stub> stable_;
  std::unique_ptr<V1Beta1::Stub> beta_;
};

absl::StatusOr<std::unique_ptr<DraClient>> DraClient::Connect(const Plugin& plugin, ProtocolVersion version) {
  // The kubelet walks the plugin's own list and takes the first entry that it knows.
  if (version == ProtocolVersion::kFirstSupported) {
    const auto known = std::find_if(plugin.versions.begin(), plugin.versions.end(),
                                    [](const std::string& service) { return service == kV1Service || service == kV1Beta1Service; });
    version = known != plugin.versions.end() && *known == kV1Beta1Service ? ProtocolVersion::kV1Beta1 : ProtocolVersion::kV1;
  }
  const bool beta = version == ProtocolVersion::kV1Beta1;
  if (!Serves(plugin, beta ? kV1Beta1Service : kV1Service)) {
    return absl::FailedPreconditionError(
        Cat("driver \"", plugin.driver, "\" does not serve ", beta ? kV1Beta1Service : kV1Service, "; it serves ", absl::StrJoin(plugin.versions, ", ")));
  }
  return std::unique_ptr<DraClient>(new DraClient(std::make_unique<Impl>(plugin.endpoint, beta)));
}

DraClient::DraClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DraClient::~DraClient() = default;

claims::PrepareAnswers DraClient::Prepare(const std::vector<ClaimReference>& claims, Deadline deadline) const { return impl_->Prepare(claims, deadline); }
claims::UnprepareAnswers DraClient::Unprepare(const std::vector<ClaimReference>& claims, Deadline deadline) const { return impl_->Unprepare(claims, deadline); }

}  // namespace tranche::local
