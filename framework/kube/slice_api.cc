#include "kube/slice_api.h"

#include <optional>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "telemetry/log.h"

namespace tranche::kube {
namespace json = boost::json;

namespace {

constexpr std::string_view kSlices = "/apis/resource.k8s.io/v1/resourceslices";

std::string MetadataOf(const json::object& object, std::string_view field) {
  const json::value* metadata = object.if_contains("metadata");
  if (metadata == nullptr || !metadata->is_object()) return "";
  const json::value* value = metadata->get_object().if_contains(field);
  if (value == nullptr || !value->is_string()) return "";
  return {value->get_string().data(), value->get_string().size()};
}

std::string PathOf(std::string_view name) { return Cat(kSlices, "/", Escape(name)); }

absl::StatusOr<slices::Slice> Decode(absl::StatusOr<json::object> object) {
  if (!object.ok()) return object.status();
  const std::string name = MetadataOf(*object, "name");
  absl::StatusOr<slices::Slice> slice = slices::DecodeSlice(json::value(*std::move(object)));
  if (!slice.ok()) return Annotate(slice.status(), Cat("ResourceSlice ", name));
  return slice;
}

std::optional<slices::Slice> DecodeOrWarn(json::object object) {
  absl::StatusOr<slices::Slice> slice = Decode(std::move(object));
  if (slice.ok()) return *std::move(slice);
  LogWarning("a slice from the API server cannot be read and is left alone", {{"error", std::string(slice.status().message())}});
  return std::nullopt;
}

class ApiSliceWatch : public slices::SliceWatch {
 public:
  explicit ApiSliceWatch(std::unique_ptr<Watch> watch) : watch_(std::move(watch)) {}

 private:
  const std::unique_ptr<Watch> watch_;
};

}  // namespace

absl::StatusOr<slices::NodeOwner> ApiSliceApi::ReadNode(Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const json::object node, client_.Get(Cat("/api/v1/nodes/", Escape(node_name_)), deadline));
  slices::NodeOwner owner{.name = node_name_, .uid = MetadataOf(node, "uid")};
  if (owner.uid.empty()) return absl::DataLossError(Cat("Node ", node_name_, ": metadata.uid is missing"));
  return owner;
}

std::unique_ptr<slices::SliceWatch> ApiSliceApi::Watch(const std::string& driver, slices::SliceWatchHandler handler) {
  WatchHandler wrapped;
  wrapped.on_list = [on_list = std::move(handler.on_list)](std::vector<json::object> items) {
    std::vector<slices::Slice> slices;
    for (json::object& item : items) {
      if (std::optional<slices::Slice> slice = DecodeOrWarn(std::move(item))) slices.push_back(*std::move(slice));
    }
    on_list(std::move(slices));
  };
  wrapped.on_event = [on_changed = std::move(handler.on_changed), on_deleted = std::move(handler.on_deleted)](WatchEvent event, json::object item) {
    if (event == WatchEvent::kDeleted) return on_deleted(MetadataOf(item, "name"), MetadataOf(item, "uid"));
    if (std::optional<slices::Slice> slice = DecodeOrWarn(std::move(item))) on_changed(*std::move(slice));
  };
  wrapped.on_problem = std::move(handler.on_problem);
  const std::string selector = Cat("spec.nodeName=", node_name_, ",spec.driver=", driver);
  return std::make_unique<ApiSliceWatch>(client_.Watch(Cat(kSlices, "?fieldSelector=", Escape(selector)), std::move(wrapped)));
}

absl::StatusOr<slices::Slice> ApiSliceApi::Create(const slices::Slice& slice, Deadline deadline) {
  return Decode(client_.Create(std::string(kSlices), slices::EncodeSlice(slice), deadline));
}

absl::StatusOr<slices::Slice> ApiSliceApi::Replace(const slices::Slice& slice, Deadline deadline) {
  return Decode(client_.Replace(PathOf(slice.name), slices::EncodeSlice(slice), deadline));
}

absl::Status ApiSliceApi::Delete(const slices::Slice& slice, Deadline deadline) {
  return client_.Delete(PathOf(slice.name), {.uid = slice.uid, .resource_version = slice.resource_version}, deadline);
}

absl::StatusOr<int> ApiSliceApi::ServerMinor(Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const ServerVersion version, client_.Version(deadline));
  return version.minor;
}

absl::StatusOr<slices::Slice> ApiSliceApi::DryRunCreate(const slices::Slice& slice, Deadline deadline) {
  return Decode(client_.Create(Cat(kSlices, "?dryRun=All"), slices::EncodeSlice(slice), deadline));
}

}  // namespace tranche::kube
