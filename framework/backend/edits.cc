#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "backend/backend.h"
#include "base/status.h"

namespace tranche::backend {
namespace {

constexpr std::array<std::string_view, 6> kHookNames = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"};
constexpr std::size_t kInterfaceNameLimit = 15;

// Absolute, without "//", "." or "..", NUL or a trailing separator: a prefix comparison then means what it says.
bool IsNormalised(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) return false;
  if (path == "/") return true;
  std::size_t begin = 1;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool IsUnder(std::string_view path, std::string_view prefix) {
  if (prefix.empty() || prefix.front() != '/') return false;
  while (!prefix.empty() && prefix.back() == '/') prefix.remove_suffix(1);
  if (!prefix.empty() && !IsNormalised(prefix)) return false;
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

absl::Status CheckPath(std::string_view what, const std::string& path, const std::vector<std::string>& prefixes, std::string_view key) {
  if (!IsNormalised(path)) { return absl::PermissionDeniedError(absl::StrCat(std::string(what), " \"", path, "\" is not an absolute, normalised path")); }
  for (const std::string& prefix : prefixes) {
    if (IsUnder(path, prefix)) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(std::string(what), " ", path, " is not allowed; add its directory to allowEdits.", std::string(key), " of the backend if it should be"));
}

absl::Status CheckContainerPath(std::string_view what, const std::string& path) {
  if (IsNormalised(path)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(std::string(what), " has container path \"", path, "\", which is not absolute and normalised"));
}

absl::Status CheckDeviceNode(const DeviceNode& node, const EditAllowList& allowed) {
  TRANCHE_RETURN_IF_ERROR(CheckContainerPath("device node", node.path));
  if (node.permissions.find_first_not_of("rwm") != std::string::npos) {
    return absl::PermissionDeniedError(absl::StrCat("device node ", node.path, " has permissions \"", node.permissions, "\"; use r, w, m"));
  }
  return CheckPath("device node", node.host_path.empty() ? node.path : node.host_path, allowed.device_nodes, "deviceNodes");
}

absl::Status CheckMount(const Mount& mount, const EditAllowList& allowed) {
  TRANCHE_RETURN_IF_ERROR(CheckContainerPath("mount", mount.container_path));
  return CheckPath("mount of host path", mount.host_path, allowed.mounts, "mounts");
}

absl::Status CheckHook(const Hook& hook, const EditAllowList& allowed) {
  if (std::find(kHookNames.begin(), kHookNames.end(), hook.hook_name) == kHookNames.end()) {
    return absl::PermissionDeniedError(absl::StrCat("hook \"", hook.hook_name, "\" is not a hook of the runtime specification"));
  }
  return CheckPath("hook", hook.path, allowed.hooks, "hooks");
}

bool IsVariableName(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

absl::Status CheckVariable(const std::string& variable, const EditAllowList& allowed) {
  const std::string name = variable.substr(0, variable.find('='));
  if (name.size() == variable.size() || !IsVariableName(name) || variable.find('\0') != std::string::npos) {
    return absl::PermissionDeniedError(absl::StrCat("environment edit \"", name, "\" is not NAME=value"));
  }
  for (const std::string& prefix : allowed.env) {
    if (!prefix.empty() && name.starts_with(prefix)) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("environment variable ", name, " is not allowed; add its prefix to allowEdits.env of the backend if it should be"));
}

bool IsInterfaceName(std::string_view name) {
  if (name.empty() || name.size() > kInterfaceNameLimit || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return std::isgraph(static_cast<unsigned char>(c)) != 0 && c != '/' && c != ':'; });
}

absl::Status CheckNetDevice(const NetDevice& device, const EditAllowList& allowed) {
  if (!IsInterfaceName(device.host_name) || !IsInterfaceName(device.name)) {
    return absl::PermissionDeniedError(absl::StrCat("network device \"", device.host_name, "\" → \"", device.name, "\" is not a pair of interface names"));
  }
  if (allowed.net_devices) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("moving network device ", device.host_name, " into the container is not allowed; set allowEdits.netDevices of the backend if it should be"));
}

}  // namespace

absl::Status CheckEdits(const ContainerEdits& edits, const EditAllowList& allowed) {
  for (const std::string& variable : edits.env) TRANCHE_RETURN_IF_ERROR(CheckVariable(variable, allowed));
  for (const DeviceNode& node : edits.device_nodes) TRANCHE_RETURN_IF_ERROR(CheckDeviceNode(node, allowed));
  for (const Mount& mount : edits.mounts) TRANCHE_RETURN_IF_ERROR(CheckMount(mount, allowed));
  for (const Hook& hook : edits.hooks) TRANCHE_RETURN_IF_ERROR(CheckHook(hook, allowed));
  for (const NetDevice& device : edits.net_devices) TRANCHE_RETURN_IF_ERROR(CheckNetDevice(device, allowed));
  return absl::OkStatus();
}

}  // namespace tranche::backend
