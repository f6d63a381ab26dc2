#include "kube/claim_reader.h"

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::kube {

absl::StatusOr<Claim> ApiClaimReader::ReadClaim(const ClaimReference& reference, Deadline deadline) {
  const std::string path = Cat("/apis/resource.k8s.io/v1/namespaces/", Escape(reference.namespace_name), "/resourceclaims/", Escape(reference.name));
  TRANCHE_ASSIGN_OR_RETURN(boost::json::object object, client_.Get(path, deadline));
  absl::StatusOr<Claim> claim = DecodeClaim(boost::json::value(std::move(object)));
  if (!claim.ok()) return Annotate(claim.status(), Cat("ResourceClaim ", reference.namespace_name, "/", reference.name));
  return claim;
}

}  // namespace tranche::kube
