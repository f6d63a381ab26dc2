// What others want to know of a claim's life: its status in the API, Events. Called after the change is durable.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "model/claim.h"
#include "store/store.h"

namespace tranche::claims {

enum class ClaimChange {
  kPrepared,       // its shares are in force
  kRefused,        // a prepare failed and nothing of it is left; `why`
  kRejoinRefused,  // it stays prepared, but one more prepare of it (another pod, another allocation) was refused; `why`
  kReleased,       // no row is left
  kReleaseFailed,  // still held; `why`
  kDrifted,        // a limit in force is not what was granted, or what was applied vanished; being repaired, or `why` it could not be.
                   // NotFound: a share is gone altogether
  kRepaired,       // in force again
  kVerified,       // in force as ever. Once for each claim after a start, then every kVerifiedWriteInterval
};

struct ClaimEvent {
  ClaimChange change = ClaimChange::kPrepared;
  std::string driver;
  ClaimReference claim;
  std::string allocation_version;  // CAP-6; empty when the claim never got one
  // As they are now. kRefused: as they were asked for, or only their keys; may be empty. kDrifted: where it differs, `applied` is
  // not complete and its limits are what the backend found in force: 0 where nothing is.
  std::vector<store::ShareRow> shares;
  absl::Status why;
};

// Calls come from several threads; they return at once and do not call the claims back. Events of one claim come in their order.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnClaim(const ClaimEvent& event) = 0;
};

// Passes every event on, in the order given.
class Observers final : public Observer {
 public:
  explicit Observers(std::vector<Observer*> observers) : observers_(std::move(observers)) {}
  void OnClaim(const ClaimEvent& event) override {
    for (Observer* observer : observers_) observer->OnClaim(event);
  }

 private:
  const std::vector<Observer*> observers_;
};

}  // namespace tranche::claims
