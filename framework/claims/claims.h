// The life of a claim on this node: prepare, unprepare, reconcile. The heart of the host; no gRPC, no HTTP, no vendor word.
//
// Prepare, per claim: read → check UID, allocation, reservedFor, own results → resolve configuration and authority → one IMMEDIATE transaction
// that checks the stored rows (CAP-1) and writes the intent → backend applies and reads back → CDI file → outcome durable → answer. Any failure undoes
// what was done, durably, and answers for that claim alone. Unprepare needs driver, UID and durable state only.
//
// Thread-safe. Calls for the same (driver, UID) are serialised; others run in parallel up to what the backends allow, and what one call has to do with
// several backends is done side by side. No backend is called with a passed deadline. Several processes may work on one store: the transaction is the authority.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "cdi/cdi.h"
#include "claims/observer.h"
#include "inventory/inventory.h"
#include "model/claim.h"
#include "store/store.h"

namespace tranche::claims {

// Where claims are read from: the API server, or the local directory.
class ClaimReader {
 public:
  virtual ~ClaimReader() = default;
  // NotFound when it does not exist. The UID may differ from the reference's: the caller checks.
  virtual absl::StatusOr<Claim> ReadClaim(const ClaimReference& reference, Deadline deadline) = 0;
};

// One device of the answer to the kubelet.
struct PreparedDevice {
  std::vector<std::string> request_names;  // base names
  std::string pool, device;
  std::vector<std::string> cdi_device_ids;
  std::string share_id;  // empty: none
  friend bool operator==(const PreparedDevice&, const PreparedDevice&) = default;
};
using PrepareAnswers = std::map<std::string, absl::StatusOr<std::vector<PreparedDevice>>>;  // by claim UID
using UnprepareAnswers = std::map<std::string, absl::Status>;

// One difference that reconcile found, and what it did.
struct Repair {
  std::string what;  // "finished" | "undone" | "re-made" | "rewritten" | "removed orphan" | "quarantined" | "unknown"
  ShareKey key;
  std::string detail;
  friend bool operator==(const Repair&, const Repair&) = default;
};

// In force at a backend, and the store has never granted it: the store is new, was emptied or restored. It stays until its claim is prepared (it is
// known then) or unprepared, or an operator releases it. Its capacity is charged by the backend alone.
struct UnknownShare {
  ShareKey key;
  std::string backend, state;
  friend bool operator==(const UnknownShare&, const UnknownShare&) = default;
};

struct Dependencies {
  store::Store& store;
  inventory::Inventory& inventory;
  ClaimReader& reader;
  // Never null for a name that the inventory or the store mentions and that is loaded; nullptr otherwise.
  std::function<std::shared_ptr<backend::Backend>(const std::string& name)> backend;
  std::string cdi_directory;
  // Whether no other host process works on this store now. Then an intent that no call of this process owns is a crash's leftover, whatever its
  // age; otherwise it is left alone for a minute.
  std::function<bool()> sole_host = [] { return true; };
  Observer* observer = nullptr;  // outlives the claims
};

// How old the stored time of a share's last verification may become.
inline constexpr std::chrono::minutes kVerifiedWriteInterval{30};

// Whether the caller has ended its call, or its connection is gone. Empty: it never does.
using GivenUp = std::function<bool()>;

class Claims {
 public:
  explicit Claims(Dependencies dependencies);
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // Every reference has an answer. The answer of a prepared claim is the full device list again; CDI files are rewritten when absent. Once `given_up` says
  // that nobody waits for the answer any more, neither call begins anything: a call that came later may be done already, and a grant would be nobody's, a
  // release a running pod's.
  PrepareAnswers Prepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up = {});
  // Unknown claim: success. All shares of one backend go in one call (a drain); claims that another call is at work on follow when they are free.
  UnprepareAnswers Unprepare(const std::string& driver, const std::vector<ClaimReference>& claims, Deadline deadline, const GivenUp& given_up = {});

  // Durable claims × what each backend says is applied × CDI files. At start, when a backend reports a lost share, every few minutes.
  // `backend` empty: all. Backends are asked side by side and none waits for another; a first look, which locks no claim, has half of the time at most, and
  // what differs is looked at again and repaired with the locks of those claims alone. A claim that a call is at work on is left to that call. Unreachable
  // backends are skipped and reported as an error after the others were done.
  absl::StatusOr<std::vector<Repair>> Reconcile(const std::string& backend, Deadline deadline);

  // Holds the limits that are in force against those that were granted, and puts right what somebody changed by hand. Every few seconds: takes no lock
  // and writes nothing while all is well, and asks no backend without shares. Errors as Reconcile.
  absl::StatusOr<std::vector<Repair>> VerifyAll(Deadline deadline);
  // When every share of this backend was last found as granted by VerifyAll; the store has it every kVerifiedWriteInterval only.
  std::optional<WallTime> VerifiedAt(const std::string& backend) const;

  // As the last Reconcile found them.
  std::vector<UnknownShare> Unknown() const;
  // Takes the unknown shares of one claim away; of all when `claim_uid` is empty. NotFound: it has none. What was released.
  absl::StatusOr<std::vector<ShareKey>> ReleaseUnknown(const std::string& claim_uid, Deadline deadline);

  // Offers with live shares, for the inventory.
  std::vector<inventory::HeldOffer> HeldOffers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::claims
