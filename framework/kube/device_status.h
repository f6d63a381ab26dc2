// status.devices[] of a ResourceClaim: what a share is, and whether it is prepared, enforced and healthy. Pure.
//
//   conditions   Prepared, Enforced, Healthy
//   data         {"apiVersion": "tranche.dev/v1alpha1", "kind": "ShareStatus", "request", "shareID", "class", "policyVersion", "allocationVersion",
//                 "limits": [{"capacity", "direction", "requested", "inForce", "enforcement", "mechanism"}], "verifiedAt"}   (≤ 10 KiB)
//   networkData  interfaceName, ips, hardwareAddress
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "claims/observer.h"
#include "model/share.h"

namespace tranche::kube {

enum class ConditionStatus { kTrue, kFalse, kUnknown };

struct Condition {
  ConditionStatus status = ConditionStatus::kUnknown;
  std::string reason, message;
  WallTime since{};  // lastTransitionTime: when `status` became what it is
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct DeviceStatus {
  ShareKey key;
  std::string backend, physical;  // whom a health verdict is about; not written
  Condition prepared, enforced, healthy;
  std::vector<LimitInForce> limits;
  std::string device_class, policy_version, allocation_version;
  std::optional<NetworkData> network;
  friend bool operator==(const DeviceStatus&, const DeviceStatus&) = default;
};

// The status that an event asks for, every `since` being `now`. Shares that the API keeps as one entry (same driver, pool, device, shareID) are one.
std::vector<DeviceStatus> StatusOf(const claims::ClaimEvent& event, WallTime now);

// Keeps the transition times of conditions whose status is the same as before.
void KeepTransitions(std::vector<DeviceStatus>& devices, const std::vector<DeviceStatus>& before);

// Whether two statuses say the same, whatever their times.
bool SaysTheSame(const std::vector<DeviceStatus>& left, const std::vector<DeviceStatus>& right);
WallTime VerifiedAt(const std::vector<DeviceStatus>& devices);  // the oldest; far in the future when nothing is verified

// One entry. `generation` of the claim: 0 is left out, as claims of today have none.
boost::json::object EncodeDeviceStatus(const DeviceStatus& device, std::int64_t generation);

// ---- What the API server has.

// Entries of one driver. Foreign and damaged parts are left out.
std::vector<DeviceStatus> DecodeDeviceStatuses(const boost::json::object& claim, const std::string& driver);
// Keeps those that the claim's status.allocation has: the API server refuses others. Empty when the claim is not allocated.
std::vector<DeviceStatus> Allocated(std::vector<DeviceStatus> devices, const boost::json::object& claim);

}  // namespace tranche::kube
