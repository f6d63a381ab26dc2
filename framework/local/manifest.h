// Manifests: YAML or JSON text with one or more ResourceClaim documents. Pure; bounded in bytes, documents, depth and nodes (aliases count each time
// that they are used), so that no text can exhaust memory. Never throws.
#pragma once

#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "model/claim.h"

namespace tranche::local {

inline constexpr std::size_t kMaxManifestBytes = 1024 * 1024;
inline constexpr std::size_t kMaxManifestDocuments = 1024;

// The documents as JSON, by the rules of YAML's core schema as Kubernetes' tools read it: a plain scalar may be null, a boolean or a number, a
// quoted one is text; duplicate keys and keys that are not scalars are errors. Empty documents are left out.
absl::StatusOr<std::vector<boost::json::value>> YamlToJson(std::string_view text);

// Claims with spec only: uid and status are the API server's to give, so those of the text are dropped. InvalidArgument names document and field.
absl::StatusOr<std::vector<Claim>> ParseManifests(std::string_view text);

}  // namespace tranche::local
