#include "plugins/vnic_tc/config.h"

#include <algorithm>
#include <cctype>

namespace vnic {
namespace {

namespace json = boost::json;
using tranche::sdk::Error;

__extension__ typedef __int128 Wide;  // products of two 64-bit numbers

constexpr std::int64_t kMaximumDefaultBits = 10'000'000;
constexpr std::int64_t kMinimumDefaultBits = 64'000;

[[noreturn]] void Invalid(const std::string& message) { throw Error(TRANCHE_INVALID_ARGUMENT, message); }

std::string TextOf(const json::object& object, std::string_view name, const std::string& where) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return {};
  if (!value->is_string()) Invalid(where + "." + std::string(name) + " must be a text");
  return std::string(value->get_string());
}

std::int64_t BitsOf(const json::object& object, std::string_view name, const std::string& where) {
  const std::string text = TextOf(object, name, where);
  const auto bits = ParseBits(text);
  if (!bits || *bits <= 0) Invalid(where + "." + std::string(name) + " \"" + text + "\" is not an amount of bits per second; write for example 10G");
  return *bits;
}

void CheckInterfaceName(const std::string& name, const std::string& where) {
  const bool bad = name.empty() || name.size() > 15 || name == "." || name == ".." ||
                   std::any_of(name.begin(), name.end(), [](unsigned char c) { return c == '/' || c == ':' || c == '|' || std::isgraph(c) == 0; });
  if (bad) Invalid(where + " \"" + name + "\" is not an interface name (1 to 15 visible characters without / : |)");
}

// A DNS label from an interface name.
std::string DeviceName(const std::string& interface) {
  std::string name;
  for (const char character : interface) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
    name += std::isalnum(static_cast<unsigned char>(lower)) != 0 ? lower : '-';
  }
  while (!name.empty() && name.front() == '-') name.erase(0, 1);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "nic" : name;
}

Parent ReadParent(const json::object& object, const std::string& where) {
  Parent parent;
  parent.interface = TextOf(object, "interface", where);
  CheckInterfaceName(parent.interface, where + ".interface");
  if (parent.interface == "lo") Invalid(where + ".interface \"lo\" is the loopback, which leads to nobody; name the interface towards the network");
  parent.device = DeviceName(parent.interface);
  parent.bandwidth_bits = BitsOf(object, "bandwidth", where);
  parent.default_bits =
      object.contains("defaultRate") ? BitsOf(object, "defaultRate", where) : std::clamp(parent.bandwidth_bits / 100, kMinimumDefaultBits, kMaximumDefaultBits);
  if (parent.default_bits >= parent.bandwidth_bits) Invalid(where + ".defaultRate must be below bandwidth");
  const std::string subnet = TextOf(object, "subnet", where);
  const auto parsed = ParseSubnet(subnet);
  if (!parsed || parsed->prefix > 30 || parsed->prefix < 8) {
    Invalid(where + ".subnet \"" + subnet + "\" is not an IPv4 subnet of prefix 8 to 30; write for example 10.99.0.0/24");
  }
  parent.subnet = *parsed;
  parent.reserved = parent.subnet.base + 1;
  if (object.contains("gateway")) {
    const std::string gateway = TextOf(object, "gateway", where);
    const auto address = ParseIpv4(gateway);
    if (!address || !parent.subnet.Contains(*address)) Invalid(where + ".gateway \"" + gateway + "\" is not an address of " + subnet);
    parent.reserved = *address;
  }
  parent.bridge = object.contains("bridge") ? TextOf(object, "bridge", where) : "";
  if (object.contains("bridge")) CheckInterfaceName(parent.bridge, where + ".bridge");
  return parent;
}

}  // namespace

std::optional<std::int64_t> ParseBits(std::string_view text) {
  std::size_t position = 0;
  Wide digits = 0;
  int decimals = 0;
  bool point = false, any = false;
  for (; position < text.size(); ++position) {
    const char character = text[position];
    if (character == '.' && !point) {
      point = true;
      continue;
    }
    if (character < '0' || character > '9') break;
    any = true;
    if (point) ++decimals;
    digits = digits * 10 + (character - '0');
    if (digits > INT64_MAX || decimals > 18) return std::nullopt;
  }
  static constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {{"", 1},           {"k", 1000},          {"M", 1000000},
                                                                         {"G", 1000000000}, {"T", 1000000000000}, {"Ki", 1LL << 10},
                                                                         {"Mi", 1LL << 20}, {"Gi", 1LL << 30},    {"Ti", 1LL << 40}};
  const auto* unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& entry) { return entry.first == text.substr(position); });
  if (!any || unit == std::end(kUnits)) return std::nullopt;
  Wide value = digits * unit->second;
  for (; decimals > 0; --decimals) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  if (value > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Config ReadConfig(const json::object& object) {
  Config config;
  config.attach_hook = TextOf(object, "attachHook", "config");
  if (config.attach_hook.empty() || config.attach_hook.front() != '/') Invalid("config.attachHook must be the absolute path of vnic-attach on the host");
  const json::value* parents = object.if_contains("parents");
  if (parents == nullptr || !parents->is_array() || parents->get_array().empty()) Invalid("config.parents must list at least one interface");
  for (const json::value& value : parents->get_array()) {
    const std::string where = "config.parents[" + std::to_string(config.parents.size()) + "]";
    if (!value.is_object()) Invalid(where + " must be an object");
    Parent parent = ReadParent(value.get_object(), where);
    for (const Parent& other : config.parents) {
      if (other.device == parent.device) Invalid(where + ".interface " + parent.interface + " is configured twice (device name " + parent.device + ")");
    }
    config.parents.push_back(std::move(parent));
  }
  return config;
}

ShareParameters ReadParameters(const json::object& configuration, const Parent& parent, int result_index) {
  const std::string where = "parameters";
  if (const std::string direction = TextOf(configuration, "direction", where); !direction.empty() && direction != "both") {
    Invalid("parameters.direction \"" + direction + "\" is not supported; a share is limited in both directions (\"both\")");
  }
  ShareParameters parameters;
  parameters.interface_name = TextOf(configuration, "interfaceName", where);
  if (parameters.interface_name.empty()) parameters.interface_name = "net" + std::to_string(result_index + 1);
  CheckInterfaceName(parameters.interface_name, "parameters.interfaceName");
  if (parameters.interface_name == "lo") Invalid("parameters.interfaceName \"lo\" is the pod's loopback; choose another name");
  parameters.range = parent.subnet;
  if (configuration.contains("subnet")) {
    const std::string text = TextOf(configuration, "subnet", where);
    const auto range = ParseSubnet(text);
    if (!range || range->prefix < parent.subnet.prefix || !parent.subnet.Contains(range->base)) {
      Invalid("parameters.subnet \"" + text + "\" is not a range inside " + SubnetText(parent.subnet) + ", the subnet of " + parent.interface);
    }
    parameters.range = *range;
  }
  if (const json::value* mtu = configuration.if_contains("mtu"); mtu != nullptr) {
    boost::system::error_code error;
    const auto bytes = mtu->to_number<std::int64_t>(error);
    if (error || bytes < 576 || bytes > 65535) Invalid("parameters.mtu must be a number from 576 to 65535");
    parameters.mtu = static_cast<std::uint32_t>(bytes);
  }
  return parameters;
}

}  // namespace vnic
