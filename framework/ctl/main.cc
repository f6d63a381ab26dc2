// tranchectl: the operator's view of a host, and local mode's hands. Command line only; the commands are in show.h, check.h, local_commands.h, prove.h.
#include <csignal>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "ctl/backend_new.h"
#include "ctl/backend_run.h"
#include "ctl/check.h"
#include "ctl/install.h"
#include "ctl/local_commands.h"
#include "ctl/prove.h"
#include "ctl/render.h"
#include "ctl/show.h"

namespace tranche::ctl {
namespace {

constexpr char kVersion[] = "0.1.0";

// Where the command line puts its values, and what runs after it was read.
struct Request {
  Target target;
  Format format = Format::kTable;
  Filter filter;
  ProveOptions prove;
  RenderOptions render;
  RunOptions run;
  std::string file, backend, backend_directory, claim, claim_uid, netns;
  bool all = false;
  std::vector<std::string> files, claims;
  std::function<int()> command;
};

void AddShow(CLI::App& app, Request& request) {
  const auto show = [&](const char* name, const char* what, auto run) {
    CLI::App* command = app.add_subcommand(name, what);
    command->callback([&request, run] { request.command = [&request, run] { return run(request); }; });
    return command;
  };
  const auto filter = [&](CLI::App* command) {
    command->add_option("--claim", request.filter.claim, "only this claim: UID, NAME or NAMESPACE/NAME");
    command->add_option("--tenant", request.filter.tenant, "only this namespace");
    return command;
  };
  show("status", "host, configuration, backends and drivers", [](Request& r) { return ShowStatus(r.target, r.format); });
  show("devices", "published devices: capacity, reserve, allocated, free; and what is withheld and why",
       [](Request& r) { return ShowDevices(r.target, r.format); });
  filter(show("claims", "claims that this node holds", [](Request& r) { return ShowClaims(r.target, r.format, r.filter); }));
  CLI::App* shares = filter(show("shares", "shares and the limits in force", [](Request& r) { return ShowShares(r.target, r.format, r.filter); }));
  shares->add_flag("!--no-verify", request.filter.verify, "show what was stored instead of asking the backend now");
  CLI::App* audit = filter(show("audit", "who got, lost or was refused which capacity", [](Request& r) { return ShowAudit(r.target, r.format, r.filter); }));
  audit->add_option("--after", request.filter.after, "only records with a higher id")->check(CLI::NonNegativeNumber);
  audit->add_option("--limit", request.filter.limit, "at most so many records [1000]")->check(CLI::Range(1, 10000));
  CLI::App* reconcile = show("reconcile", "compare state, kernel and files now", [](Request& r) { return ShowReconcile(r.target, r.format, r.backend); });
  reconcile->add_option("--backend", request.backend, "only this backend");
  CLI::App* release = show("release-unknown", "take away what is in force and unknown to the store (it is new, was emptied or restored)",
                           [](Request& r) { return ReleaseUnknown(r.target, r.format, r.claim_uid); });
  CLI::Option* one = release->add_option("--claim-uid", request.claim_uid, "shares of this claim");
  CLI::Option* all = release->add_flag("--all", request.all, "all of them")->excludes(one);
  release->callback([&request, one, all] {
    if (one->count() + all->count() == 0) throw CLI::ValidationError("release-unknown", "name the claim with --claim-uid UID, or say --all");
    request.command = [&request] { return ReleaseUnknown(request.target, request.format, request.claim_uid); };
  });
  CLI::App* explain = show("explain", "why a claim does not fit", [](Request& r) { return Explain(r.target, r.format, r.claim); });
  explain->add_option("claim", request.claim, "NAMESPACE/NAME")->required();
}

void AddFiles(CLI::App& app, Request& request) {
  CLI::App* check = app.add_subcommand("check", "errors of a configuration file, with their lines");
  check->add_option("file", request.file, "configuration file")->required();
  check->add_option("--backend-directory", request.backend_directory, "manifests that the backends' config is checked against [/usr/lib/tranche/backends]")
      ->check(CLI::ExistingDirectory);
  check->callback([&request] { request.command = [&request] { return CheckConfiguration(request.file, request.backend_directory, request.format); }; });
  CLI::App* backend = app.add_subcommand("backend", "backend libraries")->require_subcommand(1);
  CLI::App* inspect = backend->add_subcommand("inspect", "what manifest, file and symbols of a library say; nothing of it runs");
  inspect->add_option("file", request.file, "library or manifest")->required();
  inspect->add_flag("--load", request.all, "open it as well, in a child process");
  inspect->callback([&request] { request.command = [&request] { return InspectBackend(request.file, request.all, request.format); }; });
  CLI::App* make = backend->add_subcommand("new", "start a backend of your own: a complete example under another name");
  make->add_option("name", request.backend, "[a-z][a-z0-9_]*")->required();
  make->add_option("directory", request.file, "where to; must not exist or be empty")->required();
  make->callback([&request] { request.command = [&request] { return NewBackend(request.backend, request.file, request.format); }; });
  CLI::App* run = backend->add_subcommand("run", "try a library: local mode around it, one claim of every mode from allocation to release");
  run->add_option("file", request.run.library, "library or manifest")->required();
  run->add_option("--config", request.run.config, "JSON file with the backend's configuration [{}]")->type_name("FILE");
  run->add_option("--keep", request.run.directory, "directory of local mode, kept afterwards [a temporary one]")->type_name("DIR");
  run->add_flag("--in-process", request.run.in_process, "in the host's process instead of one of its own");
  run->callback([&request] { request.command = [&request] { return RunBackend(request.run, request.format); }; });
}

void AddDeployment(CLI::App& app, Request& request) {
  CLI::App* render = app.add_subcommand("render", "Kubernetes objects of a configuration: permissions, DaemonSet, DeviceClasses, admission policies");
  render->add_option("--config", request.render.file, "configuration file")->required()->type_name("FILE");
  render->add_option("--namespace", request.render.namespace_name, "the host's namespace [tranche-system]");
  render->add_option("--image", request.render.image, "image with tranched and its backends [tranche.dev/tranched:dev]");
  render->add_option("--kubernetes", request.render.kubernetes, "version of the cluster [1.37]");
  render->add_option("--kubelet-root", request.render.kubelet_root, "the kubelet's --root-dir [/var/lib/kubelet]")->type_name("DIR");
  render->add_option("--capability", request.render.capabilities, "one more Linux capability that a backend needs; repeat")->type_name("NAME")->expected(1);
  render->add_flag("--host-network", request.render.host_network, "run in the node's network namespace (vnic_tc implies it)");
  render->add_flag("--privileged", request.render.privileged, "run privileged");
  render->add_option("part", request.render.parts, "only these: namespace rbac config daemonset classes policies");
  render->callback([&request] { request.command = [&request] { return RenderConfiguration(request.render, request.format); }; });
  CLI::App* install = app.add_subcommand("install", "copy hook programs to where the node's container runtime finds them");
  install->add_option("files", request.files, "SOURCE=DESTINATION ...")->required();
  install->callback([&request] { request.command = [&request] { return InstallFiles(request.files, request.format); }; });
}

void AddLocal(CLI::App& app, Request& request) {
  CLI::App* local = app.add_subcommand("local", "API server, scheduler, kubelet and runtime of a local directory")->require_subcommand(1);
  CLI::App* apply = local->add_subcommand("apply", "create the claims of manifests");
  apply->add_option("-f,--filename", request.files, "manifest; - is standard input")->required();
  apply->callback([&request] { request.command = [&request] { return LocalApply(request.target, request.format, request.files); }; });
  const auto claims = [&](const char* name, const char* what, int (*run)(const Target&, Format, const std::vector<std::string>&)) {
    CLI::App* command = local->add_subcommand(name, what);
    command->add_option("claims", request.claims, "NAMESPACE/NAME ...")->required();
    command->callback([&request, run] { request.command = [&request, run] { return run(request.target, request.format, request.claims); }; });
  };
  claims("allocate", "choose devices, as the scheduler does", LocalAllocate);
  claims("prepare", "call the drivers, as the kubelet does", LocalPrepare);
  claims("unprepare", "call the drivers, as the kubelet does", LocalUnprepare);
  claims("delete", "release and remove", LocalDelete);
  CLI::App* attach = local->add_subcommand("attach", "run the claim's hooks for a network namespace, as a runtime does");
  attach->add_option("claim", request.claim, "NAMESPACE/NAME")->required();
  attach->add_option("--netns", request.netns, "name under /run/netns, path, or process id")->required();
  attach->callback([&request] { request.command = [&request] { return LocalAttach(request.target, request.format, request.claim, request.netns); }; });
  CLI::App* list = local->add_subcommand("list", "claims of the directory");
  list->callback([&request] { request.command = [&request] { return LocalList(request.target, request.format); }; });
}

void AddProve(CLI::App& app, Request& request) {
  CLI::App* prove = app.add_subcommand("prove", "load every share and compare with its limit (needs root and iperf3)");
  prove->add_option("--pod", request.prove.pods, "where a claim's pod is: NAMESPACE/CLAIM=NETNS[,INTERFACE]; repeat")->required();
  prove->add_option("--peer-netns", request.prove.peer_namespace, "network namespace of the peer behind the uplink");
  prove->add_option("--peer-address", request.prove.peer_address, "address of the peer")->required();
  prove->add_option("--host-netns", request.prove.host_namespace, "network namespace of the host's uplink [this one]");
  prove->add_option("--seconds", request.prove.seconds, "length of each measurement [5]")->check(CLI::Range(0.5, 600.0));
  prove->add_flag("!--no-latency", request.prove.latency, "do not measure what neighbours notice");
  prove->callback([&request] { request.command = [&request] { return Prove(request.target, request.format, request.prove); }; });
}

// The first word that is in the place of a command and names none: what to say about it, "" when there is none.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-o" || word == "--output" || word == "--socket" || word == "--dir") ++i;  // its value follows
    if (word.starts_with("-")) continue;
    const std::vector<const CLI::App*> known = command->get_subcommands([](const CLI::App*) { return true; });
    if (known.empty()) return "";
    const CLI::App* next = nullptr;
    std::string names;
    for (const CLI::App* candidate : known) {
      if (candidate->get_name() == word) next = candidate;
      names += (names.empty() ? "" : ", ") + candidate->get_name();
    }
    if (next == nullptr) return command->get_name() + " has no command '" + word + "'; its commands are " + names;
    command = next;
  }
  return "";
}

int Main(int argc, char** argv) {
  Request request;
  request.filter.verify = true;
  CLI::App app("Looks at a Tranche node host, explains and proves; drives local mode", "tranchectl");
  app.require_subcommand(1);
  app.fallthrough();  // global options may follow the command
  std::string format = "table";
  app.add_option("-o,--output", format, "table | json [table]")->check(CLI::IsMember({"table", "json"}));
  app.add_option("--socket", request.target.socket, "the host's admin socket [/run/tranche/admin.sock, or in DIR]")->envname("TRANCHE_SOCKET");
  app.add_option("--dir", request.target.directory, "directory of local mode")->envname("TRANCHE_LOCAL");
  AddShow(app, request);
  AddFiles(app, request);
  AddDeployment(app, request);
  AddLocal(app, request);
  AddProve(app, request);
  CLI::App* version = app.add_subcommand("version", "version of this program");
  version->callback([&request] {
    request.command = [] {
      std::cout << "tranchectl " << kVersion << "\n";
      return kSuccess;
    };
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = UnknownCommand(app, argc, argv); !unknown.empty() && error.get_exit_code() != 0) {
      std::cerr << unknown << "\n";
      return kUsage;
    }
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }
  request.format = format == "json" ? Format::kJson : Format::kTable;
  return request.command();
}

}  // namespace
}  // namespace tranche::ctl

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return tranche::ctl::Main(argc, argv);
}
