// Shares from the admin socket, and results as JSON and as a table.
#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <boost/json.hpp>

#include "base/quantity.h"
#include "base/status.h"
#include "model/json.h"
#include "proof/proof.h"

namespace tranche::proof {
namespace {

namespace json = boost::json;

std::string TextOf(const json::object& object, const char* key) {
  const json::value* found = object.if_contains(key);
  return found != nullptr && found->is_string() ? std::string(found->get_string().data(), found->get_string().size()) : std::string();
}

const json::array* ArrayOf(const json::value& value) {
  if (value.is_array()) return &value.get_array();
  const json::object* object = value.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains("shares");
  return found == nullptr ? nullptr : found->if_array();
}

std::string WithoutPrefix(const std::string& cidr) { return cidr.substr(0, cidr.find('/')); }

// The smaller of the directions' limits; the proof sends in one direction at a time against it.
std::int64_t LimitOf(const AppliedShare& applied) {
  std::int64_t limit = 0;
  for (const LimitInForce& item : applied.limits) {
    if (item.in_force > 0 && (item.direction == "egress" || item.direction == "ingress")) limit = limit == 0 ? item.in_force : std::min(limit, item.in_force);
  }
  return limit;
}

std::string ConsumedOf(const json::object& view) {
  const json::value* found = view.if_contains("consumedCapacity");
  if (found == nullptr || !found->is_object() || found->get_object().empty()) return "";
  const json::object& consumed = found->get_object();
  return consumed.contains("bandwidth") ? TextOf(consumed, "bandwidth") : "";
}

absl::StatusOr<Share> ReadShare(const json::object& view, const PodPlace& pod) {
  const json::value* found = view.if_contains("applied");
  if (found == nullptr) return absl::FailedPreconditionError("nothing is applied for it");
  TRANCHE_ASSIGN_OR_RETURN(const AppliedShare applied, DecodeAppliedShare(*found));
  Share share;
  share.tenant = TextOf(view, "namespace");
  share.claim = TextOf(view, "claim");
  share.share_id = TextOf(view, "shareID");
  share.name = absl::StrCat(share.tenant, "/", share.claim);
  share.consumed = ConsumedOf(view);
  share.limit_bits_per_second = LimitOf(applied);
  if (share.limit_bits_per_second == 0) return absl::FailedPreconditionError("it has no limit in a direction");
  if (!applied.network.has_value() || applied.network->ips.empty()) return absl::FailedPreconditionError("it has no address");
  share.network_namespace = pod.network_namespace;
  share.address = WithoutPrefix(applied.network->ips.front());
  share.interface = pod.interface.empty() ? applied.network->interface_name : pod.interface;
  for (const Usage& usage : applied.usage) {
    if (usage.direction == "egress") share.egress = usage.source;
    if (usage.direction == "ingress") share.ingress = usage.source;
  }
  if (!share.egress.has_value() || !share.ingress.has_value()) return absl::FailedPreconditionError("its backend names no kernel counters");
  return share;
}

std::string KeyOf(const Measurement& item) {
  return absl::StrCat(std::string(TrafficName(item.traffic)), "_", std::string(DirectionName(item.direction)), item.together ? "_together" : "_alone");
}

double Rounded(double value, double parts) { return std::round(value * parts) / parts; }

const Neighbour* FindNeighbour(const Proof& proof, std::size_t share) {
  const auto found = std::find_if(proof.neighbours.begin(), proof.neighbours.end(), [&](const Neighbour& item) { return item.share == share; });
  return found == proof.neighbours.end() ? nullptr : &*found;
}

std::uint64_t DropsOf(const Proof& proof, std::size_t share) {
  std::uint64_t drops = 0;
  for (const Measurement& item : proof.measurements) {
    if (item.share == share) drops += item.drops;
  }
  return drops;
}

json::value EncodeShareResult(const Network& network, const Proof& proof, std::size_t index) {
  const Share& share = network.shares.at(index);
  json::object percent, worst;
  json::array measured_twice;
  for (const Measurement& item : proof.measurements) {
    if (item.share != index) continue;
    percent[KeyOf(item)] = Rounded(item.percent_of_limit, 100);
    worst[KeyOf(item)] = Rounded(item.worst_window_percent, 100);
    if (item.attempt > 1) measured_twice.emplace_back(KeyOf(item));
  }
  json::object result{{"share", share.share_id},
                      {"claim", share.claim},
                      {"tenant", share.tenant},
                      {"asked", share.asked},
                      {"consumed", share.consumed},
                      {"limitInForce", share.limit_bits_per_second},
                      {"percentOfLimit", std::move(percent)},
                      {"worstWindowPercent", std::move(worst)},
                      {"measuredTwice", std::move(measured_twice)},
                      {"drops", DropsOf(proof, index)},
                      {"p99_ms", nullptr}};
  if (const Neighbour* neighbour = FindNeighbour(proof, index)) {
    result["p99_ms"] = Rounded(neighbour->flooded.p99_ms, 1000);
    result["p99_shift_ms"] = Rounded(neighbour->shift_ms, 1000);
  }
  return result;
}

// "99.8/99.9 99.7/99.9": TCP up/down, UDP up/down.
std::string PercentCell(const Proof& proof, std::size_t share, Traffic traffic, bool together) {
  std::vector<std::string> cells;
  for (const Direction direction : {Direction::kUp, Direction::kDown}) {
    const auto found = std::find_if(proof.measurements.begin(), proof.measurements.end(), [&](const Measurement& item) {
      return item.share == share && item.traffic == traffic && item.direction == direction && item.together == together;
    });
    cells.push_back(found == proof.measurements.end() ? "-" : absl::StrFormat("%.1f", found->percent_of_limit));
  }
  return absl::StrJoin(cells, "/");
}

double WorstOf(const Proof& proof, std::size_t share) {
  double worst = 0;
  for (const Measurement& item : proof.measurements) {
    if (item.share == share) worst = std::max(worst, item.worst_window_percent);
  }
  return worst;
}

std::string LimitText(std::int64_t bits_per_second) { return Quantity::FromInt64(bits_per_second).ToString(); }

std::string FormatRows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) { absl::StrAppend(&text, row[i], i + 1 == row.size() ? "" : std::string(widths[i] - row[i].size() + 2, ' ')); }
    text += "\n";
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<Share>> SharesFromAdmin(const json::value& shares, const std::map<std::string, PodPlace>& pods) {
  const json::array* views = ArrayOf(shares);
  if (views == nullptr) return absl::InvalidArgumentError("the host's answer holds no list of shares");
  std::vector<Share> result;
  std::vector<std::string> left_out;
  for (const json::value& item : *views) {
    const json::object* view = item.if_object();
    if (view == nullptr) continue;
    const std::string name = absl::StrCat(TextOf(*view, "namespace"), "/", TextOf(*view, "claim"));
    const auto pod = pods.find(name);
    if (pod == pods.end()) {
      left_out.push_back(absl::StrCat(name, ": no pod namespace was given for it"));
      continue;
    }
    absl::StatusOr<Share> share = ReadShare(*view, pod->second);
    if (share.ok()) {
      result.push_back(*std::move(share));
    } else {
      left_out.push_back(absl::StrCat(name, ": ", std::string(share.status().message())));
    }
  }
  if (!result.empty()) return result;
  if (left_out.empty()) return absl::NotFoundError("the host holds no share; prepare and attach one first");
  return absl::NotFoundError(absl::StrCat("no share can be proved: ", absl::StrJoin(left_out, "; ")));
}

json::value EncodeProof(const Network& network, const Proof& proof) {
  json::array shares, failures;
  for (std::size_t i = 0; i < network.shares.size(); ++i) shares.push_back(EncodeShareResult(network, proof, i));
  for (const std::string& failure : proof.failures) failures.emplace_back(failure);
  return json::object{{"shares", std::move(shares)}, {"directPackets", proof.direct_packets}, {"failures", std::move(failures)}};
}

std::string FormatTable(const Network& network, const Proof& proof) {
  std::vector<std::vector<std::string>> rows = {
      {"SHARE", "ASKED", "CONSUMED", "LIMIT", "TCP ALONE %", "UDP ALONE %", "TCP TOGETHER %", "UDP TOGETHER %", "WORST 100MS %", "DROPS", "P99 MS"}};
  for (std::size_t i = 0; i < network.shares.size(); ++i) {
    const Share& share = network.shares[i];
    const Neighbour* neighbour = FindNeighbour(proof, i);
    rows.push_back({share.name, share.asked.empty() ? "-" : share.asked, share.consumed, LimitText(share.limit_bits_per_second),
                    PercentCell(proof, i, Traffic::kTcp, false), PercentCell(proof, i, Traffic::kUdp, false), PercentCell(proof, i, Traffic::kTcp, true),
                    PercentCell(proof, i, Traffic::kUdp, true), absl::StrFormat("%.1f", WorstOf(proof, i)), absl::StrCat(DropsOf(proof, i)),
                    neighbour == nullptr ? "-" : absl::StrFormat("%.2f", neighbour->flooded.p99_ms)});
  }
  return absl::StrCat(FormatRows(rows), "Percent of the limit in force, up/down, from the kernel's byte counters. P99: round trip while the others flood.\n");
}

}  // namespace tranche::proof
