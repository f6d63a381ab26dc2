// ResourceClaim with the field names of resource.k8s.io/v1.
#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "model/json_parts.h"

namespace tranche {
namespace json = boost::json;

namespace {

json::array EncodeStrings(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

// ---- Decoding.

AllocationMode ReadAllocationMode(const JsonReader& at) {
  const std::string text = at.StringOr("ExactCount");
  if (text == "All") return AllocationMode::kAll;
  if (text != "ExactCount") at.Fail(Cat("\"", text, "\" is not an allocation mode; use ExactCount or All"));
  return AllocationMode::kExactCount;
}

// The fields that `exactly` and the entries of `firstAvailable` share.
DeviceRequest ReadRequestBody(const JsonReader& at) {
  DeviceRequest request;
  request.device_class = at["deviceClassName"].NonEmptyString();
  request.allocation_mode = ReadAllocationMode(at["allocationMode"]);
  request.count = at["count"].Int64Or(1);
  request.admin_access = at["adminAccess"].BoolOr(false);
  request.capacity = ReadQuantities(at["capacity"]["requests"]);
  for (const JsonReader& selector : at["selectors"].Items()) request.selectors.push_back(selector["cel"]["expression"].String());
  return request;
}

DeviceRequest ReadRequest(const JsonReader& at) {
  const bool exact = at["exactly"].present();
  const std::vector<JsonReader> alternatives = at["firstAvailable"].Items();
  if (exact == !alternatives.empty()) at.Fail("must have either exactly or firstAvailable");
  DeviceRequest request;
  if (exact) request = ReadRequestBody(at["exactly"]);
  request.name = at["name"].NonEmptyString();
  for (const JsonReader& alternative : alternatives) {
    DeviceRequest sub = ReadRequestBody(alternative);
    sub.name = alternative["name"].NonEmptyString();
    request.first_available.push_back(std::move(sub));
  }
  return request;
}

DeviceConstraint ReadConstraint(const JsonReader& at) {
  return {at["requests"].Strings(), at["matchAttribute"].OptionalString(), at["distinctAttribute"].OptionalString()};
}

ConfigSource ReadSource(const JsonReader& at) {
  const std::string text = at.StringOr("FromClaim");
  if (text == "FromClass") return ConfigSource::kClass;
  if (text != "FromClaim") at.Fail(Cat("\"", text, "\" is not a source; use FromClass or FromClaim"));
  return ConfigSource::kClaim;
}

// Entries that are not opaque (a kind that a later API may add) are left out: they address no driver.
std::vector<OpaqueConfig> ReadConfig(const JsonReader& at) {
  std::vector<OpaqueConfig> entries;
  for (const JsonReader& item : at.Items()) {
    const JsonReader opaque = item["opaque"];
    if (!opaque.present()) continue;
    OpaqueConfig entry{ReadSource(item["source"]), item["requests"].Strings(), opaque["driver"].NonEmptyString(), "{}"};
    if (const json::value* parameters = opaque["parameters"].value()) entry.parameters = json::serialize(*parameters);
    entries.push_back(std::move(entry));
  }
  return entries;
}

AllocationResult ReadResult(const JsonReader& at) {
  AllocationResult result;
  result.request = at["request"].NonEmptyString();
  result.driver = at["driver"].NonEmptyString();
  result.pool = at["pool"].NonEmptyString();
  result.device = at["device"].NonEmptyString();
  result.admin_access = at["adminAccess"].BoolOr(false);
  result.share_id = at["shareID"].OptionalString();
  result.consumed_capacity = ReadQuantities(at["consumedCapacity"]);
  return result;
}

Allocation ReadAllocation(const JsonReader& at) {
  Allocation allocation;
  for (const JsonReader& result : at["devices"]["results"].Items()) allocation.results.push_back(ReadResult(result));
  allocation.config = ReadConfig(at["devices"]["config"]);
  return allocation;
}

void CheckKind(const JsonReader& at) {
  if (const std::string kind = at["kind"].StringOr("ResourceClaim"); kind != "ResourceClaim") {
    at["kind"].Fail(Cat("is \"", kind, "\"; a ResourceClaim is needed"));
  }
  const std::string version = at["apiVersion"].StringOr("resource.k8s.io/v1");
  if (version != "resource.k8s.io/v1" && version != "resource.k8s.io/v1beta2") {
    at["apiVersion"].Fail(Cat("is \"", version, "\", whose fields differ; write the claim as resource.k8s.io/v1"));
  }
}

// ---- Encoding.

json::object EncodeRequestBody(const DeviceRequest& request) {
  json::object body{{"deviceClassName", request.device_class}};
  if (!request.selectors.empty()) {
    json::array selectors;
    for (const std::string& expression : request.selectors) selectors.push_back(json::object{{"cel", {{"expression", expression}}}});
    body["selectors"] = std::move(selectors);
  }
  const bool all = request.allocation_mode == AllocationMode::kAll;
  body["allocationMode"] = all ? "All" : "ExactCount";
  if (!all) body["count"] = request.count;
  if (request.admin_access) body["adminAccess"] = true;
  if (!request.capacity.empty()) body["capacity"] = json::object{{"requests", EncodeQuantities(request.capacity)}};
  return body;
}

json::object EncodeRequest(const DeviceRequest& request) {
  json::object object{{"name", request.name}};
  if (request.first_available.empty()) {
    object["exactly"] = EncodeRequestBody(request);
    return object;
  }
  json::array& alternatives = object["firstAvailable"].emplace_array();
  for (const DeviceRequest& sub : request.first_available) {
    json::object one = EncodeRequestBody(sub);
    one["name"] = sub.name;
    alternatives.push_back(std::move(one));
  }
  return object;
}

json::object EncodeConstraint(const DeviceConstraint& constraint) {
  json::object object;
  if (!constraint.requests.empty()) object["requests"] = EncodeStrings(constraint.requests);
  if (constraint.match_attribute.has_value()) object["matchAttribute"] = *constraint.match_attribute;
  if (constraint.distinct_attribute.has_value()) object["distinctAttribute"] = *constraint.distinct_attribute;
  return object;
}

enum class WithSource { kNo, kYes };

json::array EncodeConfig(const std::vector<OpaqueConfig>& entries, WithSource with_source) {
  json::array array;
  for (const OpaqueConfig& entry : entries) {
    json::object object;
    if (with_source == WithSource::kYes) object["source"] = entry.source == ConfigSource::kClass ? "FromClass" : "FromClaim";
    if (!entry.requests.empty()) object["requests"] = EncodeStrings(entry.requests);
    absl::StatusOr<json::value> parameters = ParseJson(entry.parameters);
    object["opaque"] = json::object{{"driver", entry.driver}, {"parameters", parameters.ok() ? *std::move(parameters) : json::value(json::object())}};
    array.push_back(std::move(object));
  }
  return array;
}

json::object EncodeResult(const AllocationResult& result) {
  json::object object{{"request", result.request}, {"driver", result.driver}, {"pool", result.pool}, {"device", result.device}};
  if (result.admin_access) object["adminAccess"] = true;
  if (result.share_id.has_value()) object["shareID"] = *result.share_id;
  if (!result.consumed_capacity.empty()) object["consumedCapacity"] = EncodeQuantities(result.consumed_capacity);
  return object;
}

json::object EncodeMetadata(const Claim& claim) {
  json::object metadata{{"namespace", claim.namespace_name}, {"name", claim.name}, {"uid", claim.uid}};
  if (claim.annotations.empty()) return metadata;
  json::object& annotations = metadata["annotations"].emplace_object();
  for (const auto& [key, text] : claim.annotations) annotations[key] = text;
  return metadata;
}

}  // namespace

absl::StatusOr<Claim> DecodeClaim(const json::value& value) {
  absl::Status error;
  const JsonReader at(value, &error);
  CheckKind(at);
  Claim claim;
  const JsonReader metadata = at["metadata"];
  claim.namespace_name = metadata["namespace"].StringOr("default");
  claim.name = metadata["name"].NonEmptyString();
  claim.uid = metadata["uid"].StringOr("");
  for (const auto& [key, text] : metadata["annotations"].Members()) claim.annotations.emplace(key, text.StringOr(""));
  const JsonReader devices = at["spec"]["devices"];
  for (const JsonReader& request : devices["requests"].Items()) claim.requests.push_back(ReadRequest(request));
  for (const JsonReader& constraint : devices["constraints"].Items()) claim.constraints.push_back(ReadConstraint(constraint));
  claim.config = ReadConfig(devices["config"]);
  const JsonReader status = at["status"];
  if (status["allocation"].present()) claim.allocation = ReadAllocation(status["allocation"]);
  for (const JsonReader& consumer : status["reservedFor"].Items()) {
    claim.reserved_for.push_back({consumer["resource"].StringOr(""), consumer["name"].StringOr(""), consumer["uid"].StringOr("")});
  }
  TRANCHE_RETURN_IF_ERROR(error);
  return claim;
}

json::value EncodeClaim(const Claim& claim) {
  json::object devices;
  json::array& requests = devices["requests"].emplace_array();
  for (const DeviceRequest& request : claim.requests) requests.push_back(EncodeRequest(request));
  if (!claim.constraints.empty()) {
    json::array& constraints = devices["constraints"].emplace_array();
    for (const DeviceConstraint& constraint : claim.constraints) constraints.push_back(EncodeConstraint(constraint));
  }
  if (!claim.config.empty()) devices["config"] = EncodeConfig(claim.config, WithSource::kNo);
  json::object object{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceClaim"}, {"metadata", EncodeMetadata(claim)}};
  object["spec"] = json::object{{"devices", std::move(devices)}};
  json::object status;
  if (claim.allocation.has_value()) status["allocation"] = EncodeAllocation(*claim.allocation);
  if (!claim.reserved_for.empty()) {
    json::array& consumers = status["reservedFor"].emplace_array();
    for (const ConsumerReference& consumer : claim.reserved_for) {
      consumers.push_back(json::object{{"resource", consumer.resource}, {"name", consumer.name}, {"uid", consumer.uid}});
    }
  }
  if (!status.empty()) object["status"] = std::move(status);
  return object;
}

json::value EncodeAllocation(const Allocation& allocation) {
  json::object devices;
  json::array& results = devices["results"].emplace_array();
  for (const AllocationResult& result : allocation.results) results.push_back(EncodeResult(result));
  if (!allocation.config.empty()) devices["config"] = EncodeConfig(allocation.config, WithSource::kYes);
  return json::object{{"devices", std::move(devices)}};
}

absl::StatusOr<Allocation> DecodeAllocation(const json::value& value) {
  absl::Status error;
  Allocation allocation = ReadAllocation({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return allocation;
}

}  // namespace tranche
