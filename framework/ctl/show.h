// status, devices, claims, shares, audit, explain, reconcile. Each prints and returns the exit code.
#pragma once

#include <cstdint>
#include <string>

#include "ctl/output.h"
#include "ctl/target.h"

namespace tranche::ctl {

struct Filter {
  std::string claim, tenant;
  std::int64_t after = 0, limit = 1000;
  bool verify = false;
};

int ShowStatus(const Target& target, Format format);
int ShowDevices(const Target& target, Format format);
int ShowClaims(const Target& target, Format format, const Filter& filter);
// kFailure when a share's limit in force is not what was granted.
int ShowShares(const Target& target, Format format, const Filter& filter);
int ShowAudit(const Target& target, Format format, const Filter& filter);
int ShowReconcile(const Target& target, Format format, const std::string& backend);
// Takes away what is in force and unknown to the store: of one claim, or of all when `claim_uid` is empty.
int ReleaseUnknown(const Target& target, Format format, const std::string& claim_uid);
// `claim`: NAMESPACE/NAME. kSuccess when it fits or is allocated, kFailure when it does not.
int Explain(const Target& target, Format format, const std::string& claim);

}  // namespace tranche::ctl
