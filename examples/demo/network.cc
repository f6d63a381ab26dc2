#include "network.h"

#include <chrono>
#include <sstream>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "base/status.h"
#include "proof/process.h"

namespace tranche::demo {
namespace {

constexpr char kBridge[] = "plain0";
constexpr char kPodInterface[] = "plain1";

std::string PlainAddress(std::size_t pod) { return absl::StrCat("10.99.0.", 200 + pod); }
std::string PlainPort(std::size_t pod) { return absl::StrCat("plain-p", pod); }

// Each line is one command; words are separated by spaces.
absl::Status RunLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const absl::StatusOr<std::string> output = Tool(absl::StrSplit(line, ' '));
    if (!output.ok()) return output.status();
  }
  return absl::OkStatus();
}

void RunIgnoringErrors(const std::string& line) { static_cast<void>(RunLines({line})); }

}  // namespace

absl::StatusOr<std::string> Tool(const std::vector<std::string>& arguments) {
  TRANCHE_ASSIGN_OR_RETURN(const proof::Finished finished, proof::RunCommand({arguments, "", ""}, std::chrono::seconds(20)));
  if (finished.exit_code == 0) return finished.output;
  return absl::FailedPreconditionError(absl::StrCat(absl::StrJoin(arguments, " "), ": exit code ", finished.exit_code, ": ", finished.output));
}

absl::StatusOr<std::vector<std::string>> Interfaces(const std::string& network_namespace) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string output, Tool({"ip", "-n", network_namespace, "-o", "link", "show"}));
  std::vector<std::string> names;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find(": ");
    if (begin == std::string::npos) continue;
    const std::string name = line.substr(begin + 2, line.find_first_of(":@", begin + 2) - begin - 2);
    if (name != "lo") names.push_back(name);
  }
  return names;
}

PrivateNetwork::PrivateNetwork(const std::string& prefix, std::size_t pods) : node_(prefix + "-node"), peer_(prefix + "-peer") {
  for (std::size_t i = 0; i < pods; ++i) pods_.push_back(absl::StrCat(prefix, "-pod", i + 1));
}

absl::Status PrivateNetwork::Create() const {
  std::vector<std::string> lines = {absl::StrCat("ip netns add ", node_), absl::StrCat("ip netns add ", peer_)};
  for (const std::string& pod : pods_) {
    lines.push_back(absl::StrCat("ip netns add ", pod));
    lines.push_back(absl::StrCat("ip -n ", pod, " link set lo up"));
  }
  const auto add = [&](const std::string& line) { lines.push_back(line); };
  add(absl::StrCat("ip -n ", node_, " link add ", kUplink, " type veth peer name eth0 netns ", peer_));
  add(absl::StrCat("ip -n ", node_, " link set lo up"));
  add(absl::StrCat("ip -n ", node_, " link set ", kUplink, " up"));
  add(absl::StrCat("ip -n ", peer_, " address add ", kPeerAddress, "/24 dev eth0"));
  add(absl::StrCat("ip -n ", peer_, " link set eth0 up"));
  return RunLines(lines);
}

void PrivateNetwork::Destroy() const {
  const absl::StatusOr<std::string> there = Tool({"ip", "netns", "list"});
  if (!there.ok()) return;
  std::istringstream lines(*there);
  for (std::string name; lines >> name;) {
    bool ours = name == node_ || name == peer_;
    for (const std::string& pod : pods_) ours = ours || name == pod;
    if (ours) RunIgnoringErrors(absl::StrCat("ip netns delete ", name));
  }
}

absl::Status PlainBridge::Create() const {
  const std::string& node = network_.node();
  std::vector<std::string> lines = {absl::StrCat("ip -n ", node, " link add ", kBridge, " type bridge"),
                                    absl::StrCat("ip -n ", node, " link set ", kBridge, " up"),
                                    absl::StrCat("ip -n ", node, " link set ", kUplink, " master ", kBridge)};
  for (std::size_t i = 0; i < network_.pods().size(); ++i) {
    const std::string& pod = network_.pods()[i];
    lines.push_back(absl::StrCat("ip -n ", node, " link add ", PlainPort(i), " type veth peer name ", kPodInterface, " netns ", pod));
    lines.push_back(absl::StrCat("ip -n ", node, " link set ", PlainPort(i), " master ", kBridge, " up"));
    lines.push_back(absl::StrCat("ip -n ", pod, " address add ", PlainAddress(i), "/24 dev ", kPodInterface));
    lines.push_back(absl::StrCat("ip -n ", pod, " link set ", kPodInterface, " up"));
  }
  return RunLines(lines);
}

absl::Status PlainBridge::AddFifo(std::int64_t bits_per_second) const {
  // 25 ms of queue would be the usual advice; a plain FIFO of a switch or NIC is longer.
  const std::int64_t queue_bytes = bits_per_second / 8 / 20;
  return RunLines(
      {absl::StrCat("tc -n ", network_.node(), " qdisc add dev ", kUplink, " root tbf rate ", bits_per_second, "bit burst 60000 limit ", queue_bytes)});
}

void PlainBridge::Remove() const {
  const absl::StatusOr<std::vector<std::string>> links = Interfaces(network_.node());
  if (!links.ok()) return;
  for (const std::string& link : *links) {
    if (link.rfind("plain", 0) != 0) continue;
    if (link == kBridge) RunIgnoringErrors(absl::StrCat("tc -n ", network_.node(), " qdisc del dev ", kUplink, " root"));
    RunIgnoringErrors(absl::StrCat("ip -n ", network_.node(), " link delete ", link));
  }
}

proof::Network PlainBridge::ProofNetwork(const std::vector<std::int64_t>& limits) const {
  proof::Network result{network_.node(), network_.ProofPeer(), {}};
  for (std::size_t i = 0; i < network_.pods().size(); ++i) {
    proof::Share share;
    share.name = network_.pods()[i];
    share.limit_bits_per_second = limits.at(i);
    share.network_namespace = network_.pods()[i];
    share.address = PlainAddress(i);
    share.interface = kPodInterface;
    result.shares.push_back(std::move(share));
  }
  return result;
}

}  // namespace tranche::demo
