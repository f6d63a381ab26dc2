// Audit records (AUT-2): who got, lost or was refused which capacity. Values only; store/ keeps them, append-only.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tranche {

struct AuditRecord {
  std::int64_t id = 0;  // given by the store, rising
  WallTime at{};
  std::string actor;             // "kubelet" | "reconcile" | "admin" | "configuration"
  std::string action;            // "prepare" | "unprepare" | "reconcile" | "apply-configuration" | …
  std::string tenant;            // the claim's namespace
  std::string claim, claim_uid;  // name, UID
  std::string request, driver, pool, device, share_id;
  std::string capacity;        // consumed capacity as JSON text, {} when none
  std::string policy_version;  // "sha256:…"
  std::string allocation_version;
  std::string outcome;  // "OK" or a canonical code name
  std::string message;  // empty on success
  friend bool operator==(const AuditRecord&, const AuditRecord&) = default;
};

}  // namespace tranche
