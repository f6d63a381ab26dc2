#include "fakes/fake_driver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/text.h"
#include "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.grpc.pb.h"
#include "kube/claim_reader.h"
#include "kube/client.h"
#include "local/wire.h"

namespace tranche::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace json = boost::json;

constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";
constexpr std::size_t kManyClaims = 500, kLongName = 10'000;

// A device as an answer names it.
struct Granted {
  std::string request, pool, device, share_id, cdi_id;
  Quantity memory;
};

struct Answer {
  std::string error;
  std::vector<Granted> devices;
};

// Health is no service of its own here: a call of it hangs, or there is none.
class HealthService final : public grpc::CallbackGenericService {
 public:
  // Hangs where a method's name begins so; empty: nowhere.
  explicit HealthService(std::string hangs) : hangs_(std::move(hangs)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    class Reactor final : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    };
    class Refusal final : public grpc::ServerGenericBidiReactor {
     public:
      Refusal() { Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "there is no such service")); }
      void OnDone() override { delete this; }
    };
    if (!hangs_.empty() && context->method().starts_with(hangs_)) return new Reactor();
    return new Refusal();
  }

 private:
  const std::string hangs_;
};

}  // namespace

class FakeDriver::Impl {
 public:
  Impl(std::string directory, std::string fault, const std::string& kubeconfig) : directory_(std::move(directory)), fault_(std::move(fault)) {
    fs::create_directories(Cdi());
    if (!kubeconfig.empty()) {
      client_ = kube::Client::Create({.kubeconfig = kubeconfig}).value();
      RemoveSlices();
    }
    StartServers();
    work_ = std::jthread([this](const std::stop_token& stop) { Work(stop); });
  }
  ~Impl() {
    work_.request_stop();
    work_.join();
    StopServers();
    if (client_ != nullptr) RemoveSlices();
  }

  bool Is(std::string_view fault) const { return fault_ == fault; }
  std::string Cdi() const { return directory_ + "/cdi"; }
  std::string RegistrationSocket() const { return directory_ + "/reg.sock"; }
  std::string Endpoint() const { return directory_ + "/dra.sock"; }
  std::string RestartFile() const { return directory_ + "/restart"; }

  Answer Prepare(const ClaimReference& reference, bool is_beta, const grpc::ServerContext& context) {
    const absl::StatusOr<Claim> claim = Read(reference);
    if (!claim.ok()) return Is("grants_unknown") ? Answer() : Answer{std::string(claim.status().message()), {}};
    if (Is("refuses_good")) return {"no", {}};
    if (claim->uid != reference.uid && !Is("ignores_uid")) return {"the claim was made anew", {}};
    if (!claim->allocation.has_value()) return Is("ignores_allocation") ? Answer() : Answer{"the claim is not allocated", {}};
    {
      const std::lock_guard lock(mutex_);
      if (Is("one_at_a_time") && in_flight_ > 0) return {"another call is at work", {}};
      ++in_flight_;
    }
    if (Is("one_at_a_time") || Is("races") || Is("abandoned_sticks")) std::this_thread::sleep_for(100ms);
    const std::lock_guard lock(mutex_);
    const bool races = Is("races") && in_flight_ > 1;
    --in_flight_;
    if (Is("abandoned_sticks") && context.IsCancelled()) stuck_.insert(reference.uid);
    if (stuck_.contains(reference.uid)) return {"a call is at work", {}};
    // Its caller may have unprepared the claim since it gave up: a grant now would be nobody's.
    if (context.IsCancelled()) return {"the call was cancelled", {}};
    Answer answer = Grant(*claim, reference.uid);
    if (!answer.error.empty()) return answer;
    held_[reference.uid] = answer.devices;
    if (claim->reserved_for.empty()) unreserved_.insert(reference.uid);
    if (races || (Is("beta_differs") && is_beta)) answer.devices.front().request.clear();
    return answer;
  }

  std::string Unprepare(const ClaimReference& reference) {
    if (Is("needs_object") && client_ != nullptr && Held(reference.uid) && !Read(reference).ok()) return "the claim cannot be read";
    const std::lock_guard lock(mutex_);
    const bool is_held = held_.contains(reference.uid);
    if (Is("unknown_sticks") && !is_held && !gone_.contains(reference.uid)) return "no such claim";
    if (Is("unprepare_once") && !is_held && gone_.contains(reference.uid)) return "no such claim";
    if (Is("unprepare_fails") && is_held) return "not now";
    if (Is("stuck_after_restart") && is_held && has_restarted_) return "not now";
    if (Is("unreserved_sticks") && unreserved_.contains(reference.uid)) return "it is reserved for nobody";
    held_.erase(reference.uid);
    gone_.insert(reference.uid);
    if (!Is("leaves_spec")) fs::remove(SpecFile(reference.uid));
    return "";
  }

  void FillInfo(pluginregistration::PluginInfo& info) {
    if (Is("slow_info") && calls_++ == 0) std::this_thread::sleep_for(1200ms);
    info.set_type(Is("other_type") ? "DevicePlugin" : "DRAPlugin");
    info.set_name(Is("odd_name") ? "Fake_Driver" : Is("changing_info") ? Cat("fake", calls_++, ".example.com") : std::string(kName));
    info.set_endpoint(Is("relative_endpoint") ? "dra.sock" : Endpoint());
    if (Is("semantic_versions")) return info.add_supported_versions("1.0.0");
    if (!Is("only_beta") && !Is("beta_first")) info.add_supported_versions("v1.DRAPlugin");
    if (!Is("only_v1")) info.add_supported_versions("v1beta1.DRAPlugin");
    if (Is("beta_first")) info.add_supported_versions("v1.DRAPlugin");
    if (Is("health_hangs")) info.add_supported_versions("v1.DRAResourceHealth");
  }

  // The process would end here; the sockets do.
  void Die() { is_dead_ = true; }

 private:
  template <typename Traits, bool is_beta>
  class Service final : public Traits::Service::Service {
   public:
    explicit Service(Impl& driver) : driver_(driver) {}
    grpc::Status NodePrepareResources(grpc::ServerContext* context, const typename Traits::PrepareRequest* request,
                                      typename Traits::PrepareResponse* response) override {
      if (request->claims_size() == 0 && driver_.Is("refuses_empty")) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "nothing to do");
      if (driver_.ShouldDie(*request)) return driver_.Death();
      for (const auto& claim : request->claims()) {
        const Answer answer = driver_.Prepare({claim.namespace_(), claim.name(), claim.uid()}, is_beta, *context);
        if (!answer.error.empty() && driver_.Is("fails_the_call")) return grpc::Status(grpc::StatusCode::NOT_FOUND, answer.error);
        auto& entry = (*response->mutable_claims())[claim.uid()];
        entry.set_error(answer.error);
        for (const Granted& device : answer.devices) Fill(device, *entry.add_devices());
      }
      if (request->claims_size() > 0 && driver_.Is("invents_entry")) (*response->mutable_claims())["invented"];
      return grpc::Status::OK;
    }
    grpc::Status NodeUnprepareResources(grpc::ServerContext*, const typename Traits::UnprepareRequest* request,
                                        typename Traits::UnprepareResponse* response) override {
      for (const auto& claim : request->claims()) {
        const std::string error = driver_.Unprepare({claim.namespace_(), claim.name(), claim.uid()});
        (*response->mutable_claims())[claim.uid()].set_error(error);
      }
      if (request->claims_size() > 1 && driver_.Is("leaves_out_entry")) response->mutable_claims()->erase(response->claims().begin()->first);
      return grpc::Status::OK;
    }

   private:
    template <typename To>
    void Fill(const Granted& device, To& to) const {
      if (!device.request.empty()) to.add_request_names(driver_.Is("subrequest_names") ? device.request : std::string(BaseRequest(device.request)));
      to.set_pool_name(driver_.Is("other_pool") ? "elsewhere" : device.pool);
      to.set_device_name(device.device);
      to.add_cdi_device_ids(device.cdi_id);
      if constexpr (!is_beta) {
        if (!device.share_id.empty() && !driver_.Is("no_share_id")) to.set_share_id(device.share_id);
      }
    }
    Impl& driver_;
  };

  class Registration final : public pluginregistration::Registration::Service {
   public:
    explicit Registration(Impl& driver) : driver_(driver) {}
    grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*, pluginregistration::PluginInfo* info) override {
      driver_.FillInfo(*info);
      return grpc::Status::OK;
    }
    grpc::Status NotifyRegistrationStatus(grpc::ServerContext*, const pluginregistration::RegistrationStatus* request,
                                          pluginregistration::RegistrationStatusResponse*) override {
      if (driver_.Is("refuses_notification")) return grpc::Status(grpc::StatusCode::INTERNAL, "no");
      if (!request->plugin_registered() && driver_.Is("gives_up")) return driver_.Death();
      return grpc::Status::OK;
    }

   private:
    Impl& driver_;
  };

  template <typename Request>
  bool ShouldDie(const Request& request) const {
    if (Is("many_kill") && static_cast<std::size_t>(request.claims_size()) > kManyClaims) return true;
    return Is("long_name_kills") &&
           std::any_of(request.claims().begin(), request.claims().end(), [](const auto& claim) { return claim.name().size() > kLongName; });
  }
  grpc::Status Death() {
    Die();
    while (!has_ended_) std::this_thread::sleep_for(5ms);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the driver ended");
  }

  void StartServers() {
    stable_ = std::make_unique<Service<local::V1, false>>(*this);
    beta_ = std::make_unique<Service<local::V1Beta1, true>>(*this);
    registration_ = std::make_unique<Registration>(*this);
    health_ = std::make_unique<HealthService>(Is("health_hangs") ? "/v1.DRAResourceHealth/" : Is("health_unlisted") ? "/v1alpha1.DRAResourceHealth/" : "");
    grpc::ServerBuilder plugin;
    plugin.AddListeningPort("unix:" + Endpoint(), grpc::InsecureServerCredentials());
    plugin.RegisterService(stable_.get());
    if (!Is("unserved_beta")) plugin.RegisterService(beta_.get());
    plugin.RegisterCallbackGenericService(health_.get());
    plugin_server_ = plugin.BuildAndStart();
    grpc::ServerBuilder registration;
    registration.AddListeningPort("unix:" + RegistrationSocket(), grpc::InsecureServerCredentials());
    registration.RegisterService(registration_.get());
    registration_server_ = registration.BuildAndStart();
  }
  void StopServers() {
    for (auto* server : {&registration_server_, &plugin_server_}) {
      if (*server != nullptr) (*server)->Shutdown(std::chrono::system_clock::now());
      server->reset();
    }
    for (const std::string& socket : {RegistrationSocket(), Endpoint()}) fs::remove(socket);
  }

  // Slices, restarts and the driver's death.
  void Work(const std::stop_token& stop) {
    while (!stop.stop_requested() && !is_dead_) {
      if (client_ != nullptr) Publish();
      if (fs::exists(RestartFile())) Restart();
      std::this_thread::sleep_for(20ms);
    }
    if (!is_dead_) return;
    has_ended_ = true;
    StopServers();
  }

  void Restart() {
    StopServers();
    {
      const std::lock_guard lock(mutex_);
      has_restarted_ = true;
      if (Is("forgets")) stuck_.merge(Uids());
    }
    StartServers();
    fs::remove(RestartFile());
  }

  std::set<std::string> Uids() const {
    std::set<std::string> uids;
    for (const auto& [uid, devices] : held_) uids.insert(uid);
    return uids;
  }
  bool Held(const std::string& uid) {
    const std::lock_guard lock(mutex_);
    return held_.contains(uid);
  }

  absl::StatusOr<Claim> Read(const ClaimReference& reference) {
    // A name by which dra-conform says that there is no such claim: a thousand of them need no thousand requests.
    if (client_ == nullptr || reference.name.starts_with("dra-conform-absent")) return absl::NotFoundError("there is no such claim");
    return kube::ApiClaimReader(*client_).ReadClaim(reference, DeadlineIn(10s));
  }

  std::string HoldingProblem(const Granted& device, const std::string& uid) const {
    Quantity sum = device.memory;
    for (const auto& [holder, devices] : held_) {
      for (const Granted& other : devices) {
        if (holder == uid || other.device != device.device) continue;
        if (device.share_id.empty() && !Is("grants_twice")) return Cat(device.device, " is held by claim UID ", holder);
        if (!device.share_id.empty() && Is("one_share")) return Cat(device.device, " has a share already");
        sum += other.memory;
      }
    }
    return sum > Quantity::FromInt64(8) && !Is("overcommits") ? Cat(device.device, " has no room") : "";
  }

  Answer Grant(const Claim& claim, const std::string& uid) {
    const bool is_repeat = held_.contains(uid);
    if (Is("never_again") && !is_repeat && gone_.contains(uid)) return {"it was unprepared", {}};
    Answer answer;
    for (const AllocationResult& result : claim.allocation->results) {
      if (result.driver != kName && Is("refuses_others")) return {Cat("driver ", result.driver, " is unknown"), {}};
      if (result.driver != kName) continue;
      const bool is_known = result.device.starts_with("whole-") || result.device == "share-0";
      if (!is_known && !Is("grants_absent")) return {Cat("there is no device ", result.device), {}};
      Granted device{result.request, result.pool, result.device, result.share_id.value_or(""), CdiId(uid, result.device, is_repeat), {}};
      if (const auto memory = result.consumed_capacity.find("memory"); memory != result.consumed_capacity.end()) device.memory = memory->second;
      if (std::string problem = HoldingProblem(device, uid); !problem.empty()) return {std::move(problem), {}};
      answer.devices.push_back(std::move(device));
    }
    if (Is("loses_devices") && answer.devices.size() > 1) answer.devices.pop_back();
    const bool is_lazy = is_repeat && (Is("writes_once") || (Is("writes_once_restarted") && has_restarted_));
    if (!Is("no_spec") && !is_lazy) WriteSpec(uid, answer.devices);
    return answer;
  }

  std::string CdiId(const std::string& uid, const std::string& device, bool is_repeat) const {
    if (Is("odd_cdi_id")) return Cat(uid, "-", device);
    if (Is("one_cdi_id")) return "fake.example.com/claim=one";
    return Cat("fake.example.com/claim=", uid, "-", device, is_repeat && Is("moving_cdi_id") ? "-again" : "");
  }

  std::string SpecFile(const std::string& uid) const { return Cat(Cdi(), "/", uid, ".json"); }
  void WriteSpec(const std::string& uid, const std::vector<Granted>& devices) const {
    json::array list;
    for (const Granted& device : devices) {
      const auto add = [&list](const std::string& name) {
        list.push_back(json::object{{"name", name}, {"containerEdits", json::object{{"env", json::array{"A=1"}}}}});
      };
      const std::string name = device.cdi_id.substr(device.cdi_id.find('=') + 1);
      add(name);
      // Both ids: whether an answer's id is still there when its file is read must not hang on the next call.
      if (Is("moving_cdi_id")) add(name.ends_with("-again") ? name.substr(0, name.size() - 6) : Cat(name, "-again"));
    }
    const json::object spec{{"cdiVersion", "0.6.0"}, {"kind", "fake.example.com/claim"}, {"devices", std::move(list)}};
    (void)WriteFileAtomically(SpecFile(uid), json::serialize(spec), 0644, Durability::kVisible);
  }

  // ---- Slices.

  std::string Selector() const { return Cat(kSlices, "?fieldSelector=", kube::Escape(Cat("spec.driver=", kName))); }
  void RemoveSlices() const {
    const auto items = client_->List(Selector(), DeadlineIn(10s));
    if (!items.ok()) return;
    for (const json::object& item : *items) (void)client_->Delete(Cat(kSlices, "/", item.at("metadata").at("name").as_string().c_str()), {}, DeadlineIn(10s));
  }

  json::array Devices(std::size_t slice) const {
    json::array devices;
    for (const char* name : {"whole-0", "whole-1", "whole-2", "whole-3"}) {
      if (slice == 0 || (Is("twice") && name == std::string("whole-3"))) devices.push_back(json::object{{"name", name}});
    }
    const json::object policy{{"default", "1"}, {"validRange", json::object{{"min", "1"}, {"max", "4"}}}};
    if (slice == 1) {
      devices.push_back(json::object{{"name", "share-0"},
                                     {"allowMultipleAllocations", true},
                                     {"capacity", json::object{{"memory", json::object{{"value", "8"}, {"requestPolicy", policy}}}}}});
    }
    return devices;
  }

  void Publish() {
    if (Is("no_slices")) return;
    auto items = client_->List(Selector(), DeadlineIn(10s));
    if (!items.ok()) return;
    if (Is("rewrites") && items->size() == 2) {
      json::object& slice = items->front();
      slice["metadata"].as_object()["labels"] = json::object{{"again", Cat("n", calls_++)}};
      (void)client_->Replace(Cat(kSlices, "/", slice.at("metadata").at("name").as_string().c_str()), slice, DeadlineIn(10s));
    }
    const auto now = std::chrono::steady_clock::now();
    if (items->size() == 2) {
      was_whole_ = true;
      missing_since_ = now;
      return;
    }
    if (was_whole_ && (Is("stays_away") || (Is("slow_return") && now - missing_since_ < 1500ms))) return;
    const auto node = client_->Get(Cat("/api/v1/nodes/", kNode), DeadlineIn(10s));
    if (!node.ok()) return;
    RemoveSlices();
    for (std::size_t i = 0; i < 2; ++i) {
      json::object metadata{{"generateName", Cat(i, "-fake-")}};
      if (!Is("no_owner")) {
        metadata["ownerReferences"] =
            json::array{json::object{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", kNode}, {"uid", node->at("metadata").at("uid").as_string()}}};
      }
      const json::object pool{{"name", kNode}, {"generation", 1}, {"resourceSliceCount", Is("wrong_count") ? 3 : 2}};
      const json::object spec{{"driver", kName}, {"nodeName", kNode}, {"pool", pool}, {"devices", Devices(i)}};
      (void)client_->Create(kSlices, json::object{{"metadata", std::move(metadata)}, {"spec", spec}}, DeadlineIn(10s));
    }
  }

  const std::string directory_, fault_;
  std::unique_ptr<kube::Client> client_;

  std::mutex mutex_;
  std::map<std::string, std::vector<Granted>> held_;  // by claim UID
  std::set<std::string> gone_, stuck_, unreserved_;   // claim UIDs
  int in_flight_ = 0;
  bool has_restarted_ = false;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> is_dead_ = false, has_ended_ = false;

  bool was_whole_ = false;  // of the thread's own
  std::chrono::steady_clock::time_point missing_since_{};

  std::unique_ptr<Service<local::V1, false>> stable_;
  std::unique_ptr<Service<local::V1Beta1, true>> beta_;
  std::unique_ptr<Registration> registration_;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<grpc::Server> plugin_server_, registration_server_;
  std::jthread work_;
};

FakeDriver::FakeDriver(const std::string& directory, const std::string& fault, const std::string& kubeconfig)
    : impl_(std::make_unique<Impl>(directory, fault, kubeconfig)) {}
FakeDriver::~FakeDriver() = default;

std::string FakeDriver::registration_socket() const { return impl_->RegistrationSocket(); }
std::string FakeDriver::cdi_directory() const { return impl_->Cdi(); }
std::string FakeDriver::restart_command() const {
  return Cat("touch ", impl_->RestartFile(), " && while [ -e ", impl_->RestartFile(), " ]; do sleep 0.02; done");
}

}  // namespace tranche::test
