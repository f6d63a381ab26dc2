#include "store/codec.h"

#include "base/status.h"
#include "base/text.h"

namespace tranche::store {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

constexpr std::string_view kSeparators = "=;:|\n";

absl::Status CheckName(std::string_view name) {
  if (!name.empty() && name.find_first_of(kSeparators) == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("store: '", name, "' is not a capacity or counter name"));
}

absl::Status Damaged(std::string_view what, std::string_view text) {
  return absl::DataLossError(Cat("store: a row has the ", what, " '", text, "', which this version cannot read"));
}

}  // namespace

std::string_view ClaimStateName(ClaimState state) {
  switch (state) {
    case ClaimState::kPreparing: return "preparing";
    case ClaimState::kPrepared: return "prepared";
    case ClaimState::kUnpreparing: return "unpreparing";
  }
  return "unknown";
}

std::string_view ShareStateName(ShareState state) {
  switch (state) {
    case ShareState::kIntent: return "intent";
    case ShareState::kApplied: return "applied";
    case ShareState::kReleasing: return "releasing";
  }
  return "unknown";
}

absl::StatusOr<ClaimState> ParseClaimState(std::string_view text) {
  for (const ClaimState state : {ClaimState::kPreparing, ClaimState::kPrepared, ClaimState::kUnpreparing}) {
    if (ClaimStateName(state) == text) return state;
  }
  return Damaged("claim state", text);
}

absl::StatusOr<ShareState> ParseShareState(std::string_view text) {
  for (const ShareState state : {ShareState::kIntent, ShareState::kApplied, ShareState::kReleasing}) {
    if (ShareStateName(state) == text) return state;
  }
  return Damaged("share state", text);
}

absl::StatusOr<std::string> EncodeAmounts(const Quantities& amounts) {
  std::string text;
  for (const auto& [name, amount] : amounts) {
    TRANCHE_RETURN_IF_ERROR(CheckName(name));
    Append(text, text.empty() ? "" : ";", name, "=", amount.ToString());
  }
  return text;
}

absl::StatusOr<Quantities> DecodeAmounts(std::string_view text) {
  Quantities amounts;
  if (text.empty()) return amounts;
  for (const std::string_view item : Split(text, ';')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return Damaged("amount", item);
    absl::StatusOr<Quantity> amount = Quantity::Parse(item.substr(equals + 1));
    if (!amount.ok()) return Damaged("amount", item);
    amounts.emplace(item.substr(0, equals), *std::move(amount));
  }
  return amounts;
}

absl::StatusOr<std::string> EncodeCounters(const std::vector<CounterUse>& counters) {
  std::string text;
  for (const CounterUse& use : counters) {
    TRANCHE_RETURN_IF_ERROR(CheckName(use.counter_set));
    TRANCHE_ASSIGN_OR_RETURN(const std::string amounts, EncodeAmounts(use.counters));
    Append(text, text.empty() ? "" : "|", use.counter_set, ":", amounts);
  }
  return text;
}

absl::StatusOr<std::vector<CounterUse>> DecodeCounters(std::string_view text) {
  std::vector<CounterUse> counters;
  if (text.empty()) return counters;
  for (const std::string_view item : Split(text, '|')) {
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) return Damaged("counter use", item);
    TRANCHE_ASSIGN_OR_RETURN(Quantities amounts, DecodeAmounts(item.substr(colon + 1)));
    counters.push_back({std::string(item.substr(0, colon)), std::move(amounts)});
  }
  return counters;
}

std::string JoinLines(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += text.empty() ? item : "\n" + item;
  return text;
}

std::vector<std::string> SplitLines(std::string_view text) {
  if (text.empty()) return {};
  const std::vector<std::string_view> lines = Split(text, '\n');
  return {lines.begin(), lines.end()};
}

std::int64_t ToNanoseconds(WallTime time) { return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count(); }

WallTime FromNanoseconds(std::int64_t nanoseconds) { return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(nanoseconds))); }

}  // namespace tranche::store
