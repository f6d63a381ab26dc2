// Placement: which device of which offer serves each request of a claim. First fit with full backtracking over requests, in published
// order, as the scheduler does for the part of the API that needs no CEL: a class names its offer. Pure; used by local mode and by `explain`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "capacity/capacity.h"
#include "model/claim.h"
#include "model/device.h"

namespace tranche::capacity {

// Which devices a class selects, and the parameters that come with it.
struct ClassView {
  std::string name;
  std::string driver, offer;
  Enforcement minimum_enforcement = Enforcement::kNone;
  std::string parameters;  // JSON object, "" for none
};

// Why one request does not fit one device.
struct Obstacle {
  std::string request, device;  // device address "driver/pool/name"; empty: no device at all
  std::string capacity;         // empty when not about a capacity
  std::optional<Quantity> asked, available, missing;
  std::string reason;
};

struct PlacementResult {
  std::optional<Allocation> allocation;  // set when it fits; shareIDs are made by new_share_id
  std::vector<Obstacle> obstacles;       // when it does not: one per (request, device) that was tried
};

// InvalidArgument for a claim that cannot be placed at all (unknown class, CEL selector, unknown constraint request, count ≤ 0).
absl::StatusOr<PlacementResult> Place(const Claim& claim, const std::vector<PublishedDevice>& devices, const std::vector<CounterSet>& counter_sets,
                                      const std::map<std::string, ClassView>& classes, const std::vector<Grant>& live,
                                      const std::function<std::string()>& new_share_id);

}  // namespace tranche::capacity
