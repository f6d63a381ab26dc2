#include "kube/claim_reader.h"

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/json.h"

namespace tranche::kube {
namespace {

constexpr std::size_t kMaxName = 253;

// No object has another name; a path of 100,000 bytes would cost the API server a connection, and every call that shares it a retry.
absl::Status CheckNames(const ClaimReference& reference) {
  if (!IsDnsLabel(reference.namespace_name)) {
    return absl::InvalidArgumentError(
        Cat("namespace \"", Shortened(reference.namespace_name, kMaxName), "\" of a claim is not a DNS label of at most 63 characters"));
  }
  if (!IsDnsSubdomain(reference.name)) {
    return absl::InvalidArgumentError(Cat("claim name \"", Shortened(reference.name, kMaxName), "\" in namespace ", reference.namespace_name,
                                          " is not a DNS subdomain of at most 253 characters"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Claim> ApiClaimReader::ReadClaim(const ClaimReference& reference, Deadline deadline) {
  TRANCHE_RETURN_IF_ERROR(CheckNames(reference));
  const std::string path = Cat("/apis/resource.k8s.io/v1/namespaces/", Escape(reference.namespace_name), "/resourceclaims/", Escape(reference.name));
  TRANCHE_ASSIGN_OR_RETURN(boost::json::object object, client_.Get(path, deadline));
  absl::StatusOr<Claim> claim = DecodeClaim(boost::json::value(std::move(object)));
  if (!claim.ok()) return Annotate(claim.status(), Cat("ResourceClaim ", reference.namespace_name, "/", reference.name));
  return claim;
}

}  // namespace tranche::kube
