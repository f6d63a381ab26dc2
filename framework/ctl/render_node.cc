// What runs on a node: namespace, permissions, configuration, DaemonSet.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.h"
#include "ctl/render_parts.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr char kConfigurationDirectory[] = "/etc/tranche";
constexpr char kStateDirectory[] = "/var/lib/tranche";
constexpr char kRuntimeDirectory[] = "/run/tranche";
constexpr char kCdiDirectory[] = "/var/run/cdi";
// Where the image has what it brings (deploy/README.md).
constexpr char kImageBackends[] = "/usr/lib/tranche/backends";
constexpr char kImageHooks[] = "/usr/bin/";

json::object Rule(const std::vector<std::string>& groups, const std::vector<std::string>& resources, const std::vector<std::string>& verbs) {
  return {{"apiGroups", Texts(groups)}, {"resources", Texts(resources)}, {"verbs", Texts(verbs)}};
}

json::array Rules(const RenderInput& input) {
  constexpr char kGroup[] = "resource.k8s.io";
  json::array rules;
  rules.push_back(Rule({kGroup}, {"resourceclaims"}, {"get"}));
  rules.push_back(Rule({kGroup}, {"resourceclaims/status"}, {"update", "patch"}));
  const std::vector<std::string> drivers = DriverNames(input.configuration);
  // A rule without names would be for every driver.
  if (input.kubernetes_minor >= kGranularStatusMinor && !drivers.empty()) {
    json::object rule = Rule({kGroup}, {"resourceclaims/driver"}, {"associated-node:update", "associated-node:patch"});
    rule["resourceNames"] = Texts(drivers);
    rules.push_back(std::move(rule));
  }
  rules.push_back(Rule({kGroup}, {"resourceslices"}, {"get", "list", "watch", "create", "update", "patch", "delete"}));
  rules.push_back(Rule({""}, {"nodes"}, {"get"}));
  rules.push_back(Rule({"", "events.k8s.io"}, {"events"}, {"create", "patch"}));
  return rules;
}

json::object Mount(std::string_view name, std::string_view path, bool read_only = false) {
  json::object mount{{"name", name}, {"mountPath", path}};
  if (read_only) mount["readOnly"] = true;
  return mount;
}

json::object HostVolume(std::string_view name, std::string_view path, std::string_view type) {
  return {{"name", name}, {"hostPath", json::object{{"path", path}, {"type", type}}}};
}

json::object FieldVariable(std::string_view name, std::string_view field) {
  return {{"name", name}, {"valueFrom", json::object{{"fieldRef", json::object{{"fieldPath", field}}}}}};
}

// `tranchectl status` answers as soon as the host serves; it says nothing about single backends, which a restart would not help.
json::object Probe(int period_seconds, int failures) {
  return {{"exec", json::object{{"command", json::array{"tranchectl", "status"}}}},
          {"periodSeconds", period_seconds},
          {"timeoutSeconds", 5},
          {"failureThreshold", failures}};
}

json::object SecurityContext(const std::vector<std::string>& capabilities, bool privileged) {
  if (privileged) return {{"privileged", true}, {"runAsUser", 0}, {"readOnlyRootFilesystem", true}};
  json::object granted{{"drop", json::array{"ALL"}}};
  if (!capabilities.empty()) granted["add"] = Texts(capabilities);
  return {{"runAsUser", 0},
          {"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", std::move(granted)},
          {"seccompProfile", json::object{{"type", "RuntimeDefault"}}}};
}

json::object Resources(std::string_view cpu, std::string_view memory, std::string_view memory_limit) {
  return {{"requests", json::object{{"cpu", cpu}, {"memory", memory}}}, {"limits", json::object{{"memory", memory_limit}}}};
}

std::string Plugins(const RenderOptions& options) { return options.kubelet_root + "/plugins"; }

// Directories of hooks that do not lie below the kubelet's plugins directory, which is mounted anyway.
std::vector<std::string> HookDirectories(const RenderInput& input) {
  std::set<std::string> directories;
  for (const HookFile& hook : HooksOf(input.configuration)) {
    if (!hook.destination.starts_with(Plugins(input.options) + "/")) directories.insert(std::filesystem::path(hook.destination).parent_path());
  }
  return {directories.begin(), directories.end()};
}

std::string HookVolume(std::size_t index) { return Cat("hooks-", index); }

json::array InitContainers(const RenderInput& input) {
  const std::vector<HookFile> hooks = HooksOf(input.configuration);
  if (hooks.empty()) return {};
  json::array command{"tranchectl", "install"};
  for (const HookFile& hook : hooks) command.push_back(json::string(hook.source + "=" + hook.destination));
  json::array mounts{Mount("plugins", Plugins(input.options))};
  const std::vector<std::string> directories = HookDirectories(input);
  for (std::size_t index = 0; index < directories.size(); ++index) mounts.push_back(Mount(HookVolume(index), directories[index]));
  return {json::object{{"name", "install-hooks"},
                       {"image", input.options.image},
                       {"imagePullPolicy", "IfNotPresent"},
                       {"command", std::move(command)},
                       {"securityContext", SecurityContext({}, false)},
                       {"resources", Resources("10m", "16Mi", "128Mi")},
                       {"volumeMounts", std::move(mounts)}}};
}

json::array Volumes(const RenderInput& input) {
  json::array volumes{
      json::object{{"name", "configuration"}, {"configMap", json::object{{"name", kConfigMapName}}}},
      HostVolume("registration", input.options.kubelet_root + "/plugins_registry", "Directory"),
      HostVolume("plugins", Plugins(input.options), "Directory"),
      HostVolume("cdi", kCdiDirectory, "DirectoryOrCreate"),
      HostVolume("state", kStateDirectory, "DirectoryOrCreate"),
      HostVolume("runtime", kRuntimeDirectory, "DirectoryOrCreate"),
  };
  const std::vector<std::string> directories = HookDirectories(input);
  for (std::size_t index = 0; index < directories.size(); ++index) {
    volumes.push_back(HostVolume(HookVolume(index), directories[index], "DirectoryOrCreate"));
  }
  return volumes;
}

json::object HostContainer(const RenderInput& input, const Privileges& privileges) {
  const RenderOptions& options = input.options;
  const json::array command{"tranched",
                            "--config",
                            Cat(kConfigurationDirectory, "/host.yaml"),
                            "--node-name",
                            "$(NODE_NAME)",
                            "--instance",
                            "$(POD_UID)",
                            "--kubelet-root",
                            options.kubelet_root,
                            "--cdi-directory",
                            kCdiDirectory,
                            "--backend-directory",
                            kImageBackends,
                            "--state-directory",
                            kStateDirectory,
                            "--runtime-directory",
                            kRuntimeDirectory};
  const json::array environment{FieldVariable("NODE_NAME", "spec.nodeName"), FieldVariable("POD_UID", "metadata.uid"),
                                json::object{{"name", "TRANCHE_SOCKET"}, {"value", Cat(kRuntimeDirectory, "/admin-$(POD_UID).sock")}}};
  return {{"name", "tranched"},
          {"image", options.image},
          {"imagePullPolicy", "IfNotPresent"},
          {"command", command},
          {"env", environment},
          {"securityContext", SecurityContext(privileges.capabilities, options.privileged)},
          {"resources", Resources("50m", "64Mi", "512Mi")},
          {"startupProbe", Probe(2, 90)},
          {"readinessProbe", Probe(10, 3)},
          {"livenessProbe", Probe(30, 4)},
          {"volumeMounts",
           json::array{Mount("configuration", kConfigurationDirectory, true), Mount("registration", options.kubelet_root + "/plugins_registry"),
                       Mount("plugins", Plugins(options)), Mount("cdi", kCdiDirectory), Mount("state", kStateDirectory), Mount("runtime", kRuntimeDirectory)}}};
}

json::object PodSpec(const RenderInput& input) {
  const Privileges privileges = PrivilegesOf(input);
  json::object pod{{"serviceAccountName", kNodeName},
                   {"priorityClassName", "system-node-critical"},
                   {"nodeSelector", json::object{{"kubernetes.io/os", "linux"}}},
                   {"tolerations", json::array{json::object{{"operator", "Exists"}}}},
                   {"terminationGracePeriodSeconds", 30}};
  if (privileges.host_network) {
    pod["hostNetwork"] = true;
    pod["dnsPolicy"] = "ClusterFirstWithHostNet";
  }
  if (json::array init = InitContainers(input); !init.empty()) pod["initContainers"] = std::move(init);
  pod["containers"] = json::array{HostContainer(input, privileges)};
  pod["volumes"] = Volumes(input);
  return pod;
}

}  // namespace

json::object RenderNamespace(const RenderInput& input) {
  json::object metadata = Metadata(input.options.namespace_name, "");
  // Host paths and, for some backends, the node's network: what the privileged level alone permits.
  metadata["labels"].as_object()["pod-security.kubernetes.io/enforce"] = "privileged";
  return {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", std::move(metadata)}};
}

json::array RenderRbac(const RenderInput& input) {
  constexpr char kApi[] = "rbac.authorization.k8s.io/v1";
  const std::string& namespace_name = input.options.namespace_name;
  return {json::object{{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", Metadata(kNodeName, namespace_name)}},
          json::object{{"apiVersion", kApi}, {"kind", "ClusterRole"}, {"metadata", Metadata(kNodeName, "")}, {"rules", Rules(input)}},
          json::object{{"apiVersion", kApi},
                       {"kind", "ClusterRoleBinding"},
                       {"metadata", Metadata(kNodeName, "")},
                       {"subjects", json::array{json::object{{"kind", "ServiceAccount"}, {"name", kNodeName}, {"namespace", namespace_name}}}},
                       {"roleRef", json::object{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", kNodeName}}}}};
}

json::object RenderConfigMap(const RenderInput& input) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", Metadata(kConfigMapName, input.options.namespace_name)},
          {"data", json::object{{"host.yaml", input.text}}}};
}

json::object RenderDaemonSet(const RenderInput& input) {
  const json::object selector{{"app.kubernetes.io/component", kNodeName}};
  return {{"apiVersion", "apps/v1"},
          {"kind", "DaemonSet"},
          {"metadata", Metadata(kNodeName, input.options.namespace_name)},
          {"spec",
           json::object{{"selector", json::object{{"matchLabels", selector}}},
                        // The new host serves before the old one goes; both work on one store.
                        {"updateStrategy", json::object{{"type", "RollingUpdate"}, {"rollingUpdate", json::object{{"maxSurge", 1}, {"maxUnavailable", 0}}}}},
                        {"minReadySeconds", 5},
                        {"template", json::object{{"metadata", json::object{{"labels", selector}}}, {"spec", PodSpec(input)}}}}}};
}

Privileges PrivilegesOf(const RenderInput& input) {
  static const std::map<std::string, Privileges, std::less<>> kKnown = {
      {"vnic_tc", {true, {"BPF", "NET_ADMIN"}, {}}},
      {"null_backend", {}},
  };
  Privileges sum{input.options.host_network, input.options.capabilities, {}};
  for (const config::BackendConfiguration& backend : input.configuration.backends) {
    const auto known = kKnown.find(backend.library);
    if (known == kKnown.end()) {
      sum.unknown.push_back(backend.library);
      continue;
    }
    sum.host_network = sum.host_network || known->second.host_network;
    sum.capabilities.insert(sum.capabilities.end(), known->second.capabilities.begin(), known->second.capabilities.end());
  }
  for (std::vector<std::string>* list : {&sum.capabilities, &sum.unknown}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return sum;
}

std::vector<HookFile> HooksOf(const config::HostConfiguration& configuration) {
  std::vector<HookFile> hooks;
  std::set<std::string> seen;
  for (const config::BackendConfiguration& backend : configuration.backends) {
    if (backend.library != "vnic_tc") continue;
    boost::system::error_code error;
    const json::value own = json::parse(backend.config, error);
    const json::value* path = error || !own.is_object() ? nullptr : own.get_object().if_contains("attachHook");
    if (path == nullptr || !path->is_string()) continue;  // the backend itself says what is wrong with it
    const std::string destination = std::filesystem::path(path->get_string().c_str()).lexically_normal();
    if (destination.starts_with('/') && seen.insert(destination).second) hooks.push_back({Cat(kImageHooks, "vnic-attach"), destination});
  }
  return hooks;
}

}  // namespace tranche::ctl
