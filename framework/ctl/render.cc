#include "ctl/render.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iostream>
#include <optional>

#include <boost/json.hpp>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "ctl/render_parts.h"
#include "ctl/yaml_writer.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxConfigurationBytes = 1024 * 1024;
constexpr int kFirstMinor = 34;   // resource.k8s.io/v1
constexpr int kSharesMinor = 36;  // DRAConsumableCapacity is on by default
// Text of a policy that depends on the configuration. More could cost an evaluation its budget, and a policy that fails refuses every
// claim.
constexpr std::size_t kMaxPolicyBytes = 128 * 1024;

// "1.37" or "v1.37.2" as 37.
std::optional<int> Minor(std::string_view version) {
  if (version.starts_with('v')) version.remove_prefix(1);
  if (!version.starts_with("1.")) return std::nullopt;
  version.remove_prefix(2);
  int minor = 0;
  const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), minor);
  if (error != std::errc() || (end != version.data() + version.size() && *end != '.')) return std::nullopt;
  return minor;
}

bool IsPart(std::string_view name) { return std::find(std::begin(kRenderParts), std::end(kRenderParts), name) != std::end(kRenderParts); }

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

absl::Status CheckOptions(const RenderOptions& options) {
  if (!IsDnsLabel(options.namespace_name)) {
    return absl::InvalidArgumentError(
        Cat("--namespace \"", options.namespace_name, "\" is not a DNS label; name the host's namespace, such as tranche-system"));
  }
  if (!IsWord(options.image)) return absl::InvalidArgumentError(Cat("--image \"", options.image, "\" is not the name of an image"));
  const std::string& root = options.kubelet_root;
  if (!IsWord(root) || !root.starts_with('/') || root.ends_with('/') || root.find(':') != std::string::npos) {
    return absl::InvalidArgumentError(Cat("--kubelet-root \"", root, "\" is not an absolute path without ':' and without '/' at its end"));
  }
  for (const std::string& capability : options.capabilities) {
    const bool plain = std::all_of(capability.begin(), capability.end(), [](unsigned char c) { return std::isupper(c) != 0 || c == '_'; });
    if (capability.empty() || !plain || capability.starts_with("CAP_")) {
      return absl::InvalidArgumentError(Cat("--capability \"", capability, "\": write it as Kubernetes does, such as SYS_ADMIN"));
    }
  }
  for (const std::string& part : options.parts) {
    if (!IsPart(part)) {
      return absl::InvalidArgumentError(Cat("\"", part, "\" is no part; use some of namespace, rbac, config, daemonset, classes, policies, or none for all"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> SupportedMinor(const RenderOptions& options) {
  const std::optional<int> minor = Minor(options.kubernetes);
  if (!minor.has_value()) return absl::InvalidArgumentError(Cat("--kubernetes \"", options.kubernetes, "\" is not a version such as 1.37"));
  if (*minor < kFirstMinor) {
    return absl::InvalidArgumentError(Cat("--kubernetes ", options.kubernetes, ": resource.k8s.io/v1 is served from 1.34 on; Tranche needs that"));
  }
  return *minor;
}

absl::Status CheckPolicySizes(const json::array& policies) {
  for (const json::value& policy : policies) {
    const std::size_t bytes = json::serialize(policy).size();
    if (bytes <= kMaxPolicyBytes) continue;
    return absl::InvalidArgumentError(Cat("policy ", policy.at("metadata").at("name").as_string().c_str(), " would have ", bytes, " bytes, more than ",
                                          kMaxPolicyBytes, "; use globs in namespaces.allow instead of lists of names, or fewer classes"));
  }
  return absl::OkStatus();
}

void AddAll(json::array& to, json::array from) {
  for (json::value& item : from) to.push_back(std::move(item));
}

}  // namespace

json::object Metadata(std::string_view name, std::string_view namespace_name) {
  json::object metadata{{"name", name}};
  if (!namespace_name.empty()) metadata["namespace"] = namespace_name;
  metadata["labels"] = json::object{{"app.kubernetes.io/name", "tranche"}, {"app.kubernetes.io/managed-by", "tranchectl"}};
  return metadata;
}

json::array Texts(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

std::vector<std::string> DriverNames(const config::HostConfiguration& configuration) {
  std::vector<std::string> names;
  for (const config::DriverConfiguration& driver : configuration.drivers) names.push_back(driver.name);
  return names;
}

absl::StatusOr<json::array> RenderObjects(const config::HostConfiguration& configuration, std::string_view text, const RenderOptions& options) {
  TRANCHE_RETURN_IF_ERROR(CheckOptions(options));
  TRANCHE_ASSIGN_OR_RETURN(const int minor, SupportedMinor(options));
  if (!IsUtf8(text)) return absl::InvalidArgumentError(Cat(options.file, " is not UTF-8; a ConfigMap carries nothing else"));
  const RenderInput input{configuration, text, options, minor};
  const auto wanted = [&](std::string_view part) {
    return options.parts.empty() || std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  json::array objects;
  if (wanted("namespace")) objects.push_back(RenderNamespace(input));
  if (wanted("rbac")) AddAll(objects, RenderRbac(input));
  if (wanted("config")) objects.push_back(RenderConfigMap(input));
  if (wanted("policies")) {
    json::array policies = RenderPolicies(input);
    TRANCHE_RETURN_IF_ERROR(CheckPolicySizes(policies));
    AddAll(objects, std::move(policies));
  }
  if (wanted("classes")) AddAll(objects, RenderClasses(input));
  if (wanted("daemonset")) objects.push_back(RenderDaemonSet(input));
  return objects;
}

std::vector<std::string> RenderNotes(const config::HostConfiguration& configuration, const RenderOptions& options) {
  std::vector<std::string> notes;
  const RenderInput input{configuration, "", options, Minor(options.kubernetes).value_or(kSharesMinor)};
  for (const std::string& library : options.privileged ? std::vector<std::string>() : PrivilegesOf(input).unknown) {
    notes.push_back(Cat("what backend ", library, " needs on a node is not known here; give it with --capability, --host-network or --privileged"));
  }
  const auto shares = [](const config::OfferConfiguration& offer) { return offer.mode == Mode::kShare; };
  const bool any_share = std::any_of(configuration.drivers.begin(), configuration.drivers.end(), [&](const config::DriverConfiguration& driver) {
    return std::any_of(driver.offers.begin(), driver.offers.end(), shares);
  });
  if (any_share && input.kubernetes_minor < kSharesMinor) {
    notes.push_back(Cat("offers of mode share need the feature gate DRAConsumableCapacity, which Kubernetes ", options.kubernetes, " has off by default"));
  }
  return notes;
}

std::string RenderYaml(const json::array& objects) {
  std::string yaml;
  for (const json::value& object : objects) Append(yaml, yaml.empty() ? "" : "---\n", WriteYaml(object));
  return yaml;
}

int RenderConfiguration(const RenderOptions& options, Format format) {
  const absl::StatusOr<std::string> text = ReadFile(options.file, kMaxConfigurationBytes);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<config::HostConfiguration> configuration = config::ParseConfiguration(*text, options.file);
  if (!configuration.ok()) return Fail(configuration.status());
  absl::StatusOr<json::array> objects = RenderObjects(*configuration, *text, options);
  if (!objects.ok()) return Fail(objects.status());
  for (const std::string& note : RenderNotes(*configuration, options)) std::cerr << "note: " << note << "\n";
  if (format == Format::kJson) {
    PrintJson(json::object{{"apiVersion", "v1"}, {"kind", "List"}, {"items", *std::move(objects)}});
  } else {
    std::cout << RenderYaml(*objects);
  }
  return kSuccess;
}

}  // namespace tranche::ctl
