// What the admin socket shows of the store, as JSON: the same values whether a host answers or tranchectl reads the file itself.
// Field names follow the API: claimUID, shareID, consumedCapacity.
#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "store/store.h"

namespace tranche::admin {

// Filters of `claims` and `shares`; empty: any.
struct ClaimFilter {
  std::string claim;   // UID, "namespace/name" or a name
  std::string tenant;  // namespace
};
absl::StatusOr<ClaimFilter> DecodeClaimFilter(const boost::json::value& params);
bool Matches(const ClaimFilter& filter, const store::ClaimRow& row);

boost::json::value EncodeShareView(const store::ClaimRow& claim, const store::ShareRow& share);
boost::json::value EncodeAuditRecord(const AuditRecord& record);

// {"claims": [{…, "shares": […]}]}
absl::StatusOr<boost::json::value> ViewClaims(store::Store& store, const ClaimFilter& filter);
// {"shares": […]}
absl::StatusOr<boost::json::value> ViewShares(store::Store& store, const ClaimFilter& filter);
// {"records": […]}; params: claim (UID or "namespace/name"), tenant, after (id), limit.
absl::StatusOr<boost::json::value> ViewAudit(store::Store& store, const boost::json::value& params);

}  // namespace tranche::admin
