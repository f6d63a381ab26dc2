#include "demo.h"

#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <boost/json.hpp>

#include "base/files.h"
#include "base/status.h"
#include "model/json.h"
#include "proof/counters.h"
#include "proof/proof.h"

namespace tranche::demo {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kHeadroomFactor = 3;
const std::vector<ClaimSpec> kClaims = {{"team-a", "small", "50M"}, {"team-b", "medium", "100M"}, {"team-c", "large", "200M"}, {"team-d", "odd", "55M"}};
const std::vector<std::int64_t> kLimits = {50'000'000, 100'000'000, 200'000'000, 60'000'000};  // 55M is rounded up to the step of 10M

struct RefusalCase {
  ClaimSpec claim;
  std::string why;
};
const std::vector<RefusalCase> kRefusals = {{{"team-a", "too-big", "400M"}, "over the maximum of one share"},
                                            {{"team-b", "too-late", "300M"}, "beyond what is left"},
                                            {{"guests", "visitor", "50M"}, "namespace not allowed"}};

std::int64_t SumOfLimits() {
  std::int64_t sum = 0;
  for (const std::int64_t limit : kLimits) sum += limit;
  return sum;
}

// A little less than the flood of three tenants offers, so that the one queue without shaping is really full.
std::int64_t FifoRate() { return SumOfLimits() * 85 / 100; }

std::string Mbit(double bits_per_second) { return absl::StrFormat("%.0f Mbit/s", bits_per_second / 1e6); }
double Rounded(double value) { return std::round(value * 1000) / 1000; }

class Demo {
 public:
  Demo(PrivateNetwork& network, Node& node) : network_(network), node_(node) {}

  absl::StatusOr<bool> Run(const std::string& report_path);

 private:
  void Say(const std::string& text) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    std::cout << absl::StrFormat("[%5.1f s] %s", seconds, text) << std::endl;
  }
  void Fail(const std::string& text) {
    failures_.push_back(text);
    Say("FAILED: " + text);
  }

  absl::Status MeasureUnshaped();
  absl::StatusOr<double> Headroom(const proof::Network& plain, proof::Direction direction) const;
  absl::Status GrantAll();
  absl::Status ShowRefusals();
  absl::Status ReadShares();
  absl::Status Prove();
  absl::Status KillAndRestart();
  absl::Status ReleaseAll();
  absl::Status LookForLeftovers();
  void Leftover(const std::string& what);
  absl::Status WriteReport(const std::string& path) const;

  const Clock::time_point begin_ = Clock::now();
  PrivateNetwork& network_;
  Node& node_;
  proof::Network shares_;
  proof::Proof proof_;
  double headroom_up_ = 0, headroom_down_ = 0;
  proof::Neighbour unshaped_;
  json::array refusals_, leftovers_;
  json::object restart_;
  std::vector<std::string> failures_;
};

absl::StatusOr<double> Demo::Headroom(const proof::Network& plain, proof::Direction direction) const {
  const proof::Share& pod = plain.shares.front();
  TRANCHE_ASSIGN_OR_RETURN(
      proof::TrafficRun run,
      proof::TrafficRun::Start(plain.peer, {{pod.network_namespace, pod.address, proof::Traffic::kTcp, direction, 0}}, milliseconds(2000)));
  std::this_thread::sleep_for(milliseconds(300));
  const auto begin = Clock::now();
  TRANCHE_ASSIGN_OR_RETURN(const proof::InterfaceBytes before, proof::ReadInterfaceBytes(network_.peer(), "eth0"));
  std::this_thread::sleep_for(milliseconds(1000));
  TRANCHE_ASSIGN_OR_RETURN(const proof::InterfaceBytes after, proof::ReadInterfaceBytes(network_.peer(), "eth0"));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  TRANCHE_RETURN_IF_ERROR(run.Check());
  run.Stop();
  const std::uint64_t bytes = direction == proof::Direction::kUp ? after.received - before.received : after.sent - before.sent;
  return static_cast<double>(bytes) * 8 / seconds;
}

absl::Status Demo::MeasureUnshaped() {
  Say("without Tranche first: a plain bridge on the same uplink");
  const PlainBridge plain(network_);
  TRANCHE_RETURN_IF_ERROR(plain.Create());
  const proof::Network pods = plain.ProofNetwork(kLimits);
  TRANCHE_ASSIGN_OR_RETURN(headroom_up_, Headroom(pods, proof::Direction::kUp));
  TRANCHE_ASSIGN_OR_RETURN(headroom_down_, Headroom(pods, proof::Direction::kDown));
  const double needed = kHeadroomFactor * static_cast<double>(SumOfLimits());
  Say(absl::StrCat("  unshaped headroom: up ", Mbit(headroom_up_), ", down ", Mbit(headroom_down_), " (needed: ", Mbit(needed), ")"));
  if (std::min(headroom_up_, headroom_down_) < needed) {
    Fail(absl::StrCat("the set-up carries less than 3 times the sum of limits (", Mbit(needed), "): the figures below would prove nothing"));
  }
  TRANCHE_RETURN_IF_ERROR(plain.AddFifo(FifoRate()));
  TRANCHE_ASSIGN_OR_RETURN(unshaped_, proof::MeasureNeighbour(pods, 0, milliseconds(700), 3));
  Say(absl::StrFormat("  one FIFO of %s for all: a neighbour's p99 goes from %.2f to %.2f ms while the others flood", Mbit(static_cast<double>(FifoRate())),
                      unshaped_.quiet.p99_ms, unshaped_.flooded.p99_ms));
  return absl::OkStatus();
}

absl::Status Demo::GrantAll() {
  for (std::size_t i = 0; i < kClaims.size(); ++i) {
    TRANCHE_RETURN_IF_ERROR(node_.Grant(kClaims[i], network_.pods()[i]));
    Say(absl::StrCat("  granted to ", kClaims[i].Path(), ": asked ", kClaims[i].asked, ", attached to ", network_.pods()[i]));
  }
  return absl::OkStatus();
}

absl::Status Demo::ShowRefusals() {
  Say("requests that must be refused");
  for (const RefusalCase& item : kRefusals) {
    const absl::StatusOr<std::string> reason = node_.Refusal(item.claim);
    if (!reason.ok()) {
      Fail(std::string(reason.status().message()));
      continue;
    }
    Say(absl::StrCat("  ", item.claim.Path(), ", ", item.claim.asked, " (", item.why, "): ", *reason));
    refusals_.push_back(
        json::object{{"tenant", item.claim.tenant}, {"claim", item.claim.name}, {"asked", item.claim.asked}, {"case", item.why}, {"reason", *reason}});
  }
  return absl::OkStatus();
}

absl::Status Demo::ReadShares() {
  TRANCHE_ASSIGN_OR_RETURN(const json::value answer, node_.CtlJson({"shares"}));
  std::map<std::string, proof::PodPlace> pods;
  for (std::size_t i = 0; i < kClaims.size(); ++i) pods[kClaims[i].Path()] = {network_.pods()[i], ""};
  TRANCHE_ASSIGN_OR_RETURN(std::vector<proof::Share> shares, proof::SharesFromAdmin(answer, pods));
  if (shares.size() != kClaims.size()) return absl::InternalError(absl::StrCat("the host names ", shares.size(), " shares instead of ", kClaims.size()));
  std::sort(shares.begin(), shares.end(), [](const proof::Share& left, const proof::Share& right) { return left.name < right.name; });
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i].asked = kClaims[i].asked;
    if (shares[i].limit_bits_per_second == kLimits[i]) continue;
    Fail(absl::StrCat(shares[i].name, ": the limit in force is ", shares[i].limit_bits_per_second, " bit/s instead of ", kLimits[i]));
  }
  shares_ = {network_.node(), network_.ProofPeer(), std::move(shares)};
  return absl::OkStatus();
}

absl::Status Demo::Prove() {
  proof::Plan plan;
  plan.network = shares_;
  plan.phase.ramp = milliseconds(500);
  plan.neighbour_duration = milliseconds(700);
  plan.neighbour_rounds = 3;
  plan.bounds.shift_ms = std::max(plan.bounds.shift_ms, plan.bounds.shift_of_unshaped * unshaped_.shift_ms);
  const auto progress = [&](const proof::Progress& at) {
    if (at.done < at.total) Say(absl::StrCat("  ", at.done + 1, "/", at.total, " ", at.step));
  };
  TRANCHE_ASSIGN_OR_RETURN(proof_, proof::Run(plan, progress));
  for (const std::string& failure : proof_.failures) Fail(failure);
  return absl::OkStatus();
}

absl::Status Demo::KillAndRestart() {
  Say("SIGKILL of tranched in the middle of traffic, and restart");
  proof::PhaseOptions options;
  options.ramp = milliseconds(500);
  std::int64_t outage_ms = 0;
  const proof::Network before = shares_;
  options.during = [&]() -> absl::Status {
    const auto killed = Clock::now();
    node_.Kill();
    std::this_thread::sleep_for(milliseconds(500));
    TRANCHE_RETURN_IF_ERROR(node_.Start());
    outage_ms = std::chrono::duration_cast<milliseconds>(Clock::now() - killed).count();
    return absl::OkStatus();
  };
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<proof::Measurement> measured,
                           proof::MeasurePhase(before, {0, 1, 2, 3}, proof::Traffic::kTcp, proof::Direction::kUp, options));
  for (const std::string& failure : proof::CheckMeasurements(before, measured, proof::Bounds())) Fail("during the restart: " + failure);
  TRANCHE_RETURN_IF_ERROR(ReadShares());
  json::object percent, worst;
  json::array recovered;
  for (const proof::Measurement& item : measured) {
    percent[before.shares[item.share].name] = Rounded(item.percent_of_limit);
    worst[before.shares[item.share].name] = Rounded(item.worst_window_percent);
  }
  for (std::size_t i = 0; i < before.shares.size(); ++i) {
    recovered.emplace_back(shares_.shares[i].share_id);
    if (shares_.shares[i].share_id != before.shares[i].share_id) Fail(before.shares[i].name + ": not the same share after the restart");
  }
  restart_ = {{"signal", "SIGKILL"},
              {"outageMs", outage_ms},
              {"sharesBefore", before.shares.size()},
              {"recovered", std::move(recovered)},
              {"percentOfLimit", std::move(percent)},
              {"worstWindowPercent", std::move(worst)}};
  std::vector<std::string> held;
  for (const proof::Measurement& item : measured) held.push_back(absl::StrFormat("%.1f %%", item.percent_of_limit));
  Say(absl::StrCat("  back after ", outage_ms, " ms with the same ", shares_.shares.size(), " shares; they carried ", absl::StrJoin(held, ", "),
                   " of their limits"));
  return absl::OkStatus();
}

absl::Status Demo::ReleaseAll() {
  Say("release of every claim, twice");
  for (int round = 0; round < 2; ++round) {
    for (const ClaimSpec& claim : kClaims) {
      if (absl::Status status = node_.Release(claim); !status.ok()) Fail(absl::StrCat("release number ", round + 1, ": ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

void Demo::Leftover(const std::string& what) {
  leftovers_.emplace_back(what);
  Fail("left behind: " + what);
}

absl::Status Demo::LookForLeftovers() {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> links, Interfaces(network_.node()));
  for (const std::string& link : links) {
    if (link != kUplink) Leftover("interface " + link);
  }
  for (const std::string& pod : network_.pods()) {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> pod_links, Interfaces(pod));
    for (const std::string& link : pod_links) Leftover(absl::StrCat("interface ", link, " with its address in ", pod));
  }
  for (const proof::Share& share : shares_.shares) {
    if (!share.egress.has_value()) continue;
    absl::StatusOr<proof::CounterReader> reader = proof::CounterReader::Open(network_.node(), {*share.egress});
    if (reader.ok() && reader->Read().ok()) Leftover("traffic-control class of " + share.name);
  }
  const absl::StatusOr<std::vector<std::string>> files = ListDirectory(node_.directory() + "/cdi");
  for (const std::string& file : files.ok() ? *files : std::vector<std::string>()) Leftover("CDI file " + file);
  for (const char* what : {"shares", "claims"}) {
    TRANCHE_ASSIGN_OR_RETURN(const json::value answer, node_.CtlJson({what}));
    const json::object* object = answer.if_object();
    const json::value* rows = object == nullptr ? &answer : object->if_contains(what);
    const std::size_t count = rows != nullptr && rows->is_array() ? rows->get_array().size() : 0;
    if (count > 0) Leftover(absl::StrCat(count, " rows of ", what));
  }
  Say(leftovers_.empty() ? "  no interface, class, file, row or address of a share is left" : "  something is left");
  return absl::OkStatus();
}

absl::Status Demo::WriteReport(const std::string& path) const {
  json::object report = proof::EncodeProof(shares_, proof_).as_object();
  utsname system{};
  uname(&system);
  report["refusals"] = refusals_;
  report["restart"] = restart_;
  report["leftovers"] = leftovers_;
  report["headroom"] = {{"upBitsPerSecond", std::round(headroom_up_)},
                        {"downBitsPerSecond", std::round(headroom_down_)},
                        {"timesSumOfLimits", Rounded(std::min(headroom_up_, headroom_down_) / static_cast<double>(SumOfLimits()))}};
  report["unshapedNeighbour"] = {{"quietP99Ms", Rounded(unshaped_.quiet.p99_ms)},
                                 {"floodedP99Ms", Rounded(unshaped_.flooded.p99_ms)},
                                 {"shiftMs", Rounded(unshaped_.shift_ms)},
                                 {"rounds", unshaped_.rounds}};
  json::array failures;
  for (const std::string& failure : failures_) failures.emplace_back(failure);
  report["failures"] = std::move(failures);
  report["kernel"] = system.release;
  report["seconds"] = Rounded(std::chrono::duration<double>(Clock::now() - begin_).count());
  return WriteFileAtomically(path, ToPrettyJson(report), 0644, Durability::kVisible);
}

absl::StatusOr<bool> Demo::Run(const std::string& report_path) {
  Say("a node with one uplink, a peer behind it, and four pods, in private network namespaces");
  TRANCHE_RETURN_IF_ERROR(network_.Create());
  TRANCHE_RETURN_IF_ERROR(MeasureUnshaped());
  Say("tranched: up0 carries 700M, 10 % reserve; a share gets 10M to 300M in steps of 10M; only for team-*");
  TRANCHE_RETURN_IF_ERROR(node_.Configure());
  TRANCHE_RETURN_IF_ERROR(node_.Start());
  TRANCHE_RETURN_IF_ERROR(GrantAll());
  TRANCHE_RETURN_IF_ERROR(ShowRefusals());
  TRANCHE_RETURN_IF_ERROR(ReadShares());
  Say("each share alone, then all together, then what an idle one notices while the others flood");
  TRANCHE_RETURN_IF_ERROR(Prove());
  TRANCHE_RETURN_IF_ERROR(KillAndRestart());
  TRANCHE_RETURN_IF_ERROR(ReleaseAll());
  TRANCHE_RETURN_IF_ERROR(LookForLeftovers());
  if (absl::Status status = node_.Stop(); !status.ok()) Fail(std::string(status.message()));
  std::cout << "\n" << proof::FormatTable(shares_, proof_) << "\n";
  TRANCHE_RETURN_IF_ERROR(WriteReport(report_path));
  return failures_.empty();
}

}  // namespace

absl::StatusOr<bool> RunDemo(PrivateNetwork& network, Node& node, const std::string& report_path) {
  Demo demo(network, node);
  absl::StatusOr<bool> held = demo.Run(report_path);
  return held;
}

}  // namespace tranche::demo
