// Durable state of the node host: SQLite in WAL mode with synchronous=FULL, shared by overlapping hosts. File format: docs/store.md.
//
// Write() runs a function inside one IMMEDIATE transaction and returns after the commit is on disk. Concurrent writers of one process are
// grouped into one transaction (a savepoint each) and one fsync; a function that fails undoes only itself. Read() sees the last commit.
// Thread-safe. Functions run on the store's writer thread or the caller's: they must be short, must not call the store again and must not
// wait for anything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "model/share.h"
#include "telemetry/audit.h"

namespace tranche::store {

enum class ClaimState { kPreparing, kPrepared, kUnpreparing };
std::string_view ClaimStateName(ClaimState state);

struct ClaimRow {
  std::string driver, claim_uid;  // primary key
  std::string namespace_name, name;
  std::int64_t epoch = 0;          // rises each time the claim is prepared anew
  std::string allocation_version;  // CAP-6
  ClaimState state = ClaimState::kPreparing;
  std::string reason;  // why it is not prepared, or what the last try said
  std::vector<std::string> pod_uids;
  WallTime created_at{}, updated_at{};
  friend bool operator==(const ClaimRow&, const ClaimRow&) = default;
};

enum class ShareState { kIntent, kApplied, kReleasing };
std::string_view ShareStateName(ShareState state);

struct ShareRow {
  ShareKey key;  // primary key
  std::string backend, physical, offer, device_class;
  Mode mode = Mode::kShare;
  bool admin_access = false;
  int result_index = 0;
  Quantities consumed;
  std::vector<CounterUse> counters;  // snapshot at grant
  std::string policy_version;        // a PolicyRow
  std::string configuration;         // merged parameters, JSON
  ShareState state = ShareState::kIntent;
  std::optional<AppliedShare> applied;  // what the backend answered: limits, edits, network data, state
  friend bool operator==(const ShareRow&, const ShareRow&) = default;
};

// Shares that are equal in everything the capacity sums look at, added up: a device with a thousand equal shares is one holding.
struct Holding {
  // One of the shares. kCounted leaves claim and request empty; its shareID is empty where one of the shares has none, and "*" otherwise.
  ShareKey holder;
  std::string backend, physical;
  Mode mode = Mode::kShare;
  bool admin_access = false;
  Quantities consumed;               // of all of them together; empty in HoldingsOfCounterSet
  std::vector<CounterUse> counters;  // of one: a device is charged once
  std::int64_t shares = 1;
  friend bool operator==(const Holding&, const Holding&) = default;
};

// kCounted takes the same time for any number of equal shares; kNamed looks at every share, for a message that names a holder.
enum class Holders { kCounted, kNamed };

struct ClaimKey {
  std::string driver, claim_uid;
};

// A device with live shares and the offer they came from.
struct OfferInUse {
  std::string driver, pool, device, offer, backend, physical;
  Mode mode = Mode::kShare;
  friend bool operator==(const OfferInUse&, const OfferInUse&) = default;
};

struct RowCounts {
  std::int64_t claims = 0, shares = 0;
};

struct PolicyRow {
  std::string version;  // "sha256:…"
  std::string json;
};

class Transaction {  // reads see the transaction's own writes
 public:
  virtual ~Transaction() = default;
  virtual absl::StatusOr<std::optional<ClaimRow>> FindClaim(const std::string& driver, const std::string& claim_uid) = 0;
  virtual absl::StatusOr<std::vector<ClaimRow>> Claims() = 0;
  virtual absl::StatusOr<std::vector<ShareRow>> SharesOfClaim(const std::string& driver, const std::string& claim_uid) = 0;
  virtual absl::StatusOr<std::vector<ShareRow>> Shares() = 0;
  virtual absl::StatusOr<RowCounts> Count() = 0;
  // For the capacity check: what touches a physical device, without the shares of one claim (which is being prepared). Exact sums.
  virtual absl::StatusOr<std::vector<Holding>> HoldingsOfPhysical(const std::string& backend, const std::string& physical, const ClaimKey& except,
                                                                  Holders holders) = 0;
  // The same for a counter set of the claim's driver, without what touches the given physical device: the two lists are disjoint.
  virtual absl::StatusOr<std::vector<Holding>> HoldingsOfCounterSet(const std::string& counter_set, const std::string& except_backend,
                                                                    const std::string& except_physical, const ClaimKey& except, Holders holders) = 0;
  virtual absl::StatusOr<std::vector<OfferInUse>> OffersInUse() = 0;
  virtual absl::StatusOr<std::optional<PolicyRow>> FindPolicy(const std::string& version) = 0;
  // Highest epoch ever used for the claim (kept after the claim's rows are gone, for one day at least); 0 when never.
  virtual absl::StatusOr<std::int64_t> LastEpoch(const std::string& driver, const std::string& claim_uid) = 0;

  virtual absl::Status PutClaim(const ClaimRow& row) = 0;
  virtual absl::Status PutShare(const ShareRow& row) = 0;
  virtual absl::Status DeleteClaim(const std::string& driver, const std::string& claim_uid) = 0;  // with its shares; keeps the epoch
  virtual absl::Status PutPolicy(const PolicyRow& row) = 0;                                       // present: no change
  virtual absl::Status AppendAudit(const AuditRecord& record) = 0;                                // id is given here
};

struct AuditQuery {
  std::int64_t after_id = 0;
  std::int64_t limit = 1000;
  std::string claim_uid = {}, tenant = {};  // empty: any
};

enum class OpenMode { kReadWrite, kReadOnly };

class Store {
 public:
  // Creates the file (0600) and schema, or migrates an older one. FailedPrecondition for a newer schema, DataLoss for a file that is not ours or is
  // damaged; the file is never deleted or overwritten. kReadOnly never writes (tranchectl while the host is down).
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path, OpenMode mode);
  virtual ~Store() = default;
  virtual absl::Status Write(const std::function<absl::Status(Transaction&)>& change) = 0;
  // Makes the write-ahead log as long as it becomes before SQLite begins it anew. A commit that lengthens the file waits for the file system's journal
  // too and takes half as long again. Once after Open; other writers wait for some milliseconds.
  virtual absl::Status LengthenLog() = 0;
  virtual absl::Status Read(const std::function<absl::Status(Transaction&)>& look) = 0;  // writes inside fail
  virtual absl::StatusOr<std::vector<AuditRecord>> Audit(const AuditQuery& query) = 0;
};

}  // namespace tranche::store
