#include "conform/cluster.h"

#include <algorithm>
#include <chrono>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json_reader.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";
constexpr char kFinalizer[] = "resource.kubernetes.io/delete-protection";

Deadline Soon() { return DeadlineIn(30s); }

json::object Metadata(const std::string& name, const std::string& namespace_name) {
  return {{"name", name}, {"namespace", namespace_name}, {"labels", json::object{{"app.kubernetes.io/managed-by", "dra-conform"}}}};
}

std::string TextAt(const json::object& object, std::string_view outer, std::string_view inner) {
  absl::Status error;
  const json::value value(object);
  return JsonReader(value, &error)[outer][inner].StringOr("");
}

json::object Amounts(const Quantities& amounts) {
  json::object object;
  for (const auto& [name, amount] : amounts) object[name] = amount.ToString();
  return object;
}

// What `exactly` and a subrequest have in common.
json::object DeviceAsk(const Want& want, std::size_t count) {
  json::object ask{{"deviceClassName", want.device_class}, {"allocationMode", "ExactCount"}, {"count", static_cast<std::int64_t>(count)}};
  if (!want.share_id.empty() && !want.consumed.empty()) ask["capacity"] = json::object{{"requests", Amounts(want.consumed)}};
  return ask;
}

json::array Requests(const std::vector<Want>& wants) {
  json::array requests;
  std::set<std::string> seen;
  for (const Want& want : wants) {
    const std::string base(BaseRequest(want.request));
    if (!seen.insert(base).second) continue;
    const auto count = std::count_if(wants.begin(), wants.end(), [&](const Want& other) { return BaseRequest(other.request) == base; });
    json::object ask = DeviceAsk(want, static_cast<std::size_t>(count));
    if (base == want.request) {
      requests.push_back(json::object{{"name", base}, {"exactly", std::move(ask)}});
    } else {
      ask["name"] = want.request.substr(base.size() + 1);
      requests.push_back(json::object{{"name", base}, {"firstAvailable", json::array{std::move(ask)}}});
    }
  }
  return requests;
}

json::array Results(const std::vector<Want>& wants) {
  json::array results;
  for (const Want& want : wants) {
    json::object result{{"request", want.request}, {"driver", want.driver}, {"pool", want.pool}, {"device", want.device}};
    if (!want.share_id.empty()) {
      result["shareID"] = want.share_id;
      result["consumedCapacity"] = Amounts(want.consumed);
    }
    results.push_back(std::move(result));
  }
  return results;
}

json::array Configuration(const std::string& driver, const std::string& parameters, std::string_view source) {
  if (parameters.empty()) return {};
  json::object entry{{"opaque", json::object{{"driver", driver}, {"parameters", json::parse(parameters)}}}};
  if (!source.empty()) entry["source"] = source;
  return {std::move(entry)};
}

json::object NodeSelector(const std::string& node) {
  const json::object field{{"key", "metadata.name"}, {"operator", "In"}, {"values", json::array{node}}};
  return {{"nodeSelectorTerms", json::array{json::object{{"matchFields", json::array{field}}}}}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Connect(const ClusterOptions& options) {
  kube::ClientOptions client_options;
  client_options.kubeconfig = options.kubeconfig;
  client_options.context = options.context;
  client_options.user_agent = "dra-conform";
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<kube::Client> client, kube::Client::Create(client_options));
  TRANCHE_ASSIGN_OR_RETURN(const kube::ServerVersion version, client->Version(Soon()));
  std::unique_ptr<Cluster> cluster(new Cluster(options, std::move(client)));
  cluster->server_version_ = version.text;
  return cluster;
}

Cluster::~Cluster() {
  for (const ClaimReference& claim : std::vector<ClaimReference>(made_)) (void)Remove(claim);
  RemoveConsumer();
}

std::string Cluster::ClaimPath(const std::string& name) const {
  const std::string collection = Cat("/apis/resource.k8s.io/v1/namespaces/", kube::Escape(options_.namespace_name), "/resourceclaims");
  return name.empty() ? collection : Cat(collection, "/", kube::Escape(name));
}

absl::StatusOr<std::vector<slices::Slice>> Cluster::Slices(const std::string& driver) {
  const std::string selector = Cat("spec.driver=", driver, ",spec.nodeName=", options_.node);
  TRANCHE_ASSIGN_OR_RETURN(std::vector<json::object> items, client_->List(Cat(kSlices, "?fieldSelector=", kube::Escape(selector)), Soon()));
  std::vector<slices::Slice> slices;
  for (json::object& item : items) {
    const std::string name = TextAt(item, "metadata", "name");
    absl::StatusOr<slices::Slice> slice = slices::DecodeSlice(json::value(std::move(item)));
    if (!slice.ok()) return Annotate(slice.status(), Cat("ResourceSlice ", name));
    slices.push_back(*std::move(slice));
  }
  std::sort(slices.begin(), slices.end(), [](const slices::Slice& left, const slices::Slice& right) { return left.name < right.name; });
  return slices;
}

absl::Status Cluster::DeleteSlice(const std::string& name) { return client_->Delete(Cat(kSlices, "/", kube::Escape(name)), {}, Soon()); }

absl::StatusOr<std::string> Cluster::NodeUid() {
  TRANCHE_ASSIGN_OR_RETURN(const json::object node, client_->Get(Cat("/api/v1/nodes/", kube::Escape(options_.node)), Soon()));
  return TextAt(node, "metadata", "uid");
}

absl::StatusOr<std::set<DeviceKey>> Cluster::Taken(const std::string& driver) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<json::object> claims, client_->List("/apis/resource.k8s.io/v1/resourceclaims", Soon()));
  std::set<DeviceKey> taken;
  for (const json::object& claim : claims) {
    absl::Status error;
    const json::value value(claim);
    for (const JsonReader& result : JsonReader(value, &error)["status"]["allocation"]["devices"]["results"].Items()) {
      if (result["driver"].StringOr("") == driver) taken.emplace(result["pool"].StringOr(""), result["device"].StringOr(""));
    }
  }
  return taken;
}

// A claim controller takes a reservation back whose pod does not exist. Where no pod can be made, no such controller is expected either.
const ConsumerReference& Cluster::Consumer() {
  if (!consumer_.uid.empty()) return consumer_;
  const std::string name = Cat("dra-conform-", NewUuid().substr(0, 8));
  const json::object pod{{"metadata", Metadata(name, options_.namespace_name)},
                         {"spec", json::object{{"schedulingGates", json::array{json::object{{"name", "dra-conform/never"}}}},
                                               {"automountServiceAccountToken", false},
                                               {"containers", json::array{json::object{{"name", "none"}, {"image", "none"}}}}}}};
  const auto made = client_->Create(Cat("/api/v1/namespaces/", kube::Escape(options_.namespace_name), "/pods"), pod, Soon());
  is_consumer_real_ = made.ok();
  consumer_ = {"pods", name, made.ok() ? TextAt(*made, "metadata", "uid") : NewUuid()};
  return consumer_;
}

void Cluster::RemoveConsumer() {
  if (!is_consumer_real_) return;
  (void)client_->Delete(Cat("/api/v1/namespaces/", kube::Escape(options_.namespace_name), "/pods/", consumer_.name), {}, Soon());
}

absl::StatusOr<ClaimReference> Cluster::Make(const ClaimSpec& spec, const std::string& wanted_name) {
  const std::string name = wanted_name.empty() ? Cat("dra-conform-", NewUuid()) : wanted_name;
  const std::string driver = spec.wants.empty() ? "" : spec.wants.front().driver;
  json::object devices{{"requests", Requests(spec.wants)}};
  if (!options_.parameters.empty()) devices["config"] = Configuration(driver, options_.parameters, "");
  json::object metadata = Metadata(name, options_.namespace_name);
  metadata["finalizers"] = json::array{kFinalizer};
  const json::object claim{{"apiVersion", "resource.k8s.io/v1"},
                           {"kind", "ResourceClaim"},
                           {"metadata", std::move(metadata)},
                           {"spec", json::object{{"devices", std::move(devices)}}}};
  absl::StatusOr<json::object> object = client_->Create(ClaimPath(""), claim, Soon());
  if (!object.ok()) return object.status();
  const ClaimReference reference{options_.namespace_name, name, TextAt(*object, "metadata", "uid")};
  made_.push_back(reference);
  if (!spec.is_allocated) return reference;

  json::object allocated{{"results", Results(spec.wants)}};
  if (!options_.parameters.empty()) allocated["config"] = Configuration(driver, options_.parameters, "FromClaim");
  json::object status{{"allocation", json::object{{"devices", std::move(allocated)}, {"nodeSelector", NodeSelector(options_.node)}}}};
  if (spec.is_reserved) {
    const ConsumerReference& consumer = Consumer();
    status["reservedFor"] = json::array{json::object{{"resource", consumer.resource}, {"name", consumer.name}, {"uid", consumer.uid}}};
  }
  absl::Status written;
  for (int attempt = 0; attempt < 5; ++attempt) {
    (*object)["status"] = status;
    written = client_->Replace(Cat(ClaimPath(name), "/status"), *object, Soon()).status();
    if (!absl::IsAborted(written)) break;
    object = client_->Get(ClaimPath(name), Soon());
    if (!object.ok()) return object.status();
  }
  if (!written.ok()) return written;
  return reference;
}

absl::Status Cluster::Remove(const ClaimReference& claim) {
  const std::string path = ClaimPath(claim.name);
  const json::value no_finalizers = json::object{{"metadata", json::object{{"finalizers", nullptr}}}};
  const absl::Status freed = client_->Patch(path, kube::PatchKind::kMerge, no_finalizers, Soon()).status();
  if (!freed.ok() && !absl::IsNotFound(freed)) return freed;
  const absl::Status removed = client_->Delete(path, {.uid = claim.uid, .resource_version = ""}, Soon());
  std::erase(made_, claim);
  // Another object of that name by now: not ours to remove.
  return absl::IsNotFound(removed) || absl::IsAborted(removed) ? absl::OkStatus() : removed;
}

}  // namespace tranche::dra_conform
