// SPDX-License-Identifier: Apache-2.0
//
// The backend ABI for C++20: header-only, on Boost.JSON, nothing of the host. A backend is a plain class:
//
//   class Example {
//    public:
//     static constexpr const char* kName = "example";        // the manifest's name
//     static constexpr const char* kVersion = "1.0.0";
//     Example(tranche::sdk::Host host, const boost::json::object& config, const std::string& runtime_directory);
//     std::vector<tranche::sdk::Device> Discover(tranche::sdk::Call& call);
//     tranche::sdk::Share PrepareOne(tranche::sdk::Call& call, const tranche::sdk::PrepareRequest& request);
//     void UnprepareOne(tranche::sdk::Call& call, const tranche::sdk::ShareRef& share);
//     std::vector<tranche::sdk::Share> ListPrepared(tranche::sdk::Call& call);
//     // Where a capacity is enforced:
//     tranche::sdk::Share Verify(tranche::sdk::Call& call, const tranche::sdk::ShareRef& share);
//   };
//   TRANCHE_BACKEND(Example)
//
// Required are Discover, Prepare or PrepareOne, Unprepare or UnprepareOne, ListPrepared. Optional, found by their signature:
// Verify, CheckHealth(Call&), Recover(Call&, std::string_view device), ReleaseHandles(Call&), SelfTest(Call&), with TRANCHE_TARGET_MINOR 1 or more Sweep(Call&), and
// `static constexpr bool kConcurrent = true`. The list forms `void Prepare(Call&, const std::vector<PrepareRequest>&)` and
// `void Unprepare(Call&, const std::vector<ShareRef>&)` report through call.AddShare and call.AddResult themselves.
//
// Any method and the constructor may throw: Error carries its code to the host, every other exception becomes INTERNAL. No exception leaves the
// thunks. Contracts of each function, threads and ownership: tranche/backend.h.
#ifndef TRANCHE_BACKEND_HPP
#define TRANCHE_BACKEND_HPP

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/json.hpp>

#include <tranche/backend.h>

namespace tranche::sdk {

namespace json = boost::json;

// Why a call or one item fails. The message says what, which object, why, and what to do.
class Error : public std::runtime_error {
 public:
  Error(tranche_code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  tranche_code code() const noexcept { return code_; }

 private:
  tranche_code code_;
};

// ---- Values. Field names in JSON are those of sdk/schema/*.schema.json.

// An amount in base units (bytes, bits per second, counts) and its Kubernetes text; an empty text is written as the number.
struct Amount {
  std::int64_t value = 0;
  std::string text;
};
using Amounts = std::map<std::string, Amount>;

struct Version {
  std::string text;
};
using Attribute = std::variant<bool, std::int64_t, std::string, Version>;
using Attributes = std::map<std::string, Attribute>;

// Kubernetes quantity texts. valid_values and the range exclude each other.
struct RequestPolicy {
  std::string default_value;
  std::vector<std::string> valid_values;
  std::string min, max, step;
};

struct Capacity {
  std::int64_t value = 0;
  std::string text;
  std::string unit = "count";  // bytes | bitsPerSecond | count
  bool shareable = false;
  std::string enforcement = "none";  // none | soft | strong | hard
  std::optional<Amount> overhead;    // what the backend itself needs of value
  std::optional<RequestPolicy> request_policy;
};

struct Silicon {
  std::string id;
  std::map<std::string, std::int64_t> units, uses;
};

struct Device {
  std::string name;
  std::map<std::string, std::string> identity;  // decides sameness: uuid, pciAddress, …
  std::optional<Silicon> silicon;
  std::vector<std::string> modes;  // whole | partition | share
  Attributes attributes;
  std::map<std::string, Capacity> capacities;
  std::vector<std::string> metadata;  // attribute names that containers may see
  std::optional<std::int64_t> numa_node;
};

struct Key {
  std::string claim_uid, request, driver, pool, device;
  std::string share_id;  // empty for a whole device or a partition
  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Limit {
  std::string capacity;
  std::string direction;  // egress | ingress | ""
  std::int64_t requested = 0, in_force = 0;
  std::string enforcement = "none";
  std::chrono::system_clock::time_point verified_at{};  // the epoch: never
  std::string mechanism;                                // for people: "htb class 7a6:1 on eth1"
};

// Where the kernel counts a share's use.
struct CounterSource {
  std::string interface;
  std::uint32_t class_id = 0;  // tc classid, 0: the root qdisc
};

struct Usage {
  std::string capacity, direction;
  std::uint64_t used = 0, drops = 0, overlimits = 0;
  std::optional<CounterSource> source;
};

struct DeviceNode {
  std::string path, host_path, type, permissions;
  std::optional<std::int64_t> major, minor;
};
struct Mount {
  std::string host_path, container_path;
  std::vector<std::string> options;
};
struct Hook {
  std::string hook_name, path;
  std::vector<std::string> args, env;
  std::optional<std::int64_t> timeout_seconds;
};
struct NetDevice {
  std::string host_name, name;
};
struct ContainerEdits {
  std::vector<std::string> env;  // NAME=value
  std::vector<DeviceNode> device_nodes;
  std::vector<Mount> mounts;
  std::vector<Hook> hooks;
  std::vector<NetDevice> net_devices;
};

struct NetworkData {
  std::string interface_name;
  std::vector<std::string> ips;  // CIDR
  std::string hardware_address;
};

// What is applied for one key.
struct Share {
  Key key;
  std::vector<Limit> limits;
  std::vector<Usage> usage;
  ContainerEdits edits;
  Attributes attributes;
  std::optional<NetworkData> network;
  std::string applied = "complete";  // complete | partial | foreign
  std::string state;                 // yours, opaque, at most 4 KiB
};

// One verdict about one device.
struct Health {
  std::string device;
  std::map<std::string, std::string> identity;
  std::string source;
  std::uint64_t sequence = 0;
  std::chrono::system_clock::time_point observed_at{};
  std::string verdict = "unknown";  // healthy | unhealthy | unknown
  std::string class_name, code, message;
  std::optional<std::int64_t> ttl_seconds;
};

struct PrepareRequest {
  Key key;
  std::string physical;        // the name that Discover gave the device
  std::string mode;            // whole | partition | share
  Amounts consumed;            // the claim's own figures, checked by the host
  std::string state;           // what Share::state was last time, "" at first
  json::object configuration;  // merged class and claim parameters
  std::string policy_version, claim_namespace, claim_name;
  std::vector<std::string> pod_uids;
  int result_index = 0;  // position among the claim's results of this driver
};

struct ShareRef {
  Key key;
  std::string state;
};

// ---- JSON. ToJson never fails; From… throw Error(INVALID_ARGUMENT) that names the field.

namespace detail {

inline tranche_str Borrow(std::string_view text) { return {text.data(), static_cast<std::uint64_t>(text.size())}; }
inline std::string_view View(tranche_str text) {
  return text.data == nullptr ? std::string_view() : std::string_view(text.data, static_cast<std::size_t>(text.size));
}

inline std::string TimeText(std::chrono::system_clock::time_point time) {
  const std::int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1000000);
  std::tm parts{};
  if (micros < 0 || ::gmtime_r(&seconds, &parts) == nullptr) return "1970-01-01T00:00:00.000000Z";
  char text[96];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>(micros % 1000000));
  return text;
}

inline json::array Texts(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}
template <class Map>
json::object Plain(const Map& map) {
  json::object object;
  for (const auto& [name, value] : map) object[name] = value;
  return object;
}
inline void SetText(json::object& object, std::string_view name, const std::string& text) {
  if (!text.empty()) object[name] = text;
}
template <class T>
json::array Each(const std::vector<T>& values) {
  json::array array;
  for (const T& value : values) array.emplace_back(ToJson(value));  // by argument-dependent lookup
  return array;
}

[[noreturn]] inline void Reject(std::string_view path, std::string_view wanted) {
  throw Error(TRANCHE_INVALID_ARGUMENT, "field " + std::string(path) + " must be " + std::string(wanted));
}
inline const json::object& Object(const json::value& value, std::string_view path) {
  if (!value.is_object()) Reject(path, "an object");
  return value.get_object();
}
inline std::string Text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_string()) Reject(name, "a string");
  return std::string(value->get_string());
}
inline json::object ObjectAt(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr || value->is_null() ? json::object() : Object(*value, name);
}
inline std::int64_t Integer(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return 0;
  boost::system::error_code error;
  const auto number = value->to_number<std::int64_t>(error);
  if (error) Reject(name, "a 64-bit integer");
  return number;
}
inline json::value Parse(std::string_view text, std::string_view what) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) throw Error(TRANCHE_INVALID_ARGUMENT, std::string(what) + " is not JSON: " + error.message());
  return value;
}

}  // namespace detail

inline json::object ToJson(const Amount& amount) {
  return {{"value", amount.value}, {"text", amount.text.empty() ? std::to_string(amount.value) : amount.text}};
}

inline json::object ToJson(const Attributes& attributes) {
  json::object object;
  for (const auto& [name, attribute] : attributes) {
    if (const auto* flag = std::get_if<bool>(&attribute)) object[name] = json::object{{"bool", *flag}};
    if (const auto* number = std::get_if<std::int64_t>(&attribute)) object[name] = json::object{{"int", *number}};
    if (const auto* text = std::get_if<std::string>(&attribute)) object[name] = json::object{{"string", *text}};
    if (const auto* version = std::get_if<Version>(&attribute)) object[name] = json::object{{"version", version->text}};
  }
  return object;
}

inline json::object ToJson(const RequestPolicy& policy) {
  json::object object;
  detail::SetText(object, "default", policy.default_value);
  if (!policy.valid_values.empty()) object["validValues"] = detail::Texts(policy.valid_values);
  if (!policy.min.empty()) {
    json::object range;
    range["min"] = policy.min;
    detail::SetText(range, "max", policy.max);
    detail::SetText(range, "step", policy.step);
    object["validRange"] = std::move(range);
  }
  return object;
}

inline json::object ToJson(const Capacity& capacity) {
  json::object object = ToJson(Amount{capacity.value, capacity.text});
  object["unit"] = capacity.unit;
  object["shareable"] = capacity.shareable;
  object["enforcement"] = capacity.enforcement;
  if (capacity.overhead) object["overhead"] = ToJson(*capacity.overhead);
  if (capacity.request_policy) object["requestPolicy"] = ToJson(*capacity.request_policy);
  return object;
}

inline json::object ToJson(const Device& device) {
  json::object object{{"schemaVersion", 1}, {"name", device.name}};
  object["identity"] = detail::Plain(device.identity);
  if (device.silicon) {
    object["silicon"] =
        json::object{{"id", device.silicon->id}, {"units", detail::Plain(device.silicon->units)}, {"uses", detail::Plain(device.silicon->uses)}};
  }
  object["modes"] = detail::Texts(device.modes);
  object["attributes"] = ToJson(device.attributes);
  json::object capacities;
  for (const auto& [name, capacity] : device.capacities) capacities[name] = ToJson(capacity);
  object["capacities"] = std::move(capacities);
  object["metadata"] = detail::Texts(device.metadata);
  if (device.numa_node) object["topology"] = json::object{{"numaNode", *device.numa_node}};
  return object;
}

inline json::object ToJson(const Key& key) {
  json::object object{{"claimUID", key.claim_uid}, {"request", key.request}, {"driver", key.driver}, {"pool", key.pool}, {"device", key.device}};
  detail::SetText(object, "shareID", key.share_id);
  return object;
}

inline json::object ToJson(const Limit& limit) {
  json::object object{{"capacity", limit.capacity},
                      {"requested", limit.requested},
                      {"inForce", limit.in_force},
                      {"enforcement", limit.enforcement},
                      {"mechanism", limit.mechanism}};
  detail::SetText(object, "direction", limit.direction);
  if (limit.verified_at.time_since_epoch().count() != 0) object["verifiedAt"] = detail::TimeText(limit.verified_at);
  return object;
}

inline json::object ToJson(const Usage& usage) {
  json::object object{{"capacity", usage.capacity}, {"used", usage.used}, {"drops", usage.drops}, {"overlimits", usage.overlimits}};
  detail::SetText(object, "direction", usage.direction);
  if (usage.source) object["source"] = json::object{{"interface", usage.source->interface}, {"classId", usage.source->class_id}};
  return object;
}

inline json::object ToJson(const DeviceNode& node) {
  json::object object{{"path", node.path}};
  detail::SetText(object, "hostPath", node.host_path);
  detail::SetText(object, "type", node.type);
  detail::SetText(object, "permissions", node.permissions);
  if (node.major) object["major"] = *node.major;
  if (node.minor) object["minor"] = *node.minor;
  return object;
}
inline json::object ToJson(const Mount& mount) {
  return {{"hostPath", mount.host_path}, {"containerPath", mount.container_path}, {"options", detail::Texts(mount.options)}};
}
inline json::object ToJson(const Hook& hook) {
  json::object object{{"hookName", hook.hook_name}, {"path", hook.path}, {"args", detail::Texts(hook.args)}, {"env", detail::Texts(hook.env)}};
  if (hook.timeout_seconds) object["timeout"] = *hook.timeout_seconds;
  return object;
}
inline json::object ToJson(const NetDevice& device) { return {{"hostInterfaceName", device.host_name}, {"name", device.name}}; }
inline json::object ToJson(const ContainerEdits& edits) {
  return {{"env", detail::Texts(edits.env)},
          {"deviceNodes", detail::Each(edits.device_nodes)},
          {"mounts", detail::Each(edits.mounts)},
          {"hooks", detail::Each(edits.hooks)},
          {"netDevices", detail::Each(edits.net_devices)}};
}

inline json::object ToJson(const NetworkData& network) {
  json::object object{{"interfaceName", network.interface_name}, {"ips", detail::Texts(network.ips)}};
  detail::SetText(object, "hardwareAddress", network.hardware_address);
  return object;
}

inline json::object ToJson(const Share& share) {
  json::object object{{"schemaVersion", 1}, {"key", ToJson(share.key)}, {"applied", share.applied}};
  object["limits"] = detail::Each(share.limits);
  object["usage"] = detail::Each(share.usage);
  object["containerEdits"] = ToJson(share.edits);
  object["attributes"] = ToJson(share.attributes);
  if (share.network) object["networkData"] = ToJson(*share.network);
  detail::SetText(object, "state", share.state);
  return object;
}

inline json::object ToJson(const Health& health) {
  json::object object{{"schemaVersion", 1},       {"device", health.device},     {"identity", detail::Plain(health.identity)},
                      {"source", health.source},  {"sequence", health.sequence}, {"observedAt", detail::TimeText(health.observed_at)},
                      {"verdict", health.verdict}};
  detail::SetText(object, "class", health.class_name);
  detail::SetText(object, "code", health.code);
  detail::SetText(object, "message", health.message);
  if (health.ttl_seconds) object["ttlSeconds"] = *health.ttl_seconds;
  return object;
}

inline Key KeyFrom(const json::value& value) {
  const json::object& object = detail::Object(value, "key");
  return {detail::Text(object, "claimUID"), detail::Text(object, "request"), detail::Text(object, "driver"),
          detail::Text(object, "pool"),     detail::Text(object, "device"),  detail::Text(object, "shareID")};
}

inline ShareRef ShareRefFrom(const json::value& value) {
  const json::object& object = detail::Object(value, "shares[]");
  const json::value* key = object.if_contains("key");
  if (key == nullptr) detail::Reject("key", "present");
  return {KeyFrom(*key), detail::Text(object, "state")};
}

inline PrepareRequest PrepareRequestFrom(const json::value& value) {
  const json::object& object = detail::Object(value, "shares[]");
  PrepareRequest request;
  ShareRef ref = ShareRefFrom(value);
  request.key = std::move(ref.key);
  request.state = std::move(ref.state);
  request.physical = detail::Text(object, "physical");
  request.mode = detail::Text(object, "mode");
  for (const auto& [name, amount] : detail::ObjectAt(object, "consumed")) {
    const json::object& fields = detail::Object(amount, "consumed." + std::string(name));
    request.consumed[std::string(name)] = {detail::Integer(fields, "value"), detail::Text(fields, "text")};
  }
  request.configuration = detail::ObjectAt(object, "configuration");
  request.policy_version = detail::Text(object, "policyVersion");
  request.result_index = static_cast<int>(detail::Integer(object, "resultIndex"));
  const json::object claim = detail::ObjectAt(object, "claim");
  request.claim_namespace = detail::Text(claim, "namespace");
  request.claim_name = detail::Text(claim, "name");
  if (const json::value* uids = claim.if_contains("podUIDs"); uids != nullptr && uids->is_array()) {
    for (const json::value& uid : uids->get_array()) {
      if (uid.is_string()) request.pod_uids.emplace_back(uid.get_string());
    }
  }
  return request;
}

// ---- The host's services.

// Copyable; every method may be called from any thread until the backend's destructor returns.
class Host {
 public:
  explicit Host(const tranche_host_api* api) : api_(api) {}
  void Log(std::uint32_t level, std::string_view message) const { api_->log(api_->host, level, detail::Borrow(message)); }
  void Info(std::string_view message) const { Log(TRANCHE_LOG_INFO, message); }
  void Warn(std::string_view message) const { Log(TRANCHE_LOG_WARNING, message); }
  std::chrono::system_clock::time_point Now() const {
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(api_->now(api_->host))));
  }
  void ReportHealth(const Health& health) const { api_->report_health(api_->host, detail::Borrow(json::serialize(ToJson(health)))); }
  void DevicesChanged() const { api_->devices_changed(api_->host); }
  void ShareLost(const Key& key) const { api_->share_lost(api_->host, detail::Borrow(json::serialize(ToJson(key)))); }
#if TRANCHE_TARGET_MINOR >= 1
  // False where the host is too old to keep numbers.
  bool RecordMetric(std::string_view name, std::int64_t value) const {
    if (api_->head.struct_size < offsetof(tranche_host_api, record_metric) + sizeof(void*)) return false;
    api_->record_metric(api_->host, detail::Borrow(name), value);
    return true;
  }
#endif
  const tranche_host_api* api() const { return api_; }

 private:
  const tranche_host_api* api_;
};

// Valid on the calling thread until the method returns.
class Call {
 public:
  Call(const tranche_host_api* api, tranche_call* call) : api_(api), call_(call) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool Cancelled() const { return api_->cancelled(call_) != 0; }
  void ThrowIfCancelled() const {
    if (Cancelled()) throw Error(TRANCHE_DEADLINE_EXCEEDED, "the deadline of the call has passed; the host retries");
  }
  void AddDevice(const Device& device) { api_->add_device(call_, detail::Borrow(json::serialize(ToJson(device)))); }
  void AddShare(const Share& share) { api_->add_share(call_, detail::Borrow(json::serialize(ToJson(share)))); }
  void AddResult(const Key& key, tranche_code code, std::string_view message = {}) {
    api_->add_result(call_, detail::Borrow(json::serialize(ToJson(key))), code, detail::Borrow(message));
  }
  tranche_code Fail(tranche_code code, std::string_view message) noexcept { return api_->fail(call_, code, detail::Borrow(message)); }
  tranche_call* raw() const { return call_; }

 private:
  const tranche_host_api* api_;
  tranche_call* call_;
};

// ---- The thunks.

namespace detail {

template <class T>
concept PreparesOne = requires(T& t, Call& call, const PrepareRequest& request) {
  { t.PrepareOne(call, request) } -> std::same_as<Share>;
};
template <class T>
concept PreparesList = requires(T& t, Call& call, const std::vector<PrepareRequest>& requests) {
  t.Prepare(call, requests);
};
template <class T>
concept UnpreparesOne = requires(T& t, Call& call, const ShareRef& share) {
  t.UnprepareOne(call, share);
};
template <class T>
concept UnpreparesList = requires(T& t, Call& call, const std::vector<ShareRef>& shares) {
  t.Unprepare(call, shares);
};
template <class T>
concept Verifies = requires(T& t, Call& call, const ShareRef& share) {
  { t.Verify(call, share) } -> std::same_as<Share>;
};
template <class T>
concept ChecksHealth = requires(T& t, Call& call) {
  t.CheckHealth(call);
};
template <class T>
concept Recovers = requires(T& t, Call& call, std::string_view device) {
  t.Recover(call, device);
};
template <class T>
concept ReleasesHandles = requires(T& t, Call& call) {
  t.ReleaseHandles(call);
};
template <class T>
concept SelfTests = requires(T& t, Call& call) {
  t.SelfTest(call);
};
template <class T>
concept Sweeps = requires(T& t, Call& call) {
  t.Sweep(call);
};
template <class T>
concept Backend = std::constructible_from<T, Host, const json::object&, const std::string&> &&
    (PreparesOne<T> || PreparesList<T>)&&(UnpreparesOne<T> || UnpreparesList<T>)&&requires(T& t, Call& call) {
  { T::kName } -> std::convertible_to<const char*>;
  { T::kVersion } -> std::convertible_to<const char*>;
  { t.Discover(call) } -> std::same_as<std::vector<Device>>;
  { t.ListPrepared(call) } -> std::same_as<std::vector<Share>>;
};

template <class T>
constexpr std::uint32_t Flags() {
  if constexpr (requires {
                  { T::kConcurrent } -> std::convertible_to<bool>;
                }) {
    return T::kConcurrent ? TRANCHE_FLAG_CONCURRENT : 0u;
  } else {
    return 0u;
  }
}

// Runs `body`; hands `report` the code and text of whatever it throws. What `report` throws is swallowed: INTERNAL is left.
template <class Body, class Report>
tranche_code Guard(const Body& body, const Report& report) noexcept {
  try {
    try {
      body();
      return TRANCHE_OK;
    } catch (const Error& error) { return report(error.code() == TRANCHE_OK ? TRANCHE_INTERNAL : error.code(), error.what()); } catch (const std::bad_alloc&) {
      return report(TRANCHE_RESOURCE_EXHAUSTED, "out of memory");
    } catch (const std::exception& error) { return report(TRANCHE_INTERNAL, error.what()); } catch (...) {
      return report(TRANCHE_INTERNAL, "an exception of unknown type");
    }
  } catch (...) { return TRANCHE_INTERNAL; }
}

template <Backend T>
struct Thunks {
  struct Instance {
    Host host;
    T object;
  };

  static T& Object(tranche_instance* instance) { return reinterpret_cast<Instance*>(instance)->object; }

  template <class Body>
  static tranche_code Run(tranche_instance* instance, tranche_call* raw, const Body& body) noexcept {
    Call call(reinterpret_cast<Instance*>(instance)->host.api(), raw);
    return Guard([&] { body(call); }, [&](tranche_code code, const char* text) { return call.Fail(code, text); });
  }

  template <class Item, class Body>
  static void EachItem(Call& call, const std::vector<Item>& items, const Body& body) {
    for (const Item& item : items) {
      const tranche_code code = Guard(
          [&] {
            call.ThrowIfCancelled();
            body(item);
          },
          [&](tranche_code failed, const char* text) {
            call.AddResult(item.key, failed, text);
            return failed;
          });
      if (code == TRANCHE_OK) call.AddResult(item.key, TRANCHE_OK);
    }
  }

  template <class Item>
  static std::vector<Item> Items(tranche_str text, Item (*from)(const json::value&)) {
    const json::value list = Parse(View(text), "the list of shares");
    const json::value* shares = sdk::detail::Object(list, "the list").if_contains("shares");
    if (shares == nullptr || !shares->is_array()) Reject("shares", "an array");
    std::vector<Item> items;
    for (const json::value& share : shares->get_array()) items.push_back(from(share));
    return items;
  }

  static tranche_code Create(const tranche_host_api* api, tranche_call* raw, tranche_str text, tranche_instance** out) noexcept {
    Call call(api, raw);
    const auto body = [&] {
      const json::value value = Parse(View(text), "the configuration");
      const json::object& envelope = sdk::detail::Object(value, "the configuration");
      const Host host(api);
      auto instance = std::unique_ptr<Instance>(new Instance{host, T(host, ObjectAt(envelope, "config"), Text(envelope, "runtimeDirectory"))});
      *out = reinterpret_cast<tranche_instance*>(instance.release());
    };
    return Guard(body, [&](tranche_code code, const char* message) { return call.Fail(code, message); });
  }
  static void Destroy(tranche_instance* instance) noexcept { delete reinterpret_cast<Instance*>(instance); }

  static tranche_code Discover(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      for (const Device& device : Object(instance).Discover(call)) call.AddDevice(device);
    });
  }
  static tranche_code Prepare(tranche_instance* instance, tranche_call* raw, tranche_str list) noexcept {
    return Run(instance, raw, [&](Call& call) {
      const std::vector<PrepareRequest> requests = Items<PrepareRequest>(list, &PrepareRequestFrom);
      if constexpr (PreparesList<T>) {
        Object(instance).Prepare(call, requests);
      } else {
        EachItem(call, requests, [&](const PrepareRequest& request) {
          Share share = Object(instance).PrepareOne(call, request);
          share.key = request.key;
          call.AddShare(share);
        });
      }
    });
  }
  static tranche_code Unprepare(tranche_instance* instance, tranche_call* raw, tranche_str list) noexcept {
    return Run(instance, raw, [&](Call& call) {
      const std::vector<ShareRef> shares = Items<ShareRef>(list, &ShareRefFrom);
      if constexpr (UnpreparesList<T>) {
        Object(instance).Unprepare(call, shares);
      } else {
        EachItem(call, shares, [&](const ShareRef& share) { Object(instance).UnprepareOne(call, share); });
      }
    });
  }
  static tranche_code ListPrepared(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      for (const Share& share : Object(instance).ListPrepared(call)) call.AddShare(share);
    });
  }
  static tranche_code Verify(tranche_instance* instance, tranche_call* raw, tranche_str key) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (Verifies<T>) call.AddShare(Object(instance).Verify(call, ShareRefFrom(Parse(View(key), "the key"))));
    });
  }
  static tranche_code CheckHealth(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (ChecksHealth<T>) Object(instance).CheckHealth(call);
    });
  }
  static tranche_code Recover(tranche_instance* instance, tranche_call* raw, tranche_str device) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (Recovers<T>) Object(instance).Recover(call, View(device));
    });
  }
  static tranche_code ReleaseHandles(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (ReleasesHandles<T>) Object(instance).ReleaseHandles(call);
    });
  }
  static tranche_code SelfTest(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (SelfTests<T>) Object(instance).SelfTest(call);
    });
  }

#if TRANCHE_TARGET_MINOR >= 1
  static tranche_code Sweep(tranche_instance* instance, tranche_call* raw) noexcept {
    return Run(instance, raw, [&](Call& call) {
      if constexpr (Sweeps<T>) Object(instance).Sweep(call);
    });
  }
#endif

  static constexpr tranche_backend_api kTable = {
      {static_cast<std::uint32_t>(sizeof(tranche_backend_api)), TRANCHE_ABI_MAJOR, TRANCHE_TARGET_MINOR},
      TRANCHE_BACKEND_MAGIC,
      Flags<T>(),
      T::kName,
      T::kVersion,
      &Create,
      &Destroy,
      &Discover,
      &Prepare,
      &Unprepare,
      &ListPrepared,
      Verifies<T> ? &Verify : nullptr,
      ChecksHealth<T> ? &CheckHealth : nullptr,
      Recovers<T> ? &Recover : nullptr,
      ReleasesHandles<T> ? &ReleaseHandles : nullptr,
      SelfTests<T> ? &SelfTest : nullptr,
#if TRANCHE_TARGET_MINOR >= 1
      Sweeps<T> ? &Sweep : nullptr,
#endif
  };

  // Every host service of 1.0 must be there; what came later is looked for when it is used.
  static const tranche_backend_api* Entry(const tranche_head* host) noexcept {
    if (host == nullptr || host->major != TRANCHE_ABI_MAJOR || host->struct_size < offsetof(tranche_host_api, add_result) + sizeof(void*)) return nullptr;
    return &kTable;
  }
};

}  // namespace detail
}  // namespace tranche::sdk

// Emits the one export. Nothing is constructed at load time.
#define TRANCHE_BACKEND(Class)                                                                        \
  extern "C" TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head* host) { \
    return ::tranche::sdk::detail::Thunks<Class>::Entry(host);                                        \
  }

#endif  // TRANCHE_BACKEND_HPP
