// CDI 0.3.0–1.1.0, https://github.com/cncf-tags/container-device-interface SPEC.md. Runtimes drop a whole file for one mistake, so that
// everything they check is checked here first.
#include "cdi/cdi.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::cdi {
namespace json = boost::json;

namespace {

constexpr std::string_view kClass = "claim";

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool HasShape(std::string_view text, std::string_view middle) {
  if (text.empty() || !IsAlnum(text.front()) || !IsAlnum(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return IsAlnum(c) || middle.find(c) != std::string_view::npos; });
}

bool IsVendorOrClass(std::string_view text) { return HasShape(text, "_.-") && IsLetter(text.front()); }

bool IsEmpty(const ContainerEdits& edits) { return edits == ContainerEdits{}; }

absl::Status Invalid(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(Cat("CDI device ", where, ": ", what, "; a container runtime would drop the whole spec"));
}

absl::Status CheckKind(const std::string& kind) {
  const std::size_t slash = kind.find('/');
  const std::string_view text = kind;
  if (slash != std::string::npos && IsVendorOrClass(text.substr(0, slash)) && IsVendorOrClass(text.substr(slash + 1))) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("CDI kind \"", kind, "\" must be VENDOR/CLASS, each starting with a letter; the vendor is the driver's name"));
}

absl::Status CheckEnv(const std::string& device, const std::vector<std::string>& env) {
  for (const std::string& entry : env) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) return Invalid(device, Cat("environment entry \"", entry, "\" is not NAME=value"));
  }
  return absl::OkStatus();
}

absl::Status CheckNodes(const std::string& device, const std::vector<DeviceNode>& nodes) {
  static const std::set<std::string_view> kTypes = {"", "b", "c", "u", "p"};
  for (const DeviceNode& node : nodes) {
    if (node.path.empty()) return Invalid(device, "a device node has no path");
    if (!kTypes.contains(node.type)) return Invalid(device, Cat("device node ", node.path, " has type \"", node.type, "\", not b, c, u or p"));
    if (node.permissions.find_first_not_of("rwm") != std::string::npos) {
      return Invalid(device, Cat("device node ", node.path, " has permissions \"", node.permissions, "\", not of r, w, m"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHooks(const std::string& device, const std::vector<Hook>& hooks) {
  static const std::set<std::string_view> kNames = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"};
  for (const Hook& hook : hooks) {
    if (!kNames.contains(hook.hook_name)) return Invalid(device, Cat("\"", hook.hook_name, "\" is not the name of an OCI hook"));
    if (!hook.path.starts_with('/')) return Invalid(device, Cat("hook path \"", hook.path, "\" is not absolute"));
    TRANCHE_RETURN_IF_ERROR(CheckEnv(device, hook.env));
  }
  return absl::OkStatus();
}

absl::Status CheckNetDevices(const std::string& device, const std::vector<NetDevice>& net_devices) {
  std::set<std::string_view> hosts, names;
  for (const NetDevice& net : net_devices) {
    if (net.host_name.empty() || net.name.empty()) return Invalid(device, "a net device needs hostInterfaceName and name");
    if (!hosts.insert(net.host_name).second || !names.insert(net.name).second) return Invalid(device, Cat("net device ", net.name, " is there twice"));
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const Device& device) {
  if (!HasShape(device.name, "_.-:")) return Invalid(Cat("\"", device.name, "\""), "the name has characters that CDI does not allow");
  if (IsEmpty(device.edits)) return Invalid(device.name, "it has no container edits");
  TRANCHE_RETURN_IF_ERROR(CheckEnv(device.name, device.edits.env));
  TRANCHE_RETURN_IF_ERROR(CheckNodes(device.name, device.edits.device_nodes));
  for (const Mount& mount : device.edits.mounts) {
    if (mount.host_path.empty() || mount.container_path.empty()) return Invalid(device.name, "a mount needs hostPath and containerPath");
  }
  TRANCHE_RETURN_IF_ERROR(CheckHooks(device.name, device.edits.hooks));
  return CheckNetDevices(device.name, device.edits.net_devices);
}

absl::Status CheckSpec(const Spec& spec) {
  TRANCHE_RETURN_IF_ERROR(CheckKind(spec.kind));
  if (spec.devices.empty()) return absl::InvalidArgumentError(Cat("CDI spec of ", spec.kind, " has no devices; a spec needs at least one"));
  std::set<std::string_view> names;
  for (const Device& device : spec.devices) {
    TRANCHE_RETURN_IF_ERROR(CheckDevice(device));
    if (!names.insert(device.name).second) return Invalid(device.name, "two devices have this name");
  }
  return absl::OkStatus();
}

}  // namespace

std::string MinimumVersion(const Spec& spec) {
  const std::size_t slash = spec.kind.find('/');
  const bool class_has_dot = slash != std::string::npos && spec.kind.find('.', slash) != std::string::npos;
  bool net_devices = false, since_0_5 = false;
  for (const Device& device : spec.devices) {
    net_devices = net_devices || !device.edits.net_devices.empty();
    since_0_5 = since_0_5 || (!device.name.empty() && !IsLetter(device.name.front()));
    for (const DeviceNode& node : device.edits.device_nodes) since_0_5 = since_0_5 || !node.host_path.empty();
  }
  if (net_devices) return "1.1.0";
  if (class_has_dot) return "0.6.0";
  return since_0_5 ? "0.5.0" : "0.3.0";
}

absl::StatusOr<std::string> EncodeSpec(const Spec& spec) {
  TRANCHE_RETURN_IF_ERROR(CheckSpec(spec));
  json::object object{{"cdiVersion", MinimumVersion(spec)}, {"kind", spec.kind}};
  json::array& devices = object["devices"].emplace_array();
  for (const Device& device : spec.devices) { devices.push_back(json::object{{"name", device.name}, {"containerEdits", EncodeContainerEdits(device.edits)}}); }
  return ToPrettyJson(object);
}

absl::StatusOr<Spec> DecodeSpec(std::string_view text) {
  TRANCHE_ASSIGN_OR_RETURN(const json::value value, ParseJson(text));
  const json::object* object = value.if_object();
  const json::value* kind = object == nullptr ? nullptr : object->if_contains("kind");
  const json::value* devices = object == nullptr ? nullptr : object->if_contains("devices");
  if (kind == nullptr || !kind->is_string() || devices == nullptr || !devices->is_array()) {
    return absl::InvalidArgumentError("not a CDI spec: it needs kind (text) and devices (a list)");
  }
  Spec spec{std::string(kind->get_string()), {}};
  for (const json::value& item : devices->get_array()) {
    const json::object* entry = item.if_object();
    const json::value* name = entry == nullptr ? nullptr : entry->if_contains("name");
    const json::value* edits = entry == nullptr ? nullptr : entry->if_contains("containerEdits");
    if (name == nullptr || !name->is_string() || edits == nullptr) {
      return absl::InvalidArgumentError(Cat("not a CDI spec: a device of ", spec.kind, " lacks name or containerEdits"));
    }
    TRANCHE_ASSIGN_OR_RETURN(ContainerEdits decoded, DecodeContainerEdits(*edits));
    spec.devices.push_back({std::string(name->get_string()), std::move(decoded)});
  }
  TRANCHE_RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

std::string DeviceName(const ShareKey& key) { return Cat(key.claim_uid, "-", ShortId(key)); }

std::string DeviceId(std::string_view driver, const ShareKey& key) { return Cat(driver, "/", kClass, "=", DeviceName(key)); }

}  // namespace tranche::cdi
