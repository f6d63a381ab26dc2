// From a claim's allocation results to the shares that this driver would hold: configuration, authority, consumed capacity. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "inventory/inventory.h"
#include "model/claim.h"
#include "store/store.h"

namespace tranche::claims {

struct ResolvedShare {
  store::ShareRow row;  // state intent
  PublishedDevice device;
  store::PolicyRow policy;
  std::string off_policy;  // why the policy of now would not have given these amounts; "" when it would
};

// Results of `driver` in the claim's order.
std::vector<AllocationResult> ResultsOf(const Claim& claim, const std::string& driver);

// Name, UID, allocation, consumers, share ids: whether the claim may be prepared at all. `uid` is the one that the kubelet named.
absl::Status CheckClaim(const Claim& claim, const ClaimReference& reference);

// UIDs of the pods that the claim is reserved for.
std::vector<std::string> PodsOf(const Claim& claim);

// One result. NotFound: the device is not on this node any more. FailedPrecondition: draining, no shareID, class or enforcement do not fit.
// InvalidArgument: amounts or a shareID that no scheduler writes. OutOfRange: more than the whole device.
// PermissionDenied: the class does not allow the namespace, or the claim sets a parameter that it may not.
absl::StatusOr<ResolvedShare> Resolve(const Claim& claim, const AllocationResult& result, int result_index, const inventory::Snapshot& snapshot);

}  // namespace tranche::claims
