#include "dra/service.h"

#include <algorithm>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1/api.grpc.pb.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1beta1/api.grpc.pb.h"
#include "telemetry/log.h"

namespace tranche::dra {
namespace {

namespace v1 = k8s::io::kubelet::pkg::apis::dra::v1;
namespace v1beta1 = k8s::io::kubelet::pkg::apis::dra::v1beta1;

struct V1 {
  using Service = v1::DRAPlugin::CallbackService;
  using PrepareRequest = v1::NodePrepareResourcesRequest;
  using PrepareResponse = v1::NodePrepareResourcesResponse;
  using UnprepareRequest = v1::NodeUnprepareResourcesRequest;
  using UnprepareResponse = v1::NodeUnprepareResourcesResponse;
};
struct V1Beta1 {
  using Service = v1beta1::DRAPlugin::CallbackService;
  using PrepareRequest = v1beta1::NodePrepareResourcesRequest;
  using PrepareResponse = v1beta1::NodePrepareResourcesResponse;
  using UnprepareRequest = v1beta1::NodeUnprepareResourcesRequest;
  using UnprepareResponse = v1beta1::NodeUnprepareResourcesResponse;
};

// A Kubernetes name has at most 253 characters, a UID 36; anything longer is not worth a look-up.
constexpr std::size_t kMaxNameBytes = 253;

std::string ErrorText(const absl::Status& status) {
  const std::string text = Cat(CodeName(status.code()), ": ", View(status.message()));
  return ToUtf8(text, kMaxErrorBytes);
}

absl::Status CheckReference(const ClaimReference& reference) {
  if (reference.uid.empty()) return absl::InvalidArgumentError("the request names a claim without a UID");
  const auto too_long = [](const std::string& field) { return field.size() > kMaxNameBytes; };
  if (too_long(reference.uid) || too_long(reference.name) || too_long(reference.namespace_name)) {
    return absl::InvalidArgumentError(Cat("namespace, name or UID of the claim is longer than ", kMaxNameBytes, " bytes"));
  }
  return absl::OkStatus();
}

// The claims of one request: those to work on, each UID once, and those that are wrong in themselves.
struct Batch {
  std::vector<ClaimReference> references;
  std::map<std::string, absl::Status> refused;  // by UID
};

template <typename Request>
Batch ReadBatch(const Request& request) {
  std::map<std::string, ClaimReference> by_uid;
  Batch batch;
  for (const auto& claim : request.claims()) {
    const ClaimReference reference{claim.namespace_(), claim.name(), claim.uid()};
    if (const absl::Status status = CheckReference(reference); !status.ok()) {
      batch.refused.emplace(reference.uid, status);
      continue;
    }
    const auto [entry, added] = by_uid.emplace(reference.uid, reference);
    if (!added && entry->second != reference) {
      batch.refused.emplace(reference.uid, absl::InvalidArgumentError("the request names this UID twice with different namespaces or names"));
    }
  }
  for (const auto& [uid, reference] : by_uid) {
    if (batch.refused.count(uid) == 0) batch.references.push_back(reference);
  }
  return batch;
}

Deadline CallDeadline(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > kMaxCallTime) return DeadlineIn(kMaxCallTime);
  return DeadlineIn(std::chrono::duration_cast<std::chrono::milliseconds>(left));
}

template <typename Device>
void FillDevice(const claims::PreparedDevice& from, Device& to) {
  for (const std::string& name : from.request_names) to.add_request_names(ToUtf8(name, kMaxErrorBytes));
  to.set_pool_name(ToUtf8(from.pool, kMaxErrorBytes));
  to.set_device_name(ToUtf8(from.device, kMaxErrorBytes));
  for (const std::string& id : from.cdi_device_ids) to.add_cdi_device_ids(ToUtf8(id, kMaxErrorBytes));
  if constexpr (requires { to.set_share_id(std::string()); }) {
    if (!from.share_id.empty()) to.set_share_id(ToUtf8(from.share_id, kMaxErrorBytes));
  }
}

template <typename Answers>
absl::Status StatusOfAnswer(const Answers& answers, const std::string& uid) {
  const auto answer = answers.find(uid);
  if (answer == answers.end()) return absl::InternalError("the driver gave no answer for this claim");
  if constexpr (std::is_same_v<Answers, claims::PrepareAnswers>) {
    return answer->second.status();
  } else {
    return answer->second;
  }
}

template <typename Response, typename Answers>
void FillResponse(const Batch& batch, const Answers& answers, Response& response) {
  auto& entries = *response.mutable_claims();
  for (const auto& [uid, status] : batch.refused) entries[uid].set_error(ErrorText(status));
  for (const ClaimReference& reference : batch.references) {
    auto& entry = entries[reference.uid];
    if (const absl::Status status = StatusOfAnswer(answers, reference.uid); !status.ok()) {
      entry.set_error(ErrorText(status));
      continue;
    }
    if constexpr (std::is_same_v<Answers, claims::PrepareAnswers>) {
      for (const claims::PreparedDevice& device : *answers.at(reference.uid)) FillDevice(device, *entry.add_devices());
    }
  }
}

// A handler reports by value and should not throw; one that does (out of memory, a defect) fails this call and no other.
template <typename Response, typename Call>
grpc::Status RunBatch(const Batch& batch, const Call& call, Deadline deadline, const claims::GivenUp& given_up, const std::string& driver, Response& response) {
  try {
    using Answers = decltype(call(driver, batch.references, deadline, given_up));
    const Answers answers = batch.references.empty() ? Answers() : call(driver, batch.references, deadline, given_up);
    FillResponse(batch, answers, response);
    return grpc::Status::OK;
  } catch (const std::exception& error) {
    LogError("a call failed unexpectedly", {{"driver", driver}, {"error", error.what()}});
    return grpc::Status(grpc::StatusCode::INTERNAL, "the driver failed unexpectedly; its log says why");
  }
}

template <typename Version>
class DraPluginService final : public Version::Service {
 public:
  DraPluginService(std::string driver, Handler handler, BoundedExecutor& executor)
      : driver_(std::move(driver)), handler_(std::move(handler)), executor_(executor) {}

  grpc::ServerUnaryReactor* NodePrepareResources(grpc::CallbackServerContext* context, const typename Version::PrepareRequest* request,
                                                 typename Version::PrepareResponse* response) override {
    return Dispatch(context, request, response, handler_.prepare);
  }

  grpc::ServerUnaryReactor* NodeUnprepareResources(grpc::CallbackServerContext* context, const typename Version::UnprepareRequest* request,
                                                   typename Version::UnprepareResponse* response) override {
    return Dispatch(context, request, response, handler_.unprepare);
  }

 private:
  // gRPC keeps context, request and response alive until Finish.
  template <typename Request, typename Response, typename Call>
  grpc::ServerUnaryReactor* Dispatch(grpc::CallbackServerContext* context, const Request* request, Response* response, const Call& call) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (request->claims_size() > kMaxClaims) {
      reactor->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                   Cat("the request names ", request->claims_size(), " claims; at most ", kMaxClaims, " are served at once")));
      return reactor;
    }
    const Deadline deadline = CallDeadline(*context);
    const bool accepted = executor_.TrySubmit(
        [this, context, request, response, reactor, deadline, &call] { reactor->Finish(Work(*context, *request, *response, deadline, call)); });
    if (!accepted) {
      LogWarning("a call was refused: too many are waiting", {{"driver", driver_}});
      reactor->Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls are waiting; the call was not begun and may be repeated"));
    }
    return reactor;
  }

  template <typename Request, typename Response, typename Call>
  grpc::Status Work(const grpc::CallbackServerContext& context, const Request& request, Response& response, Deadline deadline, const Call& call) const {
    if (Passed(deadline)) return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed before the work began; nothing was done");
    if (context.IsCancelled()) return grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled before the work began; nothing was done");
    return RunBatch(
        ReadBatch(request), call, deadline, [&context] { return context.IsCancelled(); }, driver_, response);
  }

  const std::string driver_;
  const Handler handler_;
  BoundedExecutor& executor_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeDraPluginServices(const std::string& driver, const Handler& handler, BoundedExecutor& executor) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<DraPluginService<V1>>(driver, handler, executor));
  services.push_back(std::make_unique<DraPluginService<V1Beta1>>(driver, handler, executor));
  return services;
}

}  // namespace tranche::dra
