#include "conform/examine.h"

#include <array>
#include <chrono>
#include <utility>

#include <absl/strings/match.h>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;

absl::Status ConnectCluster(Session& session) {
  const Options& options = session.options;
  if (options.kubeconfig.empty()) {
    session.no_claims = "no --kubeconfig";
    return absl::OkStatus();
  }
  TRANCHE_ASSIGN_OR_RETURN(session.cluster, Cluster::Connect({options.kubeconfig, options.context, options.node, options.namespace_name, options.parameters}));
  return absl::OkStatus();
}

std::string Subject(const Session& session) {
  std::string subject = Cat("driver ", session.info.name);
  if (session.cluster != nullptr) Append(subject, " on node ", session.options.node, ", Kubernetes ", session.cluster->server_version());
  return subject;
}

// What no case came to: a rule that every answer is looked at by, when there was none of its kind.
void SkipTheRest(Session& session, std::string_view why) {
  for (const Rule& rule : Rules()) {
    if (session.report.Of(rule.id).outcome != Outcome::kNotReached) continue;
    session.report.Skip(rule.id, why.empty() ? "the driver gave nothing to judge by it" : std::string(why));
  }
}

}  // namespace

absl::StatusOr<std::string> FindRegistrationSocket(const Options& options) {
  if (!options.registration_socket.empty()) return options.registration_socket;
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options.plugins_registry));
  std::string others;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, ".") || !absl::EndsWith(name, ".sock")) continue;
    const std::string socket = Cat(options.plugins_registry, "/", name);
    const absl::StatusOr<Info> info = Registration(socket).GetInfo(DeadlineIn(2s));
    if (info.ok() && info->name == options.driver) return socket;
    Append(others, others.empty() ? "; there are: " : ", ", name, info.ok() ? Cat(" (", info->name, ")") : " (no answer)");
  }
  return absl::NotFoundError(Cat("no socket of ", options.plugins_registry, " answers as driver ", options.driver, others));
}

absl::Status Examine(const Options& options, Report& report) {
  Session session(options, report);
  TRANCHE_ASSIGN_OR_RETURN(session.registration_socket, FindRegistrationSocket(options));
  TRANCHE_RETURN_IF_ERROR(ConnectCluster(session));
  report.SetSubject(session.registration_socket);
  if (!ExamineRegistration(session)) {
    SkipTheRest(session, "the driver cannot be called: see Registration");
    return absl::OkStatus();
  }
  report.SetSubject(Subject(session));
  constexpr auto kCases = std::to_array({ExamineCalls, ExamineSlices, ExamineClaims, ExamineConcurrency, ExamineDevices, ExamineHealth, ExamineSliceDeletion,
                                         ExamineRestart, ExamineHostileInput});
  for (const auto& examine : kCases) {
    if (options.is_interrupted()) return absl::OkStatus();
    examine(session);
  }
  SkipTheRest(session, session.no_claims);
  return absl::OkStatus();
}

}  // namespace tranche::dra_conform
