#include "ctl/prove.h"

#include <unistd.h>

#include <iostream>
#include <map>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "proof/proof.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

absl::StatusOr<std::map<std::string, proof::PodPlace>> ParsePods(const std::vector<std::string>& pods) {
  std::map<std::string, proof::PodPlace> places;
  for (const std::string& pod : pods) {
    const std::size_t equals = pod.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pod.size()) {
      return absl::InvalidArgumentError(Cat("\"", pod, "\" does not say where a pod is; write NAMESPACE/CLAIM=NETNS or NAMESPACE/CLAIM=NETNS,INTERFACE"));
    }
    const std::string place = pod.substr(equals + 1);
    const std::size_t comma = place.find(',');
    places[pod.substr(0, equals)] = {.network_namespace = place.substr(0, comma), .interface = comma == std::string::npos ? "" : place.substr(comma + 1)};
  }
  return places;
}

void ShowProgress(const proof::Progress& progress) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  std::cerr << (terminal ? "\r\033[K" : "") << "[" << progress.done << "/" << progress.total << "] " << progress.step << (terminal ? "" : "\n") << std::flush;
}

absl::StatusOr<proof::Plan> MakePlan(const Target& target, const ProveOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(const auto pods, ParsePods(options.pods));
  TRANCHE_ASSIGN_OR_RETURN(const json::value shares, AskOrRead(target, "shares", json::object()));
  proof::Plan plan;
  TRANCHE_ASSIGN_OR_RETURN(plan.network.shares, proof::SharesFromAdmin(shares, pods));
  plan.network.host_namespace = options.host_namespace;
  plan.network.peer = {.network_namespace = options.peer_namespace, .address = options.peer_address};
  plan.phase.window = std::chrono::milliseconds(static_cast<std::int64_t>(options.seconds * 1000));
  if (!options.latency) plan.neighbour_rounds = 0;
  return plan;
}

}  // namespace

int Prove(const Target& target, Format format, const ProveOptions& options) {
  const absl::StatusOr<proof::Plan> plan = MakePlan(target, options);
  if (!plan.ok()) return Fail(plan.status());
  const absl::StatusOr<proof::Proof> proof = proof::Run(*plan, ShowProgress);
  if (::isatty(STDERR_FILENO) != 0) std::cerr << "\n";
  if (!proof.ok()) return Fail(proof.status());
  if (format == Format::kJson) {
    PrintJson(proof::EncodeProof(plan->network, *proof));
  } else {
    std::cout << proof::FormatTable(plan->network, *proof);
  }
  for (const std::string& failure : proof->failures) std::cerr << "tranchectl: " << failure << "\n";
  return proof->held() ? kSuccess : kFailure;
}

}  // namespace tranche::ctl
