#include "kube/device_status.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/json.h"

namespace tranche::kube {
namespace {

namespace json = boost::json;

// resource.k8s.io/v1 AllocatedDeviceStatus.
constexpr std::size_t kMaxDataBytes = 10 * 1024;
constexpr std::size_t kMaxIps = 16;
constexpr std::size_t kMaxInterfaceName = 256, kMaxHardwareAddress = 128;
constexpr std::size_t kMaxMessage = 1024;  // the API takes 32 KiB; one line is for people

auto Address(const ShareKey& key) { return std::tie(key.driver, key.pool, key.device, key.share_id); }

Condition Is(ConditionStatus status, std::string reason, std::string message) { return {status, std::move(reason), Shortened(message, kMaxMessage), {}}; }

std::string TextOf(const absl::Status& why) { return Cat(CodeName(why.code()), ": ", View(why.message())); }

Condition PreparedOf(const claims::ClaimEvent& event) {
  using enum claims::ClaimChange;
  switch (event.change) {
    case kRefused: return Is(ConditionStatus::kFalse, "PrepareFailed", TextOf(event.why));
    case kReleaseFailed: return Is(ConditionStatus::kFalse, "UnprepareFailed", TextOf(event.why));
    case kRejoinRefused: return Is(ConditionStatus::kTrue, "Prepared", Cat("the share is prepared; one more prepare was refused: ", TextOf(event.why)));
    default: return Is(ConditionStatus::kTrue, "Prepared", "the share is prepared on its node");
  }
}

std::string LimitText(const LimitInForce& limit) {
  return Cat(limit.capacity, limit.direction.empty() ? "" : " ", limit.direction, " ", limit.in_force, " of ", limit.requested);
}

Condition EnforcedOf(const claims::ClaimEvent& event, const store::ShareRow& share) {
  const bool is_refused = event.change == claims::ClaimChange::kRefused;
  if (is_refused) return Is(ConditionStatus::kFalse, "NotPrepared", "nothing is applied");
  if (!share.applied.has_value() || share.applied->applied != AppliedState::kComplete) {
    const bool is_drift = event.change == claims::ClaimChange::kDrifted;
    return Is(ConditionStatus::kFalse, is_drift ? "LimitDrift" : "NotComplete",
              is_drift ? std::string(View(event.why.message())) : std::string("not all of the share is applied; it is being made again"));
  }
  std::string text;
  for (const LimitInForce& limit : share.applied->limits) {
    if (limit.enforcement == Enforcement::kNone) {
      return Is(ConditionStatus::kFalse, "NotEnforced", Cat("nothing enforces the limit of ", limit.capacity, " on this device"));
    }
    Append(text, text.empty() ? "" : ", ", LimitText(limit));
  }
  if (!text.empty()) return Is(ConditionStatus::kTrue, "LimitsVerified", Cat("in force as read back: ", text));
  if (share.mode != Mode::kShare) return Is(ConditionStatus::kTrue, "Exclusive", "the device belongs to this claim alone");
  return Is(ConditionStatus::kFalse, "NoLimits", "the backend limits nothing of this share");
}

DeviceStatus StatusOfShare(const claims::ClaimEvent& event, const store::ShareRow& share) {
  DeviceStatus device;
  device.key = share.key;
  device.backend = share.backend;
  device.physical = share.physical;
  device.prepared = PreparedOf(event);
  device.enforced = EnforcedOf(event, share);
  device.healthy = Is(ConditionStatus::kUnknown, "NotReported", "nothing reported the health of this device yet");
  device.device_class = share.device_class;
  device.policy_version = share.policy_version;
  device.allocation_version = event.allocation_version;
  if (event.change == claims::ClaimChange::kRefused || !share.applied.has_value()) return device;
  device.limits = share.applied->limits;
  device.network = share.applied->network;
  return device;
}

// metav1.Time has whole seconds.
WallTime Seconds(WallTime time) { return std::chrono::time_point_cast<std::chrono::seconds>(time); }
std::string TimeText(WallTime time) { return FormatTime(Seconds(time)).substr(0, 19) + "Z"; }

std::string_view StatusText(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::kTrue: return "True";
    case ConditionStatus::kFalse: return "False";
    case ConditionStatus::kUnknown: break;
  }
  return "Unknown";
}

json::object EncodeCondition(std::string_view type, const Condition& condition, std::int64_t generation) {
  json::object object{{"type", type},
                      {"status", StatusText(condition.status)},
                      {"reason", condition.reason},
                      {"message", condition.message},
                      {"lastTransitionTime", TimeText(condition.since)}};
  if (generation > 0) object["observedGeneration"] = generation;
  return object;
}

json::object EncodeLimit(const LimitInForce& limit) {
  json::object object{{"capacity", limit.capacity}};
  if (!limit.direction.empty()) object["direction"] = limit.direction;
  object["requested"] = limit.requested;
  object["inForce"] = limit.in_force;
  object["enforcement"] = EnforcementName(limit.enforcement);
  object["mechanism"] = limit.mechanism;
  return object;
}

json::object EncodeData(const DeviceStatus& device) {
  json::object data{{"apiVersion", "tranche.dev/v1alpha1"}, {"kind", "ShareStatus"}, {"request", device.key.request}};
  if (!device.key.share_id.empty()) data["shareID"] = device.key.share_id;
  if (!device.device_class.empty()) data["class"] = device.device_class;
  if (!device.policy_version.empty()) data["policyVersion"] = device.policy_version;
  if (!device.allocation_version.empty()) data["allocationVersion"] = device.allocation_version;
  if (device.limits.empty()) return data;
  json::array limits;
  for (const LimitInForce& limit : device.limits) limits.push_back(EncodeLimit(limit));
  data["limits"] = std::move(limits);
  data["verifiedAt"] = TimeText(VerifiedAt({device}));
  while (ToJsonText(data).size() > kMaxDataBytes && !data["limits"].as_array().empty()) {
    data["limits"].as_array().pop_back();
    data["truncated"] = true;
  }
  return data;
}

bool IsInterfaceAddress(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash + 1 == text.size() || text.size() > slash + 4) return false;
  if (!std::all_of(text.begin() + static_cast<std::ptrdiff_t>(slash) + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
  std::array<unsigned char, sizeof(in6_addr)> address{};
  const bool is_v6 = text.find(':') != std::string::npos;
  const int bits = std::stoi(text.substr(slash + 1));
  return inet_pton(is_v6 ? AF_INET6 : AF_INET, text.substr(0, slash).c_str(), address.data()) == 1 && bits <= (is_v6 ? 128 : 32);
}

// What the API would refuse is left out: it must not cost the conditions.
std::optional<json::object> EncodeNetwork(const NetworkData& network) {
  json::object object;
  if (!network.interface_name.empty() && network.interface_name.size() <= kMaxInterfaceName) object["interfaceName"] = network.interface_name;
  json::array ips;
  std::set<std::string> seen;
  for (const std::string& ip : network.ips) {
    if (ips.size() < kMaxIps && IsInterfaceAddress(ip) && seen.insert(ip).second) ips.emplace_back(ip);
  }
  if (!ips.empty()) object["ips"] = std::move(ips);
  if (!network.hardware_address.empty() && network.hardware_address.size() <= kMaxHardwareAddress) { object["hardwareAddress"] = network.hardware_address; }
  if (object.empty()) return std::nullopt;
  return object;
}

// ---- Reading. Nothing in an answer is trusted: a missing or odd member reads as empty.

const json::value* Find(const json::value& value, std::string_view name) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::string Text(const json::value& value, std::string_view name) {
  const json::value* member = Find(value, name);
  return member != nullptr && member->is_string() ? std::string(member->get_string().begin(), member->get_string().end()) : std::string();
}

std::int64_t Number(const json::value& value, std::string_view name) {
  const json::value* member = Find(value, name);
  return member != nullptr && member->is_int64() ? member->get_int64() : 0;
}

const json::array& Items(const json::value* value) {
  static const json::array kNone;
  return value != nullptr && value->is_array() ? value->get_array() : kNone;
}

WallTime Time(const json::value& value, std::string_view name) { return ParseTime(Text(value, name)).value_or(WallTime{}); }

Condition DecodeCondition(const json::value& value) {
  Condition condition;
  const std::string status = Text(value, "status");
  condition.status = status == "True" ? ConditionStatus::kTrue : status == "False" ? ConditionStatus::kFalse : ConditionStatus::kUnknown;
  condition.reason = Text(value, "reason");
  condition.message = Text(value, "message");
  condition.since = Time(value, "lastTransitionTime");
  return condition;
}

void DecodeConditions(const json::value& entry, DeviceStatus& device) {
  for (const json::value& condition : Items(Find(entry, "conditions"))) {
    const std::string type = Text(condition, "type");
    if (type == "Prepared") device.prepared = DecodeCondition(condition);
    if (type == "Enforced") device.enforced = DecodeCondition(condition);
    if (type == "Healthy") device.healthy = DecodeCondition(condition);
  }
}

void DecodeData(const json::value& data, DeviceStatus& device) {
  device.key.request = Text(data, "request");
  device.device_class = Text(data, "class");
  device.policy_version = Text(data, "policyVersion");
  device.allocation_version = Text(data, "allocationVersion");
  for (const json::value& item : Items(Find(data, "limits"))) {
    LimitInForce limit;
    limit.capacity = Text(item, "capacity");
    limit.direction = Text(item, "direction");
    limit.requested = Number(item, "requested");
    limit.in_force = Number(item, "inForce");
    limit.enforcement = ParseEnforcement(Text(item, "enforcement")).value_or(Enforcement::kNone);
    limit.mechanism = Text(item, "mechanism");
    limit.verified_at = Time(data, "verifiedAt");
    device.limits.push_back(std::move(limit));
  }
}

ShareKey AddressOf(const json::value& entry) { return {"", "", Text(entry, "driver"), Text(entry, "pool"), Text(entry, "device"), Text(entry, "shareID")}; }

const json::value* StatusMember(const json::object& claim, std::string_view name) {
  const json::value* status = claim.if_contains("status");
  return status == nullptr ? nullptr : Find(*status, name);
}

// What does not count when two statuses are compared: times, what is never written, and what an encoding leaves out.
DeviceStatus WithoutTimes(DeviceStatus device) {
  for (Condition* condition : {&device.prepared, &device.enforced, &device.healthy}) condition->since = {};
  for (LimitInForce& limit : device.limits) limit.verified_at = {};
  device.key.claim_uid.clear();
  device.backend.clear();
  device.physical.clear();
  if (device.network == NetworkData{}) device.network.reset();
  return device;
}

}  // namespace

std::vector<DeviceStatus> StatusOf(const claims::ClaimEvent& event, WallTime now) {
  std::vector<DeviceStatus> devices;
  for (const store::ShareRow& share : event.shares) {
    const auto same = [&](const DeviceStatus& device) { return Address(device.key) == Address(share.key); };
    if (std::any_of(devices.begin(), devices.end(), same)) continue;
    DeviceStatus& device = devices.emplace_back(StatusOfShare(event, share));
    for (Condition* condition : {&device.prepared, &device.enforced, &device.healthy}) condition->since = now;
  }
  return devices;
}

void KeepTransitions(std::vector<DeviceStatus>& devices, const std::vector<DeviceStatus>& before) {
  const auto keep = [](Condition& now, const Condition& then) {
    if (now.status == then.status && then.since != WallTime{}) now.since = then.since;
  };
  for (DeviceStatus& device : devices) {
    for (const DeviceStatus& old : before) {
      if (Address(old.key) != Address(device.key)) continue;
      keep(device.prepared, old.prepared);
      keep(device.enforced, old.enforced);
      keep(device.healthy, old.healthy);
    }
  }
}

bool SaysTheSame(const std::vector<DeviceStatus>& left, const std::vector<DeviceStatus>& right) {
  if (left.size() != right.size()) return false;
  return std::all_of(left.begin(), left.end(), [&](const DeviceStatus& device) {
    return std::any_of(right.begin(), right.end(), [&](const DeviceStatus& other) { return WithoutTimes(device) == WithoutTimes(other); });
  });
}

WallTime VerifiedAt(const std::vector<DeviceStatus>& devices) {
  WallTime oldest = WallTime::max();
  for (const DeviceStatus& device : devices) {
    for (const LimitInForce& limit : device.limits) oldest = std::min(oldest, limit.verified_at);
  }
  return oldest;
}

json::object EncodeDeviceStatus(const DeviceStatus& device, std::int64_t generation) {
  json::object entry{{"driver", device.key.driver}, {"pool", device.key.pool}, {"device", device.key.device}};
  if (!device.key.share_id.empty()) entry["shareID"] = device.key.share_id;
  entry["conditions"] = json::array{EncodeCondition("Prepared", device.prepared, generation), EncodeCondition("Enforced", device.enforced, generation),
                                    EncodeCondition("Healthy", device.healthy, generation)};
  entry["data"] = EncodeData(device);
  if (device.network.has_value()) {
    if (std::optional<json::object> network = EncodeNetwork(*device.network)) entry["networkData"] = *std::move(network);
  }
  return entry;
}

std::vector<DeviceStatus> DecodeDeviceStatuses(const json::object& claim, const std::string& driver) {
  std::vector<DeviceStatus> devices;
  for (const json::value& entry : Items(StatusMember(claim, "devices"))) {
    if (Text(entry, "driver") != driver) continue;
    DeviceStatus& device = devices.emplace_back();
    device.key = AddressOf(entry);
    DecodeConditions(entry, device);
    if (const json::value* data = Find(entry, "data")) DecodeData(*data, device);
    if (const json::value* network = Find(entry, "networkData")) {
      device.network = NetworkData{Text(*network, "interfaceName"), {}, Text(*network, "hardwareAddress")};
      for (const json::value& ip : Items(Find(*network, "ips"))) {
        if (ip.is_string()) device.network->ips.emplace_back(ip.get_string().begin(), ip.get_string().end());
      }
    }
  }
  return devices;
}

std::vector<DeviceStatus> Allocated(std::vector<DeviceStatus> devices, const json::object& claim) {
  const json::value* allocation = StatusMember(claim, "allocation");
  const json::value* allocated = allocation == nullptr ? nullptr : Find(*allocation, "devices");
  const json::array& results = Items(allocated == nullptr ? nullptr : Find(*allocated, "results"));
  std::erase_if(devices, [&](const DeviceStatus& device) {
    return std::none_of(results.begin(), results.end(), [&](const json::value& result) {
      const ShareKey key = AddressOf(result);
      return Address(key) == Address(device.key);
    });
  });
  return devices;
}

}  // namespace tranche::kube
