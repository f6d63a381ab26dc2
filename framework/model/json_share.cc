// Backend payloads, schemaVersion 1 (sdk/schema/).
#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "model/json_parts.h"

namespace tranche {
namespace json = boost::json;

namespace {

constexpr std::size_t kMaxStateBytes = 4096;

json::array EncodeStrings(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

void CheckSchemaVersion(const JsonReader& at) {
  if (const std::int64_t version = at["schemaVersion"].Int64Or(1); version != 1) {
    at["schemaVersion"].Fail(Cat("is ", version, "; this host reads version 1"));
  }
}

// ---- Amounts: an integer in base units, with the exact Kubernetes text beside it where there is one.

json::object EncodeAmount(const Quantity& amount) {
  const absl::StatusOr<std::int64_t> whole = amount.CeilToInt64();
  return {{"value", whole.ok() ? *whole : 0}, {"text", amount.ToString()}};
}

// The text decides how the amount is written, the integer is its check.
Quantity ReadAmount(const JsonReader& at) {
  const Quantity value = Quantity::FromInt64(at["value"].Int64());
  const std::optional<Quantity> text = at["text"].OptionalAmount();
  if (!text.has_value()) return value;
  if (*text != value) {
    at["text"].Fail(Cat("\"", text->ToString(), "\" is not equal to value ", value.ToString(), "; both state the same amount in base units"));
  }
  return *text;
}

PhysicalCapacity ReadCapacity(const JsonReader& at) {
  PhysicalCapacity capacity;
  capacity.value = ReadAmount(at);
  if (capacity.value.IsNegative()) at["value"].Fail("must not be negative");
  capacity.unit = at["unit"].StringOr("count");
  if (capacity.unit != "bytes" && capacity.unit != "bitsPerSecond" && capacity.unit != "count") {
    at["unit"].Fail(Cat("\"", capacity.unit, "\" is not a unit; use bytes, bitsPerSecond or count"));
  }
  capacity.shareable = at["shareable"].BoolOr(false);
  capacity.enforcement = ReadEnforcement(at["enforcement"]);
  if (const JsonReader overhead = at["overhead"]; overhead.present()) capacity.overhead = ReadAmount(overhead);
  if (capacity.overhead.IsNegative()) at["overhead"].Fail("must not be negative");
  if (const JsonReader policy = at["requestPolicy"]; policy.present()) capacity.request_policy = ReadRequestPolicy(policy);
  return capacity;
}

std::map<std::string, std::int64_t> ReadUnits(const JsonReader& at) {
  std::map<std::string, std::int64_t> units;
  for (const auto& [name, member] : at.Members()) {
    const std::int64_t count = member.Int64();
    if (count < 0) member.Fail("must not be negative");
    units.emplace(name, count);
  }
  return units;
}

Silicon ReadSilicon(const JsonReader& at) {
  Silicon silicon{at["id"].NonEmptyString(), ReadUnits(at["units"]), ReadUnits(at["uses"])};
  for (const auto& [name, count] : silicon.uses) {
    const auto total = silicon.units.find(name);
    if (total == silicon.units.end() || count > total->second) at["uses"][name].Fail("is more than the silicon's units of that name");
  }
  return silicon;
}

std::vector<Mode> ReadModes(const JsonReader& at) {
  std::vector<Mode> modes;
  for (const JsonReader& item : at.Items()) modes.push_back(ReadMode(item));
  if (modes.empty()) at.Fail("must name at least one of whole, partition, share");
  return modes;
}

json::object EncodeUnits(const std::map<std::string, std::int64_t>& units) {
  json::object object;
  for (const auto& [name, count] : units) object[name] = count;
  return object;
}

json::object EncodeCapacity(const PhysicalCapacity& capacity) {
  json::object object = EncodeAmount(capacity.value);
  object["unit"] = capacity.unit;
  object["shareable"] = capacity.shareable;
  object["enforcement"] = EnforcementName(capacity.enforcement);
  if (!capacity.overhead.IsZero()) object["overhead"] = EncodeAmount(capacity.overhead);
  if (capacity.request_policy.has_value()) object["requestPolicy"] = EncodeRequestPolicy(*capacity.request_policy);
  return object;
}

// ---- Limits and usage.

LimitInForce ReadLimit(const JsonReader& at) {
  LimitInForce limit;
  limit.capacity = at["capacity"].NonEmptyString();
  limit.direction = at["direction"].StringOr("");
  limit.requested = at["requested"].Int64();
  limit.in_force = at["inForce"].Int64();
  limit.enforcement = ReadEnforcement(at["enforcement"]);
  limit.mechanism = at["mechanism"].StringOr("");
  const JsonReader verified_at = at["verifiedAt"];
  if (!verified_at.present()) return limit;
  if (absl::StatusOr<WallTime> time = ParseTime(verified_at.String()); time.ok()) {
    limit.verified_at = *time;
  } else {
    verified_at.Fail(View(time.status().message()));
  }
  return limit;
}

json::object EncodeLimit(const LimitInForce& limit) {
  json::object object{{"capacity", limit.capacity}};
  if (!limit.direction.empty()) object["direction"] = limit.direction;
  object["requested"] = limit.requested;
  object["inForce"] = limit.in_force;
  object["enforcement"] = EnforcementName(limit.enforcement);
  if (limit.verified_at != WallTime{}) object["verifiedAt"] = FormatTime(limit.verified_at);
  if (!limit.mechanism.empty()) object["mechanism"] = limit.mechanism;
  return object;
}

Usage ReadUsage(const JsonReader& at) {
  Usage usage{at["capacity"].NonEmptyString(), at["direction"].StringOr(""), at["used"].CountOr(0),
              at["drops"].CountOr(0),          at["overlimits"].CountOr(0),  std::nullopt};
  const JsonReader source = at["source"];
  if (!source.present()) return usage;
  const std::uint64_t class_id = source["classId"].CountOr(0);
  if (class_id > 0xffffffffU) source["classId"].Fail("is more than 32 bits");
  usage.source = CounterSource{source["interface"].NonEmptyString(), static_cast<std::uint32_t>(class_id)};
  return usage;
}

json::object EncodeUsage(const Usage& usage) {
  json::object object{{"capacity", usage.capacity}};
  if (!usage.direction.empty()) object["direction"] = usage.direction;
  object["used"] = usage.used;
  object["drops"] = usage.drops;
  object["overlimits"] = usage.overlimits;
  if (usage.source.has_value()) object["source"] = json::object{{"interface", usage.source->interface}, {"classId", usage.source->class_id}};
  return object;
}

// ---- Container edits.

ContainerEdits ReadEdits(const JsonReader& at) {
  ContainerEdits edits;
  edits.env = at["env"].Strings();
  for (const JsonReader& node : at["deviceNodes"].Items()) {
    edits.device_nodes.push_back({node["path"].NonEmptyString(), node["hostPath"].StringOr(""), node["type"].StringOr(""), node["permissions"].StringOr(""),
                                  node["major"].OptionalInt64(), node["minor"].OptionalInt64()});
  }
  for (const JsonReader& mount : at["mounts"].Items()) {
    edits.mounts.push_back({mount["hostPath"].NonEmptyString(), mount["containerPath"].NonEmptyString(), mount["options"].Strings()});
  }
  for (const JsonReader& hook : at["hooks"].Items()) {
    edits.hooks.push_back(
        {hook["hookName"].NonEmptyString(), hook["path"].NonEmptyString(), hook["args"].Strings(), hook["env"].Strings(), hook["timeout"].OptionalInt64()});
  }
  for (const JsonReader& device : at["netDevices"].Items()) {
    edits.net_devices.push_back({device["hostInterfaceName"].NonEmptyString(), device["name"].NonEmptyString()});
  }
  return edits;
}

json::object EncodeDeviceNode(const DeviceNode& node) {
  json::object object{{"path", node.path}};
  if (!node.host_path.empty()) object["hostPath"] = node.host_path;
  if (!node.type.empty()) object["type"] = node.type;
  if (node.major.has_value()) object["major"] = *node.major;
  if (node.minor.has_value()) object["minor"] = *node.minor;
  if (!node.permissions.empty()) object["permissions"] = node.permissions;
  return object;
}

json::object EncodeMount(const Mount& mount) {
  json::object object{{"hostPath", mount.host_path}, {"containerPath", mount.container_path}};
  if (!mount.options.empty()) object["options"] = EncodeStrings(mount.options);
  return object;
}

json::object EncodeHook(const Hook& hook) {
  json::object object{{"hookName", hook.hook_name}, {"path", hook.path}};
  if (!hook.args.empty()) object["args"] = EncodeStrings(hook.args);
  if (!hook.env.empty()) object["env"] = EncodeStrings(hook.env);
  if (hook.timeout_seconds.has_value()) object["timeout"] = *hook.timeout_seconds;
  return object;
}

template <typename Item, typename Encoder>
void EncodeList(json::object& object, std::string_view key, const std::vector<Item>& items, Encoder encode) {
  if (items.empty()) return;
  json::array array;
  for (const Item& item : items) array.push_back(encode(item));
  object[json::string_view(key.data(), key.size())] = std::move(array);
}

ShareKey ReadShareKey(const JsonReader& at) {
  return {at["claimUID"].NonEmptyString(), at["request"].NonEmptyString(), at["driver"].NonEmptyString(),
          at["pool"].NonEmptyString(),     at["device"].NonEmptyString(),  at["shareID"].StringOr("")};
}

NetworkData ReadNetworkData(const JsonReader& at) { return {at["interfaceName"].StringOr(""), at["ips"].Strings(), at["hardwareAddress"].StringOr("")}; }

AppliedState ReadAppliedState(const JsonReader& at) {
  const std::string text = at.StringOr("complete");
  for (AppliedState state : {AppliedState::kComplete, AppliedState::kPartial, AppliedState::kForeign}) {
    if (text == AppliedStateName(state)) return state;
  }
  at.Fail(Cat("\"", text, "\" is not a state; use complete, partial or foreign"));
  return AppliedState::kForeign;
}

}  // namespace

json::value EncodeShareKey(const ShareKey& key) {
  json::object object{{"claimUID", key.claim_uid}, {"request", key.request}, {"driver", key.driver}, {"pool", key.pool}, {"device", key.device}};
  if (!key.share_id.empty()) object["shareID"] = key.share_id;
  return object;
}

absl::StatusOr<ShareKey> DecodeShareKey(const json::value& value) {
  absl::Status error;
  ShareKey key = ReadShareKey({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return key;
}

absl::StatusOr<PhysicalDevice> DecodePhysicalDevice(const json::value& value) {
  absl::Status error;
  const JsonReader at(value, &error);
  CheckSchemaVersion(at);
  PhysicalDevice device;
  device.name = at["name"].NonEmptyString();
  for (const auto& [key, text] : at["identity"].Members()) device.identity.emplace(key, text.String());
  if (at["silicon"].present()) device.silicon = ReadSilicon(at["silicon"]);
  device.modes = ReadModes(at["modes"]);
  device.attributes = ReadAttributes(at["attributes"]);
  for (const auto& [name, member] : at["capacities"].Members()) device.capacities.emplace(name, ReadCapacity(member));
  device.metadata = at["metadata"].Strings();
  device.numa_node = at["topology"]["numaNode"].OptionalInt64();
  TRANCHE_RETURN_IF_ERROR(error);
  return device;
}

json::value EncodePhysicalDevice(const PhysicalDevice& device) {
  json::object object{{"schemaVersion", 1}, {"name", device.name}};
  json::object& identity = object["identity"].emplace_object();
  for (const auto& [key, text] : device.identity) identity[key] = text;
  if (device.silicon.has_value()) {
    object["silicon"] = json::object{{"id", device.silicon->id}, {"units", EncodeUnits(device.silicon->units)}, {"uses", EncodeUnits(device.silicon->uses)}};
  }
  json::array& modes = object["modes"].emplace_array();
  for (Mode mode : device.modes) modes.emplace_back(ModeName(mode));
  object["attributes"] = EncodeAttributes(device.attributes);
  json::object& capacities = object["capacities"].emplace_object();
  for (const auto& [name, capacity] : device.capacities) capacities[name] = EncodeCapacity(capacity);
  object["metadata"] = EncodeStrings(device.metadata);
  if (device.numa_node.has_value()) object["topology"] = json::object{{"numaNode", *device.numa_node}};
  return object;
}

absl::StatusOr<AppliedShare> DecodeAppliedShare(const json::value& value) {
  absl::Status error;
  const JsonReader at(value, &error);
  CheckSchemaVersion(at);
  AppliedShare share;
  if (!at["key"].present()) at["key"].Fail("is missing; it names the share");
  share.key = ReadShareKey(at["key"]);
  for (const JsonReader& limit : at["limits"].Items()) share.limits.push_back(ReadLimit(limit));
  for (const JsonReader& usage : at["usage"].Items()) share.usage.push_back(ReadUsage(usage));
  share.edits = ReadEdits(at["containerEdits"]);
  share.attributes = ReadAttributes(at["attributes"]);
  if (at["networkData"].present()) share.network = ReadNetworkData(at["networkData"]);
  share.applied = ReadAppliedState(at["applied"]);
  share.state = at["state"].StringOr("");
  if (share.state.size() > kMaxStateBytes) at["state"].Fail(Cat("has ", share.state.size(), " bytes; at most 4096 are kept"));
  TRANCHE_RETURN_IF_ERROR(error);
  return share;
}

json::value EncodeAppliedShare(const AppliedShare& share) {
  json::object object{{"schemaVersion", 1}, {"key", EncodeShareKey(share.key)}};
  json::array& limits = object["limits"].emplace_array();
  for (const LimitInForce& limit : share.limits) limits.push_back(EncodeLimit(limit));
  json::array& usage = object["usage"].emplace_array();
  for (const Usage& one : share.usage) usage.push_back(EncodeUsage(one));
  object["containerEdits"] = EncodeContainerEdits(share.edits);
  object["attributes"] = EncodeAttributes(share.attributes);
  if (share.network.has_value()) object["networkData"] = EncodeNetworkData(*share.network);
  object["applied"] = AppliedStateName(share.applied);
  object["state"] = share.state;
  return object;
}

json::value EncodeContainerEdits(const ContainerEdits& edits) {
  json::object object;
  if (!edits.env.empty()) object["env"] = EncodeStrings(edits.env);
  EncodeList(object, "deviceNodes", edits.device_nodes, EncodeDeviceNode);
  EncodeList(object, "mounts", edits.mounts, EncodeMount);
  EncodeList(object, "hooks", edits.hooks, EncodeHook);
  EncodeList(object, "netDevices", edits.net_devices, [](const NetDevice& device) {
    return json::object{{"hostInterfaceName", device.host_name}, {"name", device.name}};
  });
  return object;
}

absl::StatusOr<ContainerEdits> DecodeContainerEdits(const json::value& value) {
  absl::Status error;
  ContainerEdits edits = ReadEdits({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return edits;
}

json::value EncodeNetworkData(const NetworkData& network) {
  return json::object{{"interfaceName", network.interface_name}, {"ips", EncodeStrings(network.ips)}, {"hardwareAddress", network.hardware_address}};
}

absl::StatusOr<NetworkData> DecodeNetworkData(const json::value& value) {
  absl::Status error;
  NetworkData network = ReadNetworkData({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return network;
}

}  // namespace tranche
