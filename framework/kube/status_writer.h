// Writes what the claims room tells into status.devices[] of the ResourceClaims, behind the back of prepare and unprepare.
//
//   kube::StatusWriter writer(*client, {});
//   claims::Claims claims({…, .observer = &writer});
//
// Level-triggered: of each claim only the newest state is kept and written, in the background, one request for a prepare and one look, a moment later,
// for an unprepare (whose entry mostly went with the allocation). A drift is written even when it was put right before its turn came. What cannot be
// written is tried again, at most every minute for each claim and once for all while the server is away, until the claim is released.
//
// Server-side apply with a field manager of its own per driver: entries of other drivers and fields of others stay as they are, no write of somebody
// else can be lost, and the claim's UID is the precondition (docs/decisions/2026-11-30-claim-status.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>

#include "claims/observer.h"
#include "kube/client.h"
#include "kube/device_status.h"

namespace tranche::kube {

struct StatusWriterOptions {
  std::size_t max_claims = 8192;  // more at once are counted as dropped and not written
  int max_in_flight = 4;
  std::chrono::milliseconds call_timeout{10'000};
  std::chrono::milliseconds prepared_delay{1'000};  // after a prepare: pods that start have the API server first, and a burst of them is not slowed by this
  std::chrono::milliseconds removal_delay{2'000};   // after an unprepare: the time in which the allocation goes by itself
  std::chrono::milliseconds first_retry{1'000}, last_retry{60'000};
  std::chrono::minutes verified_interval{30};  // the age at which verifiedAt is written again though nothing else changed
};

struct StatusWriterState {
  std::size_t claims = 0, waiting = 0;                 // known, and those of which something is still to be written
  std::uint64_t written = 0, failed = 0, dropped = 0;  // calls that changed a claim, calls that failed, events that found no room
  absl::Status problem;                                // the last failure; OK after the next success
};

// Thread-safe. The destructor drops what waits and lets the calls in flight end.
class StatusWriter final : public claims::Observer {
 public:
  StatusWriter(Client& client, const StatusWriterOptions& options);
  ~StatusWriter() override;
  StatusWriter(const StatusWriter&) = delete;
  StatusWriter& operator=(const StatusWriter&) = delete;

  void OnClaim(const claims::ClaimEvent& event) override;

  // The condition Healthy of every share of a physical device, also of shares that come later. `since` is ignored.
  void SetHealth(const std::string& backend, const std::string& physical, const Condition& health);

  // Until nothing waits; false: the deadline passed.
  bool WaitUntilWritten(Deadline deadline);
  StatusWriterState state() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::kube
