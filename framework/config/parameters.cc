#include <algorithm>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "model/json.h"

namespace tranche::config {
namespace json = boost::json;

namespace {

absl::StatusOr<json::object> ParseObject(std::string_view text, std::string_view whose) {
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), Cat("parameters of ", whose));
  json::object* object = value->if_object();
  if (object == nullptr) return absl::InvalidArgumentError(Cat("parameters of ", whose, " must be a JSON object, such as {\"direction\": \"both\"}"));
  return std::move(*object);
}

std::string List(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) Append(list, list.empty() ? "" : ", ", name);
  return list.empty() ? "none" : list;
}

// Keys in order, at every depth, so that equal content has equal text.
json::value Canonical(const json::value& value) {
  if (const json::array* array = value.if_array()) {
    json::array sorted;
    for (const json::value& item : *array) sorted.push_back(Canonical(item));
    return sorted;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return value;
  std::map<std::string_view, const json::value*> members;
  for (const json::key_value_pair& member : *object) members.emplace(std::string_view(member.key().data(), member.key().size()), &member.value());
  json::object sorted;
  for (const auto& [key, member] : members) sorted[json::string_view(key.data(), key.size())] = Canonical(*member);
  return sorted;
}

json::object EncodeCapacity(const CapacityConfiguration& capacity) {
  json::object object;
  if (capacity.policy.has_value()) object["policy"] = EncodeRequestPolicy(*capacity.policy);
  if (capacity.reserve.amount.has_value()) object["reserve"] = capacity.reserve.amount->ToString();
  if (capacity.reserve.percent.has_value()) object["reserve"] = Cat(*capacity.reserve.percent, "%");
  return object;
}

json::object EncodeOffer(const OfferConfiguration& offer) {
  json::object object{{"name", offer.name}, {"backend", offer.backend}, {"mode", ModeName(offer.mode)}};
  json::object& capacities = object["capacity"].emplace_object();
  for (const auto& [name, capacity] : offer.capacity) capacities[name] = EncodeCapacity(capacity);
  return object;
}

json::array Sorted(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

}  // namespace

absl::StatusOr<std::string> MergeParameters(const ClassConfiguration& device_class, const std::vector<std::string>& claim_parameters_json) {
  TRANCHE_ASSIGN_OR_RETURN(json::object merged, ParseObject(device_class.parameters, Cat("class ", device_class.name)));
  const std::vector<std::string>& allowed = device_class.claim_parameters;
  for (const std::string& text : claim_parameters_json) {
    TRANCHE_ASSIGN_OR_RETURN(const json::object claim, ParseObject(text, "the claim"));
    for (const json::key_value_pair& member : claim) {
      const std::string key(member.key().data(), member.key().size());
      if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
        return absl::PermissionDeniedError(Cat("the claim sets parameter \"", key, "\", which class ", device_class.name,
                                               " does not leave to claims; allowed: ", List(allowed),
                                               ". Remove it from the claim, or add it to claimParameters of the class"));
      }
      merged[member.key()] = member.value();
    }
  }
  return ToJsonText(Canonical(merged));
}

PolicySnapshot SnapshotPolicy(const DriverConfiguration& driver, const ClassConfiguration& device_class) {
  json::object object{{"driver", driver.name}, {"class", device_class.name}};
  object["namespaces"] = Sorted(device_class.namespaces);
  object["minimumEnforcement"] = EnforcementName(device_class.minimum_enforcement);
  object["claimParameters"] = Sorted(device_class.claim_parameters);
  absl::StatusOr<json::value> parameters = ParseJson(device_class.parameters);
  object["parameters"] = parameters.ok() ? *std::move(parameters) : json::value(device_class.parameters);
  for (const OfferConfiguration& offer : driver.offers) {
    if (offer.name == device_class.offer) object["offer"] = EncodeOffer(offer);
  }
  PolicySnapshot snapshot;
  snapshot.json = ToJsonText(Canonical(object));
  snapshot.version = Cat("sha256:", Sha256Hex(snapshot.json));
  return snapshot;
}

}  // namespace tranche::config
