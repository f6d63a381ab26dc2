// dra-conform: examines a DRA driver by the rules of docs/dra-conformance.md.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "base/files.h"
#include "conform/examine.h"
#include "conform/report.h"
#include "conform/rules.h"
#include "telemetry/log.h"

namespace {

using tranche::dra_conform::Options;
using tranche::dra_conform::Report;

constexpr int kConforms = 0, kViolates = 1, kUsage = 2;
constexpr std::size_t kMaxParameterBytes = 10 << 10;  // of a claim's opaque configuration

volatile std::sig_atomic_t interrupted = 0;

std::string DefaultNode() {
  if (const char* node = std::getenv("NODE_NAME"); node != nullptr && *node != '\0') return node;
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

struct Request {
  Options options;
  std::string format = "text", parameters_file;
  bool rules = false;
};

void AddOptions(CLI::App& app, Request& request) {
  Options& options = request.options;
  auto* socket = app.add_option("--registration", options.registration_socket, "the driver's registration socket")->type_name("SOCKET");
  auto* registry =
      app.add_option("--plugins-registry", options.plugins_registry, "the kubelet's registration directory, to look for --driver in")->type_name("DIR");
  app.add_option("--driver", options.driver, "name of the driver in that directory")->needs(registry);
  registry->needs("--driver")->excludes(socket);
  app.add_option("--kubeconfig", options.kubeconfig, "how to reach the API server as an administrator; without it claims and slices are skipped")
      ->type_name("FILE");
  app.add_option("--context", options.context, "of the kubeconfig [its current one]");
  app.add_option("--node", options.node, "whose slices are read [$NODE_NAME, host name]");
  app.add_option("--namespace", options.namespace_name, "of the claims [default]");
  app.add_option("--device-class", options.device_class, "class in the claims' requests [the driver's name]");
  app.add_option("--share-class", options.share_class, "the same for devices that allow several allocations [--device-class]");
  app.add_option("--parameters", request.parameters_file, "the claims' opaque configuration for the driver, a JSON object")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--cdi-dir", options.cdi_directories, "CDI directories, the last one first [/etc/cdi,/var/run/cdi]")->type_name("DIR")->delimiter(',');
  app.add_option("--restart-command", options.restart_command, "for sh: restarts the driver, and returns when the old process has ended")->type_name("COMMAND");
  app.add_flag("--leave-slices", options.leave_slices, "delete no slice");
  app.add_option("-o,--output", request.format, "text | json | junit [text]")->check(CLI::IsMember({"text", "json", "junit"}));
  app.add_flag("--rules", request.rules, "print the rules, and examine nothing");
}

// "" or why the request cannot be served.
std::string Complete(Request& request) {
  Options& options = request.options;
  if (options.registration_socket.empty() && options.plugins_registry.empty())
    return "name the driver's --registration socket, or --plugins-registry and --driver";
  if (options.node.empty()) options.node = DefaultNode();
  if (!request.parameters_file.empty()) {
    const absl::StatusOr<std::string> text = tranche::ReadFile(request.parameters_file, kMaxParameterBytes);
    if (!text.ok()) return std::string(text.status().message());
    boost::system::error_code error;
    if (const boost::json::value value = boost::json::parse(*text, error); error || !value.is_object()) return request.parameters_file + ": not a JSON object";
    options.parameters = *text;
  }
  options.is_interrupted = [] { return interrupted != 0; };
  return "";
}

int Run(Request& request) {
  if (const std::string problem = Complete(request); !problem.empty()) {
    std::cerr << "dra-conform: " << problem << "\n";
    return kUsage;
  }
  Report report(request.options.registration_socket);
  if (const absl::Status examined = tranche::dra_conform::Examine(request.options, report); !examined.ok()) {
    std::cerr << "dra-conform: " << examined.message() << "\n";
    return kUsage;
  }
  std::cout << (request.format == "json" ? report.Json() : request.format == "junit" ? report.JUnit() : report.Text()) << std::flush;
  return report.Conforms() ? kConforms : kViolates;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  // What was made is removed before the end.
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { interrupted = 1; });
  (void)tranche::SetLogLevel("error");
  CLI::App app(
      "dra-conform: plays the kubelet against a DRA driver and reports by the rules of docs/dra-conformance.md.\n"
      "Exit code 0: no \"must\" rule failed; 1: one did; 2: wrong use, or nothing could be examined.");
  Request request;
  AddOptions(app, request);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kUsage;
  }
  if (request.rules) {
    std::cout << tranche::dra_conform::RulesTable();
    return 0;
  }
  return Run(request);
}
