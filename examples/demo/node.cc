#include "node.h"

#include <csignal>
#include <thread>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <boost/json.hpp>

#include "base/files.h"
#include "base/status.h"
#include "model/json.h"
#include "network.h"

namespace tranche::demo {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kCommandTimeout(40'000);
constexpr milliseconds kStartTimeout(20'000);

constexpr char kConfiguration[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: vnic_tc
  isolation: in-process
  config:
    parents: [{interface: $UPLINK, bandwidth: 700M, subnet: $SUBNET, gateway: $PEER}]
    attachHook: "$PROGRAMS/vnic-attach"
  allowEdits: {hooks: ["$PROGRAMS/"]}
drivers:
- name: vnic.tranche.dev
  offers:
  - name: shared
    backend: uplink
    mode: share
    capacity:
      bandwidth: {default: 50M, min: 10M, max: 300M, step: 10M, reserve: 10%}
  classes:
  - name: vnic-shared
    offer: shared
    namespaces: {allow: ["team-*"]}
    minimumEnforcement: hard
)";

std::string Manifest(const ClaimSpec& claim) {
  return absl::StrCat("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {namespace: ", claim.tenant, ", name: ", claim.name,
                      "}\nspec:\n  devices:\n    requests:\n    - name: nic\n      exactly:\n        deviceClassName: vnic-shared\n"
                      "        capacity:\n          requests:\n            bandwidth: \"",
                      claim.asked, "\"\n");
}

std::string WithoutPrefix(std::string text, const std::string& prefix) { return text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text; }

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

absl::Status Node::Configure() const {
  TRANCHE_RETURN_IF_ERROR(MakeDirectories(directory_, 0750));
  const std::string text = absl::StrReplaceAll(kConfiguration, {{"$UPLINK", kUplink}, {"$SUBNET", kSubnet}, {"$PEER", kPeerAddress}, {"$PROGRAMS", programs_}});
  return WriteFileAtomically(directory_ + "/host.yaml", text, 0640, Durability::kVisible);
}

absl::Status Node::Start() {
  // `ip netns exec` also shows the namespace's own /sys; it becomes the program itself, so the pid is tranched's.
  TRANCHE_ASSIGN_OR_RETURN(proof::Process process,
                           proof::Process::Start({{"ip", "netns", "exec", network_namespace_, programs_ + "/tranched", "--local", directory_, "--config",
                                                   directory_ + "/host.yaml", "--backend-directory", programs_ + "/../backends", "--node-name", "demo-node"},
                                                  "",
                                                  directory_ + "/tranched.log"}));
  process_ = std::move(process);
  const auto end = std::chrono::steady_clock::now() + kStartTimeout;
  while (std::chrono::steady_clock::now() < end && process_->Running()) {
    const absl::StatusOr<proof::Finished> status = Try({"status"});
    if (status.ok() && status->exit_code == 0) return absl::OkStatus();
    std::this_thread::sleep_for(milliseconds(30));
  }
  const std::string what = process_->Running() ? "does not serve" : "ended at start";
  return absl::UnavailableError(absl::StrCat("tranched ", what, "; the end of its log:\n", LogTail()));
}

void Node::Kill() {
  if (!process_.has_value()) return;
  process_->Signal(SIGKILL);
  static_cast<void>(process_->Wait(milliseconds(5000)));
}

absl::Status Node::Stop() {
  if (!process_.has_value()) return absl::OkStatus();
  process_->Signal(SIGTERM);
  const absl::StatusOr<int> status = process_->Wait(milliseconds(10'000));
  process_.reset();
  if (!status.ok()) return Annotate(status.status(), "tranched does not stop on SIGTERM");
  if (*status != 0) return absl::InternalError(absl::StrCat("tranched did not end cleanly on SIGTERM (wait status ", *status, ")"));
  return absl::OkStatus();
}

absl::StatusOr<proof::Finished> Node::Try(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {"ip", "netns", "exec", network_namespace_, programs_ + "/tranchectl", "--dir", directory_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return proof::RunCommand({command, "", ""}, kCommandTimeout);
}

absl::StatusOr<std::string> Node::Ctl(const std::vector<std::string>& arguments) const {
  TRANCHE_ASSIGN_OR_RETURN(const proof::Finished finished, Try(arguments));
  if (finished.exit_code == 0) return finished.output;
  return absl::FailedPreconditionError(
      absl::StrCat("tranchectl ", absl::StrJoin(arguments, " "), ": exit code ", finished.exit_code, ": ", Trimmed(finished.output)));
}

absl::StatusOr<boost::json::value> Node::CtlJson(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {"-o", "json"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, Ctl(command));
  return ParseJson(text);
}

absl::Status Node::Apply(const ClaimSpec& claim) const {
  const std::string file = absl::StrCat(directory_, "/", claim.tenant, "-", claim.name, ".yaml");
  TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(file, Manifest(claim), 0640, Durability::kVisible));
  return Ctl({"local", "apply", "-f", file}).status();
}

absl::Status Node::Grant(const ClaimSpec& claim, const std::string& pod_namespace) const {
  TRANCHE_RETURN_IF_ERROR(Apply(claim));
  TRANCHE_RETURN_IF_ERROR(Ctl({"local", "allocate", claim.Path()}).status());
  TRANCHE_RETURN_IF_ERROR(Ctl({"local", "prepare", claim.Path()}).status());
  return Ctl({"local", "attach", claim.Path(), "--netns", absl::StrCat("/run/netns/", pod_namespace)}).status();
}

absl::StatusOr<std::string> Node::Refusal(const ClaimSpec& claim) const {
  TRANCHE_RETURN_IF_ERROR(Apply(claim));
  TRANCHE_ASSIGN_OR_RETURN(const proof::Finished finished, Try({"local", "allocate", claim.Path()}));
  TRANCHE_RETURN_IF_ERROR(Ctl({"local", "delete", claim.Path()}).status());
  if (finished.exit_code != 0) return WithoutPrefix(Trimmed(finished.output), absl::StrCat("tranchectl: ", claim.Path(), ": "));
  return absl::InternalError(absl::StrCat(claim.Path(), " asked for ", claim.asked, " and was granted; it must be refused"));
}

absl::Status Node::Release(const ClaimSpec& claim) const {
  TRANCHE_RETURN_IF_ERROR(Ctl({"local", "unprepare", claim.Path()}).status());
  return Ctl({"local", "delete", claim.Path()}).status();
}

std::string Node::LogTail() const {
  const absl::StatusOr<std::string> log = ReadFile(directory_ + "/tranched.log", std::size_t{16} << 20);
  if (!log.ok()) return std::string(log.status().message());
  return log->size() > 3000 ? log->substr(log->size() - 3000) : *log;
}

}  // namespace tranche::demo
