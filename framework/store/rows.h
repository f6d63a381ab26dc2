// The rows of the store as SQL. Internal to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/database.h"
#include "store/store.h"

namespace tranche::store {

inline constexpr std::int64_t kApplicationId = 0x54524348;  // "TRCH"
inline constexpr std::int64_t kSchemaVersion = 2;

// Tables and triggers of kSchemaVersion, for an empty file; kAddedSince2 follows.
extern const char* const kSchema;
// What brings a file of schema 1 to schema 2, before a recount.
extern const char* const kUpgradeFrom1;
// What files of kSchemaVersion may lack and programs of that version need not know; changes nothing where it is there.
extern const char* const kAddedSince2;
// Fills `holdings` from `shares`; and how many of its rows are not what a count of the shares gives.
extern const char* const kRecountHoldings;
extern const char* const kWrongHoldings;

// A transaction that is already begun on `database`; whoever began it ends it.
class SqlTransaction final : public Transaction {
 public:
  enum class Access { kRead, kWrite };
  SqlTransaction(Database& database, Access access) : database_(database), access_(access) {}

  absl::StatusOr<std::optional<ClaimRow>> FindClaim(const std::string& driver, const std::string& claim_uid) override;
  absl::StatusOr<std::vector<ClaimRow>> Claims() override;
  absl::StatusOr<std::vector<ShareRow>> SharesOfClaim(const std::string& driver, const std::string& claim_uid) override;
  absl::StatusOr<std::vector<ShareRow>> Shares() override;
  absl::StatusOr<RowCounts> Count() override;
  absl::StatusOr<std::vector<Holding>> HoldingsOfPhysical(const std::string& backend, const std::string& physical, const ClaimKey& except,
                                                          Holders holders) override;
  absl::StatusOr<std::vector<Holding>> HoldingsOfCounterSet(const std::string& counter_set, const std::string& except_backend,
                                                            const std::string& except_physical, const ClaimKey& except, Holders holders) override;
  absl::StatusOr<std::vector<OfferInUse>> OffersInUse() override;
  absl::StatusOr<std::optional<PolicyRow>> FindPolicy(const std::string& version) override;
  absl::StatusOr<std::int64_t> LastEpoch(const std::string& driver, const std::string& claim_uid) override;

  absl::Status PutClaim(const ClaimRow& row) override;
  absl::Status PutShare(const ShareRow& row) override;
  absl::Status DeleteClaim(const std::string& driver, const std::string& claim_uid) override;
  absl::Status PutPolicy(const PolicyRow& row) override;
  absl::Status AppendAudit(const AuditRecord& record) override;

  absl::StatusOr<std::vector<AuditRecord>> Audit(const AuditQuery& query);
  // Writes more into the log than the page cache holds. Always Cancelled (or what failed), so that the transaction is undone.
  absl::Status SpillZeros();

 private:
  absl::Status CheckWritable() const;
  absl::Status KeepEpoch(const std::string& driver, const std::string& claim_uid, std::int64_t epoch);
  absl::Status Run(const char* sql, const std::string& first, const std::string& second);
  absl::StatusOr<std::vector<ShareRow>> ReadShares(Statement statement);
  absl::StatusOr<std::vector<Holding>> ReadHoldings(Statement statement, std::string_view counter_set);  // of that set; "": all

  Database& database_;
  const Access access_;
};

}  // namespace tranche::store
