#include "host/options.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "base/ids.h"

namespace tranche::host {
namespace {

constexpr int kUsageError = 2;

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "node";
  return ToDnsLabel(name.data());
}

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path absolute = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!absolute.has_filename() && absolute.has_parent_path()) absolute = absolute.parent_path();
  return absolute;
}

void Default(std::string& path, const std::string& otherwise) { path = path.empty() ? otherwise : Absolute(path); }

void MakeAbsolute(std::string& path) {
  if (!path.empty()) path = Absolute(path);
}

void ApplyLocalDefaults(Options& options) {
  options.local = Absolute(options.local);
  Default(options.config, options.local + "/host.yaml");
  Default(options.backend_directory, options.local + "/backends");
  Default(options.state_directory, options.local + "/state");
  Default(options.cdi_directory, options.local + "/cdi");
  Default(options.plugin_directory, options.local + "/plugins");
  Default(options.registry_directory, options.local + "/plugins_registry");
  Default(options.runtime_directory, options.local + "/run");
}

void ApplyClusterDefaults(Options& options) {
  Default(options.kubelet_root, "/var/lib/kubelet");
  Default(options.config, "/etc/tranche/host.yaml");
  Default(options.backend_directory, "/usr/lib/tranche/backends");
  Default(options.state_directory, "/var/lib/tranche");
  Default(options.cdi_directory, "/var/run/cdi");
  Default(options.plugin_directory, options.kubelet_root + "/plugins");
  Default(options.registry_directory, options.kubelet_root + "/plugins_registry");
  Default(options.runtime_directory, "/run/tranche");
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

int Refuse(const std::string& message) {
  std::cerr << "tranched: " << message << "\n";
  return kUsageError;
}

}  // namespace

ParsedOptions ParseOptions(int argc, char** argv) {
  Options options;
  long reconcile_seconds = options.reconcile_interval.count();
  long pause_milliseconds = options.longest_pause.count();
  long trial_seconds = options.trial.count();
  long verify_seconds = options.verify_interval.count();
  CLI::App app("Tranche node host: serves vendor backends as Kubernetes DRA drivers", "tranched");
  app.set_version_flag("--version", std::string(kVersion));
  app.add_option("--local", options.local, "work without a cluster on this directory")->type_name("DIR");
  app.add_option("--kubeconfig", options.kubeconfig, "how to reach the API server [the pod's service account]")->type_name("FILE");
  app.add_option("--kubelet-root", options.kubelet_root, "the kubelet's directory [/var/lib/kubelet]")->type_name("DIR");
  app.add_option("--config", options.config, "configuration file [/etc/tranche/host.yaml | DIR/host.yaml]")->type_name("FILE");
  app.add_option("--node-name", options.node_name, "name of this node: the pool's name [$NODE_NAME, host name]");
  app.add_option("--backend-directory", options.backend_directory, "backends and their manifests [/usr/lib/tranche/backends | DIR/backends]")->type_name("DIR");
  app.add_option("--state-directory", options.state_directory, "durable state [/var/lib/tranche | DIR/state]")->type_name("DIR");
  app.add_option("--cdi-directory", options.cdi_directory, "CDI specs [/var/run/cdi | DIR/cdi]")->type_name("DIR");
  app.add_option("--plugin-directory", options.plugin_directory, "the kubelet's plugins directory [KUBELET-ROOT/plugins | DIR/plugins]")->type_name("DIR");
  app.add_option("--registry-directory", options.registry_directory,
                 "the kubelet's registration directory [KUBELET-ROOT/plugins_registry | DIR/plugins_registry]")
      ->type_name("DIR");
  app.add_option("--runtime-directory", options.runtime_directory, "admin socket and backends' lock files [/run/tranche | DIR/run]")->type_name("DIR");
  app.add_option("--runner", options.runner, "program that hosts a backend with isolation: process [tranche-runner beside this program]")->type_name("FILE");
  app.add_option("--longest-restart-pause", pause_milliseconds, "milliseconds between two starts of a backend's process that keeps ending, at most [30000]")
      ->check(CLI::Range(1, 3600000));
  app.add_option("--replacement-trial", trial_seconds, "seconds that a backend's new library is tried before the old one goes [10]")
      ->check(CLI::Range(1, 3600));
  app.add_option("--log-level", options.log_level, "debug | info | warning | error [info]");
  app.add_option("--instance", options.instance, "name of this host where several overlap [$POD_UID]");
  app.add_option("--reconcile-interval", reconcile_seconds, "seconds between two comparisons with the kernel [180]")->check(CLI::Range(1, 86400));
  app.add_option("--verify-interval", verify_seconds, "seconds between two looks at the limits in force [20]")->check(CLI::Range(1, 3600));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return {.options = std::nullopt, .exit_code = app.exit(error) == 0 ? 0 : kUsageError}; }
  const bool in_cluster = options.local.empty();
  if (!in_cluster && !(options.kubeconfig.empty() && options.kubelet_root.empty())) {
    return {.options = std::nullopt, .exit_code = Refuse("--local works without a cluster: --kubeconfig and --kubelet-root do not go with it")};
  }
  if (in_cluster && options.kubeconfig.empty() && Environment("KUBERNETES_SERVICE_HOST").empty()) {
    return {.options = std::nullopt,
            .exit_code = Refuse("this is no pod, so the API server is not known: name it with --kubeconfig FILE, or a directory with --local DIR to work "
                                "without a cluster")};
  }
  if (in_cluster && options.instance.empty()) options.instance = Environment("POD_UID");
  if (in_cluster && options.node_name.empty()) options.node_name = Environment("NODE_NAME");
  if (!options.instance.empty() && !IsDnsLabel(options.instance)) {
    return {.options = std::nullopt, .exit_code = Refuse("--instance \"" + options.instance + "\" is not a DNS label")};
  }
  if (options.node_name.empty()) options.node_name = HostName();
  if (!IsDnsSubdomain(options.node_name)) {
    return {.options = std::nullopt, .exit_code = Refuse("--node-name \"" + options.node_name + "\" is not a DNS subdomain")};
  }
  options.reconcile_interval = std::chrono::seconds(reconcile_seconds);
  options.verify_interval = std::chrono::seconds(verify_seconds);
  options.trial = std::chrono::seconds(trial_seconds);
  options.longest_pause = std::chrono::milliseconds(pause_milliseconds);
  MakeAbsolute(options.runner);
  if (in_cluster) {
    ApplyClusterDefaults(options);
  } else {
    ApplyLocalDefaults(options);
  }
  return {.options = std::move(options), .exit_code = 0};
}

}  // namespace tranche::host
