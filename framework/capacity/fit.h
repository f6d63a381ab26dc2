// Inside capacity/: the same answers as capacity.h with their numbers, for `explain`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "capacity/capacity.h"

namespace tranche::capacity {

// Why something does not fit: the status, and the numbers where it is about an amount.
struct Misfit {
  absl::Status status;
  std::string capacity;  // of a counter: "set/counter"
  std::optional<Quantity> asked, available, missing;
};

struct Demand {
  Quantities consumed;  // by published name; complete only without a misfit
  std::optional<Misfit> misfit;
};
Demand DemandOf(const PublishedDevice& device, const Quantities& requested);

// The capacity part of CheckGrant: the sum of `consumed` and of the live grants of other keys against every published value.
std::optional<Misfit> FindCapacityMisfit(const PublishedDevice& device, const Quantities& consumed, const ShareKey& key, const std::vector<Grant>& live);
// All of CheckGrant.
std::optional<Misfit> FindMisfit(const PublishedDevice& device, const Grant& candidate, const std::vector<Grant>& live,
                                 const std::vector<CounterSet>& counter_sets);

}  // namespace tranche::capacity
