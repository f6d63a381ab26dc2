// Claims from the API server.
#pragma once

#include <absl/status/statusor.h>

#include "claims/claims.h"
#include "kube/client.h"

namespace tranche::kube {

// Thread-safe; the client outlives it. A claim whose fields cannot be read is an InvalidArgument that names claim and field.
class ApiClaimReader : public claims::ClaimReader {
 public:
  explicit ApiClaimReader(Client& client) : client_(client) {}
  absl::StatusOr<Claim> ReadClaim(const ClaimReference& reference, Deadline deadline) override;

 private:
  Client& client_;
};

}  // namespace tranche::kube
