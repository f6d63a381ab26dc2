// What others want to know of a claim's life: its status in the API, Events. Called after the change is durable.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "model/claim.h"
#include "store/store.h"

namespace tranche::claims {

enum class ClaimChange {
  kPrepared,        // its shares are in force
  kRefused,         // a prepare failed and nothing of it is left; `why`
  kReleased,        // no row is left
  kReleaseFailed,   // still held; `why`
  kDrifted,         // a limit in force is not what was granted, or what was applied vanished; being repaired; `why`
  kRepaired,        // in force again
};

struct ClaimEvent {
  ClaimChange change = ClaimChange::kPrepared;
  std::string driver;
  ClaimReference claim;
  std::vector<store::ShareRow> shares;   // as they are now (kRefused: as they were asked for; may be empty)
  absl::Status why;
};

// Calls come from several threads; they return at once and do not call the claims back. Events of one claim come in their order.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnClaim(const ClaimEvent& event) = 0;
};

}  // namespace tranche::claims
