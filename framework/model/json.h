// JSON codecs of the model. Kubernetes objects use the field names of resource.k8s.io/v1; backend payloads those of sdk/schema/.
// Decoders tolerate unknown fields, never throw, and name the path of what is wrong ("status.allocation.results[2].pool").
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "model/claim.h"
#include "model/device.h"
#include "model/share.h"

namespace tranche {

// Strict JSON (depth ≤ 64). InvalidArgument with position.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text);
std::string ToJsonText(const boost::json::value& value);    // compact
std::string ToPrettyJson(const boost::json::value& value);  // two spaces, sorted as stored, newline at the end

// ResourceClaim object (apiVersion resource.k8s.io/v1), spec and status.
absl::StatusOr<Claim> DecodeClaim(const boost::json::value& value);
boost::json::value EncodeClaim(const Claim& claim);
boost::json::value EncodeAllocation(const Allocation& allocation);
absl::StatusOr<Allocation> DecodeAllocation(const boost::json::value& value);

// ResourceSlice `spec.devices[]` entry, and its inverse plus our own address fields (for the local directory and the admin socket).
boost::json::value EncodePublishedDevice(const PublishedDevice& device);
absl::StatusOr<PublishedDevice> DecodePublishedDevice(const boost::json::value& value);

boost::json::value EncodeQuantities(const Quantities& quantities);  // {"bandwidth": "50M"}
absl::StatusOr<Quantities> DecodeQuantities(const boost::json::value& value);
boost::json::value EncodeRequestPolicy(const RequestPolicy& policy);
absl::StatusOr<RequestPolicy> DecodeRequestPolicy(const boost::json::value& value);
boost::json::value EncodeAttributes(const Attributes& attributes);  // {"model": {"string": "H100"}}
absl::StatusOr<Attributes> DecodeAttributes(const boost::json::value& value);
boost::json::value EncodeCounterUses(const std::vector<CounterUse>& uses);
absl::StatusOr<std::vector<CounterUse>> DecodeCounterUses(const boost::json::value& value);

// Backend payloads (sdk/schema/*.schema.json, schemaVersion 1).
boost::json::value EncodeShareKey(const ShareKey& key);
absl::StatusOr<ShareKey> DecodeShareKey(const boost::json::value& value);
absl::StatusOr<PhysicalDevice> DecodePhysicalDevice(const boost::json::value& value);
boost::json::value EncodePhysicalDevice(const PhysicalDevice& device);
absl::StatusOr<AppliedShare> DecodeAppliedShare(const boost::json::value& value);
boost::json::value EncodeAppliedShare(const AppliedShare& share);
boost::json::value EncodeContainerEdits(const ContainerEdits& edits);  // the CDI containerEdits object
absl::StatusOr<ContainerEdits> DecodeContainerEdits(const boost::json::value& value);
boost::json::value EncodeNetworkData(const NetworkData& network);
absl::StatusOr<NetworkData> DecodeNetworkData(const boost::json::value& value);

}  // namespace tranche
