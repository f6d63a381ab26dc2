// Text forms of row columns. Internal to this room. docs/store.md describes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "model/share.h"
#include "store/store.h"

namespace tranche::store {

// "bandwidth=50M;memory=1Gi": short, in name order, so that equal amounts group in an index. InvalidArgument for a name with a separator in it.
absl::StatusOr<std::string> EncodeAmounts(const Quantities& amounts);
absl::StatusOr<Quantities> DecodeAmounts(std::string_view text);
// "set:memory=1Gi;slices=2|other:…"
absl::StatusOr<std::string> EncodeCounters(const std::vector<CounterUse>& counters);
absl::StatusOr<std::vector<CounterUse>> DecodeCounters(std::string_view text);

std::string JoinLines(const std::vector<std::string>& items);
std::vector<std::string> SplitLines(std::string_view text);

absl::StatusOr<ClaimState> ParseClaimState(std::string_view text);
absl::StatusOr<ShareState> ParseShareState(std::string_view text);

std::int64_t ToNanoseconds(WallTime time);
WallTime FromNanoseconds(std::int64_t nanoseconds);

}  // namespace tranche::store
