#include "slices/slice.h"

#include <algorithm>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "model/json_reader.h"

namespace tranche::slices {
namespace json = boost::json;

namespace {

json::string_view JsonKey(std::string_view text) { return {text.data(), text.size()}; }

bool IsAnyOf(std::string_view word, std::initializer_list<std::string_view> words) { return std::find(words.begin(), words.end(), word) != words.end(); }

// The members that `known` does not name, as text.
json::object Others(const JsonReader& at, std::initializer_list<std::string_view> known) {
  json::object others;
  const json::object* object = at.present() ? at.value()->if_object() : nullptr;
  if (object == nullptr) return others;
  for (const json::key_value_pair& member : *object) {
    if (!IsAnyOf({member.key().data(), member.key().size()}, known)) others[member.key()] = member.value();
  }
  return others;
}

std::string Text(const json::object& object) { return object.empty() ? std::string() : json::serialize(object); }

// What was kept as text; an empty object where nothing was.
json::object Kept(const std::string& text) {
  if (text.empty()) return {};
  absl::StatusOr<json::value> value = ParseJson(text);
  return value.ok() && value->is_object() ? value->as_object() : json::object();
}

std::string Whole(WallTime time) { return Cat(FormatTime(time).substr(0, 19), "Z"); }

// ---- Reading.

DeviceTaint ReadTaint(const JsonReader& at) {
  DeviceTaint taint{at["key"].String(), at["value"].StringOr(""), at["effect"].String(), std::nullopt};
  if (const std::optional<std::string> text = at["timeAdded"].OptionalString()) {
    absl::StatusOr<WallTime> time = ParseTime(*text);
    if (time.ok()) taint.time_added = *time;
    if (!time.ok()) at["timeAdded"].Fail(View(time.status().message()));
  }
  return taint;
}

template <typename Value>
Value Part(const JsonReader& at, absl::StatusOr<Value> (*decode)(const json::value&)) {
  if (!at.present()) return {};
  absl::StatusOr<Value> value = decode(*at.value());
  if (value.ok()) return *std::move(value);
  at.Fail(View(value.status().message()));
  return {};
}

// Attributes whose values are lists: the model has none.
json::object ListAttributes(const JsonReader& at, const Attributes& read) {
  json::object lists;
  const json::object* object = at.present() ? at.value()->if_object() : nullptr;
  if (object == nullptr || object->size() == read.size()) return lists;
  for (const json::key_value_pair& member : *object) {
    if (!read.contains({member.key().data(), member.key().size()})) lists[member.key()] = member.value();
  }
  return lists;
}

SliceDevice ReadDevice(const JsonReader& at) {
  SliceDevice device;
  device.name = at["name"].NonEmptyString();
  device.attributes = Part(at["attributes"], DecodeAttributes);
  for (const auto& [name, member] : at["capacity"].Members()) {
    SliceCapacity capacity{member["value"].Amount(), std::nullopt};
    if (member["requestPolicy"].present()) capacity.request_policy = Part(member["requestPolicy"], DecodeRequestPolicy);
    device.capacity.emplace(name, std::move(capacity));
  }
  device.consumes_counters = Part(at["consumesCounters"], DecodeCounterUses);
  for (const JsonReader& taint : at["taints"].Items()) device.taints.push_back(ReadTaint(taint));
  device.allow_multiple_allocations = at["allowMultipleAllocations"].BoolOr(false);
  json::object others = Others(at, {"name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"});
  if (json::object lists = ListAttributes(at["attributes"], device.attributes); !lists.empty()) others["attributes"] = std::move(lists);
  device.unknown = Text(others);
  return device;
}

CounterSet ReadCounterSet(const JsonReader& at) {
  CounterSet set{at["name"].NonEmptyString(), {}};
  for (const auto& [name, counter] : at["counters"].Members()) set.counters[name] = counter["value"].Amount();
  return set;
}

void ReadMetadata(const JsonReader& at, Slice& slice) {
  slice.name = at["name"].StringOr("");
  slice.generate_name = at["generateName"].StringOr("");
  slice.uid = at["uid"].StringOr("");
  slice.resource_version = at["resourceVersion"].StringOr("");
  for (const auto& [name, value] : at["labels"].Members()) slice.labels[name] = value.String();
  json::object others = Others(at, {"name", "generateName", "uid", "resourceVersion", "labels", "ownerReferences", "managedFields"});
  json::array owners;
  for (const JsonReader& owner : at["ownerReferences"].Items()) {
    const bool node = owner["kind"].StringOr("") == "Node" && slice.owner.uid.empty();
    if (node) slice.owner = {owner["name"].String(), owner["uid"].String()};
    if (!node) owners.push_back(*owner.value());
  }
  if (!owners.empty()) others["ownerReferences"] = std::move(owners);
  slice.unknown_metadata = Text(others);
}

// ---- Writing.

json::object EncodeTaint(const DeviceTaint& taint) {
  json::object object{{"key", taint.key}, {"effect", taint.effect}};
  if (!taint.value.empty()) object["value"] = taint.value;
  if (taint.time_added.has_value()) object["timeAdded"] = Whole(*taint.time_added);
  return object;
}

json::object EncodeCapacity(const std::map<std::string, SliceCapacity>& capacities) {
  json::object object;
  for (const auto& [name, capacity] : capacities) {
    json::object& one = object[name].emplace_object();
    one["value"] = capacity.value.ToString();
    if (capacity.request_policy.has_value()) one["requestPolicy"] = EncodeRequestPolicy(*capacity.request_policy);
  }
  return object;
}

json::object EncodeDevice(const SliceDevice& device) {
  json::object object = Kept(device.unknown);
  json::object lists;
  if (const json::value* kept = object.if_contains("attributes"); kept != nullptr && kept->is_object()) lists = kept->as_object();
  object["name"] = device.name;
  object.erase("attributes");
  json::value attributes = EncodeAttributes(device.attributes);
  for (const json::key_value_pair& list : lists) attributes.as_object().emplace(list.key(), list.value());
  if (!attributes.as_object().empty()) object["attributes"] = std::move(attributes);
  if (!device.capacity.empty()) object["capacity"] = EncodeCapacity(device.capacity);
  if (!device.consumes_counters.empty()) object["consumesCounters"] = EncodeCounterUses(device.consumes_counters);
  if (!device.taints.empty()) {
    json::array& taints = object["taints"].emplace_array();
    for (const DeviceTaint& taint : device.taints) taints.push_back(EncodeTaint(taint));
  }
  if (device.allow_multiple_allocations) object["allowMultipleAllocations"] = true;
  return object;
}

json::object EncodeCounterSet(const CounterSet& set) {
  json::object counters;
  for (const auto& [name, amount] : set.counters) counters[name] = json::object{{"value", amount.ToString()}};
  return json::object{{"name", set.name}, {"counters", std::move(counters)}};
}

json::object EncodeMetadata(const Slice& slice) {
  json::object metadata = Kept(slice.unknown_metadata);
  const auto put = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) metadata[JsonKey(key)] = value;
  };
  put("name", slice.name);
  put("generateName", slice.generate_name);
  put("uid", slice.uid);
  put("resourceVersion", slice.resource_version);
  if (!slice.labels.empty()) {
    json::object& labels = metadata["labels"].emplace_object();
    for (const auto& [name, value] : slice.labels) labels[name] = value;
  }
  if (slice.owner.uid.empty()) return metadata;
  json::array owners;
  owners.push_back(json::object{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", slice.owner.name}, {"uid", slice.owner.uid}, {"controller", true}});
  if (const json::value* others = metadata.if_contains("ownerReferences"); others != nullptr && others->is_array()) {
    for (const json::value& other : others->get_array()) owners.push_back(other);
  }
  metadata["ownerReferences"] = std::move(owners);
  return metadata;
}

json::object EncodeSpec(const Slice& slice) {
  json::object spec = Kept(slice.unknown_spec);
  spec["driver"] = slice.driver;
  spec["pool"] = json::object{{"name", slice.pool_name}, {"generation", slice.generation}, {"resourceSliceCount", slice.slice_count}};
  if (!slice.node_name.empty()) spec["nodeName"] = slice.node_name;
  if (!slice.content->devices.empty()) {
    json::array& devices = spec["devices"].emplace_array();
    devices.reserve(slice.content->devices.size());
    for (const SliceDevice& device : slice.content->devices) devices.push_back(EncodeDevice(device));
  }
  if (!slice.content->shared_counters.empty()) {
    json::array& sets = spec["sharedCounters"].emplace_array();
    for (const CounterSet& set : slice.content->shared_counters) sets.push_back(EncodeCounterSet(set));
  }
  return spec;
}

bool SameTaints(const std::vector<DeviceTaint>& left, const std::vector<DeviceTaint>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const DeviceTaint& a, const DeviceTaint& b) { return a.key == b.key && a.value == b.value && a.effect == b.effect; });
}

}  // namespace

absl::StatusOr<Slice> DecodeSlice(const json::value& value) {
  absl::Status error;
  const JsonReader at(value, &error);
  Slice slice;
  ReadMetadata(at["metadata"], slice);
  const JsonReader spec = at["spec"];
  slice.driver = spec["driver"].NonEmptyString();
  slice.node_name = spec["nodeName"].StringOr("");
  slice.pool_name = spec["pool"]["name"].NonEmptyString();
  slice.generation = spec["pool"]["generation"].Int64Or(0);
  slice.slice_count = spec["pool"]["resourceSliceCount"].Int64Or(0);
  SliceContent content;
  for (const JsonReader& device : spec["devices"].Items()) content.devices.push_back(ReadDevice(device));
  for (const JsonReader& set : spec["sharedCounters"].Items()) content.shared_counters.push_back(ReadCounterSet(set));
  slice.content = std::make_shared<const SliceContent>(std::move(content));
  slice.unknown_spec = Text(Others(spec, {"driver", "nodeName", "pool", "devices", "sharedCounters"}));
  if (error.ok()) return slice;
  return Annotate(error, Cat("ResourceSlice ", slice.name));
}

json::object EncodeSlice(const Slice& slice) {
  return json::object{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceSlice"}, {"metadata", EncodeMetadata(slice)}, {"spec", EncodeSpec(slice)}};
}

bool SameDevice(const SliceDevice& left, const SliceDevice& right) {
  return left.name == right.name && left.attributes == right.attributes && left.capacity == right.capacity &&
         left.consumes_counters == right.consumes_counters && left.allow_multiple_allocations == right.allow_multiple_allocations &&
         SameTaints(left.taints, right.taints);
}

bool SameContent(const SliceContent& left, const SliceContent& right) {
  if (&left == &right) return true;
  return left.shared_counters == right.shared_counters &&
         std::equal(left.devices.begin(), left.devices.end(), right.devices.begin(), right.devices.end(), SameDevice);
}

}  // namespace tranche::slices
