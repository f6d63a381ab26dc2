#include "store/rows.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "model/json.h"
#include "store/codec.h"

namespace tranche::store {

// `holdings` counts equal shares, so that a capacity check reads a row per kind of share and not per share. Triggers keep it, in the transaction
// that changes a share: no writer can forget it.
#define TRANCHE_HOLDING_COLUMNS "backend, physical, driver, pool, device, mode, admin_access, consumed, counters"
#define TRANCHE_NEW_HOLDING "NEW.backend, NEW.physical, NEW.driver, NEW.pool, NEW.device, NEW.mode, NEW.admin_access, NEW.consumed, NEW.counters"
#define TRANCHE_OLD_HOLDING "OLD.backend, OLD.physical, OLD.driver, OLD.pool, OLD.device, OLD.mode, OLD.admin_access, OLD.consumed, OLD.counters"
#define TRANCHE_COUNT_NEW                                                                   \
  "INSERT INTO holdings (" TRANCHE_HOLDING_COLUMNS ", shares) VALUES (" TRANCHE_NEW_HOLDING \
  ", 1)"                                                                                    \
  " ON CONFLICT DO UPDATE SET shares = shares + 1;"
#define TRANCHE_UNCOUNT_OLD                                                                             \
  "UPDATE holdings SET shares = shares - 1 WHERE (" TRANCHE_HOLDING_COLUMNS ") = (" TRANCHE_OLD_HOLDING \
  ");"                                                                                                  \
  "DELETE FROM holdings WHERE (" TRANCHE_HOLDING_COLUMNS ") = (" TRANCHE_OLD_HOLDING ") AND shares <= 0;"
#define TRANCHE_HOLDINGS_SCHEMA                                                                                                           \
  "CREATE TABLE holdings (backend TEXT NOT NULL, physical TEXT NOT NULL, driver TEXT NOT NULL, pool TEXT NOT NULL, device TEXT NOT NULL," \
  " mode TEXT NOT NULL, admin_access INTEGER NOT NULL, consumed TEXT NOT NULL, counters TEXT NOT NULL, shares INTEGER NOT NULL,"          \
  " PRIMARY KEY (" TRANCHE_HOLDING_COLUMNS                                                                                                \
  ")) WITHOUT ROWID;"                                                                                                                     \
  "CREATE TRIGGER shares_count_insert AFTER INSERT ON shares BEGIN " TRANCHE_COUNT_NEW                                                    \
  " END;"                                                                                                                                 \
  "CREATE TRIGGER shares_count_delete AFTER DELETE ON shares BEGIN " TRANCHE_UNCOUNT_OLD                                                  \
  " END;"                                                                                                                                 \
  "CREATE TRIGGER shares_count_update AFTER UPDATE ON shares WHEN (" TRANCHE_OLD_HOLDING ") IS NOT (" TRANCHE_NEW_HOLDING                 \
  ")"                                                                                                                                     \
  " BEGIN " TRANCHE_UNCOUNT_OLD TRANCHE_COUNT_NEW " END;"

// From schema 1: an index over shares and a table of counters did what holdings does now.
const char* const kUpgradeFrom1 = "DROP INDEX IF EXISTS shares_by_physical; DROP TABLE IF EXISTS share_counters;" TRANCHE_HOLDINGS_SCHEMA;

const char* const kAddedSince2 = "CREATE INDEX IF NOT EXISTS shares_without_id ON shares (backend, physical) WHERE share_id = ''";

const char* const kRecountHoldings =
    "DELETE FROM holdings; INSERT INTO holdings SELECT " TRANCHE_HOLDING_COLUMNS ", count(*) FROM shares GROUP BY " TRANCHE_HOLDING_COLUMNS;

const char* const kWrongHoldings =
    "SELECT count(*) FROM (SELECT * FROM (SELECT " TRANCHE_HOLDING_COLUMNS ", count(*) FROM shares GROUP BY " TRANCHE_HOLDING_COLUMNS
    ") EXCEPT SELECT * FROM holdings UNION ALL SELECT * FROM (SELECT * FROM holdings EXCEPT SELECT " TRANCHE_HOLDING_COLUMNS
    ", count(*) FROM shares GROUP BY " TRANCHE_HOLDING_COLUMNS "))";

const char* const kSchema = R"sql(
CREATE TABLE claims (
  driver TEXT NOT NULL, claim_uid TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, epoch INTEGER NOT NULL,
  allocation_version TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, pod_uids TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (driver, claim_uid)) WITHOUT ROWID;

CREATE TABLE shares (
  driver TEXT NOT NULL, claim_uid TEXT NOT NULL, request TEXT NOT NULL, pool TEXT NOT NULL, device TEXT NOT NULL, share_id TEXT NOT NULL,
  backend TEXT NOT NULL, physical TEXT NOT NULL, offer TEXT NOT NULL, device_class TEXT NOT NULL, mode TEXT NOT NULL,
  admin_access INTEGER NOT NULL, result_index INTEGER NOT NULL, consumed TEXT NOT NULL, counters TEXT NOT NULL,
  policy_version TEXT NOT NULL, configuration TEXT NOT NULL, state TEXT NOT NULL, applied TEXT,
  PRIMARY KEY (driver, claim_uid, request, pool, device, share_id)) WITHOUT ROWID;
)sql" TRANCHE_HOLDINGS_SCHEMA R"sql(
CREATE TABLE policies (version TEXT NOT NULL PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE epochs (
  driver TEXT NOT NULL, claim_uid TEXT NOT NULL, epoch INTEGER NOT NULL, used_at INTEGER NOT NULL,
  PRIMARY KEY (driver, claim_uid)) WITHOUT ROWID;

CREATE TABLE audit (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, tenant TEXT NOT NULL,
  claim TEXT NOT NULL, claim_uid TEXT NOT NULL, request TEXT NOT NULL, driver TEXT NOT NULL, pool TEXT NOT NULL, device TEXT NOT NULL,
  share_id TEXT NOT NULL, capacity TEXT NOT NULL, policy_version TEXT NOT NULL, allocation_version TEXT NOT NULL,
  outcome TEXT NOT NULL, message TEXT NOT NULL);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit table is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit table is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
  BEGIN SELECT RAISE(ABORT, 'the audit table is append-only'); END;
)sql";

namespace {

#define TRANCHE_CLAIM_COLUMNS "driver, claim_uid, namespace, name, epoch, allocation_version, state, reason, pod_uids, created_at, updated_at"
#define TRANCHE_SHARE_COLUMNS                                                                                                      \
  "driver, claim_uid, request, pool, device, share_id, backend, physical, offer, device_class, mode, admin_access, result_index, " \
  "consumed, counters, policy_version, configuration, state, applied"
#define TRANCHE_AUDIT_COLUMNS                                                                                        \
  "at, actor, action, tenant, claim, claim_uid, request, driver, pool, device, share_id, capacity, policy_version, " \
  "allocation_version, outcome, message"

absl::StatusOr<ClaimRow> ReadClaim(const Statement& row) {
  ClaimRow claim;
  claim.driver = row.Text(0);
  claim.claim_uid = row.Text(1);
  claim.namespace_name = row.Text(2);
  claim.name = row.Text(3);
  claim.epoch = row.Integer(4);
  claim.allocation_version = row.Text(5);
  TRANCHE_ASSIGN_OR_RETURN(claim.state, ParseClaimState(row.TextView(6)));
  claim.reason = row.Text(7);
  claim.pod_uids = SplitLines(row.TextView(8));
  claim.created_at = FromNanoseconds(row.Integer(9));
  claim.updated_at = FromNanoseconds(row.Integer(10));
  return claim;
}

absl::StatusOr<ShareRow> ReadShare(const Statement& row) {
  ShareRow share;
  share.key = {row.Text(1), row.Text(2), row.Text(0), row.Text(3), row.Text(4), row.Text(5)};
  share.backend = row.Text(6);
  share.physical = row.Text(7);
  share.offer = row.Text(8);
  share.device_class = row.Text(9);
  TRANCHE_ASSIGN_OR_RETURN(share.mode, ParseMode(row.TextView(10)));
  share.admin_access = row.Integer(11) != 0;
  share.result_index = static_cast<int>(row.Integer(12));
  TRANCHE_ASSIGN_OR_RETURN(share.consumed, DecodeAmounts(row.TextView(13)));
  TRANCHE_ASSIGN_OR_RETURN(share.counters, DecodeCounters(row.TextView(14)));
  share.policy_version = row.Text(15);
  share.configuration = row.Text(16);
  TRANCHE_ASSIGN_OR_RETURN(share.state, ParseShareState(row.TextView(17)));
  if (row.IsNull(18)) return share;
  TRANCHE_ASSIGN_OR_RETURN(const boost::json::value json, ParseJson(row.TextView(18)));
  TRANCHE_ASSIGN_OR_RETURN(share.applied, DecodeAppliedShare(json));
  return share;
}

AuditRecord ReadAudit(const Statement& row) {
  AuditRecord record;
  record.id = row.Integer(0);
  record.at = FromNanoseconds(row.Integer(1));
  int column = 2;
  for (std::string* field :
       {&record.actor, &record.action, &record.tenant, &record.claim, &record.claim_uid, &record.request, &record.driver, &record.pool, &record.device,
        &record.share_id, &record.capacity, &record.policy_version, &record.allocation_version, &record.outcome, &record.message}) {
    *field = row.Text(column++);
  }
  return record;
}

// The claim that asks (?1, ?2) is not counted: its own rows are few and found by their key. Shares without an id, which no other may stand beside, are
// found by their index.
#define TRANCHE_SAME_HOLDING(share)                                                                                                            \
  "(" share ".backend, " share ".physical, " share ".driver, " share ".pool, " share ".device, " share ".mode, " share ".admin_access, " share \
  ".consumed, " share                                                                                                                          \
  ".counters) = (holdings.backend, holdings.physical, holdings.driver, holdings.pool, holdings.device, holdings.mode, holdings.admin_access,"  \
  " holdings.consumed, holdings.counters)"
#define TRANCHE_COUNTED \
  "SELECT " TRANCHE_HOLDING_COLUMNS                                                                                                                 \
  ", shares - (SELECT count(*) FROM shares AS own WHERE own.driver = ?1 AND own.claim_uid = ?2 AND " TRANCHE_SAME_HOLDING("own") "), '', '',"       \
  " CASE WHEN EXISTS (SELECT 1 FROM shares AS bare WHERE bare.share_id = '' AND NOT (bare.driver = ?1 AND bare.claim_uid = ?2)"                     \
  " AND " TRANCHE_SAME_HOLDING("bare") ") THEN '' ELSE '*' END FROM holdings"
// The bare columns next to min() come from the row that has the minimum: the holder's.
#define TRANCHE_NAMED "SELECT " TRANCHE_HOLDING_COLUMNS ", count(*), min(claim_uid), request, share_id FROM shares"

bool Uses(const std::vector<CounterUse>& counters, std::string_view counter_set) {
  return std::any_of(counters.begin(), counters.end(), [&](const CounterUse& use) { return use.counter_set == counter_set; });
}

}  // namespace

absl::StatusOr<std::optional<ClaimRow>> SqlTransaction::FindClaim(const std::string& driver, const std::string& claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT " TRANCHE_CLAIM_COLUMNS " FROM claims WHERE driver = ? AND claim_uid = ?"));
  statement.Bind(driver).Bind(claim_uid);
  TRANCHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return std::nullopt;
  TRANCHE_ASSIGN_OR_RETURN(ClaimRow claim, ReadClaim(statement));
  return claim;
}

absl::StatusOr<std::vector<ClaimRow>> SqlTransaction::Claims() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT " TRANCHE_CLAIM_COLUMNS " FROM claims ORDER BY driver, claim_uid"));
  std::vector<ClaimRow> claims;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return claims;
    TRANCHE_ASSIGN_OR_RETURN(ClaimRow claim, ReadClaim(statement));
    claims.push_back(std::move(claim));
  }
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::ReadShares(Statement statement) {
  std::vector<ShareRow> shares;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return shares;
    TRANCHE_ASSIGN_OR_RETURN(ShareRow share, ReadShare(statement));
    shares.push_back(std::move(share));
  }
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::SharesOfClaim(const std::string& driver, const std::string& claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS " FROM shares WHERE driver = ? AND claim_uid = ? ORDER BY result_index, request"));
  statement.Bind(driver).Bind(claim_uid);
  return ReadShares(std::move(statement));
}

absl::StatusOr<RowCounts> SqlTransaction::Count() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT (SELECT count(*) FROM claims), (SELECT count(*) FROM shares)"));
  TRANCHE_RETURN_IF_ERROR(statement.Step().status());
  return RowCounts{statement.Integer(0), statement.Integer(1)};
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::Shares() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS " FROM shares ORDER BY driver, claim_uid, result_index, request"));
  return ReadShares(std::move(statement));
}

absl::StatusOr<std::vector<Holding>> SqlTransaction::ReadHoldings(Statement statement, std::string_view counter_set) {
  std::vector<Holding> holdings;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return holdings;
    Holding holding;
    holding.shares = statement.Integer(9);
    if (holding.shares <= 0) continue;  // all of them belong to the claim that asks
    holding.backend = statement.Text(0);
    holding.physical = statement.Text(1);
    holding.holder = {statement.Text(10), statement.Text(11), statement.Text(2), statement.Text(3), statement.Text(4), statement.Text(12)};
    TRANCHE_ASSIGN_OR_RETURN(holding.mode, ParseMode(statement.TextView(5)));
    holding.admin_access = statement.Integer(6) != 0;
    TRANCHE_ASSIGN_OR_RETURN(holding.counters, DecodeCounters(statement.TextView(8)));
    if (!counter_set.empty() && !Uses(holding.counters, counter_set)) continue;
    TRANCHE_ASSIGN_OR_RETURN(holding.consumed, DecodeAmounts(statement.TextView(7)));
    for (auto& [name, amount] : holding.consumed) amount = amount.Times(holding.shares);
    holdings.push_back(std::move(holding));
  }
}

absl::StatusOr<std::vector<Holding>> SqlTransaction::HoldingsOfPhysical(const std::string& backend, const std::string& physical, const ClaimKey& except,
                                                                        Holders holders) {
  if (holders == Holders::kCounted) {
    TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare(TRANCHE_COUNTED " WHERE backend = ? AND physical = ?"));
    statement.Bind(except.driver).Bind(except.claim_uid).Bind(backend).Bind(physical);
    return ReadHoldings(std::move(statement), "");
  }
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare(TRANCHE_NAMED " WHERE backend = ? AND physical = ? AND NOT (driver = ? AND claim_uid = ?)"
                                                                                " GROUP BY " TRANCHE_HOLDING_COLUMNS));
  statement.Bind(backend).Bind(physical).Bind(except.driver).Bind(except.claim_uid);
  return ReadHoldings(std::move(statement), "");
}

absl::StatusOr<std::vector<Holding>> SqlTransaction::HoldingsOfCounterSet(const std::string& counter_set, const std::string& except_backend,
                                                                          const std::string& except_physical, const ClaimKey& except, Holders holders) {
  const std::string& driver = except.driver;  // counter sets are a driver's own
  if (holders == Holders::kCounted) {
    TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                             database_.Prepare(TRANCHE_COUNTED " WHERE driver = ? AND instr(counters, ?) AND NOT (backend = ? AND physical = ?)"));
    statement.Bind(driver).Bind(except.claim_uid).Bind(driver).Bind(counter_set).Bind(except_backend).Bind(except_physical);
    return ReadHoldings(std::move(statement), counter_set);
  }
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare(TRANCHE_NAMED " WHERE driver = ? AND instr(counters, ?) AND NOT (backend = ? AND physical = ?)"
                                                           " AND claim_uid <> ? GROUP BY " TRANCHE_HOLDING_COLUMNS));
  statement.Bind(driver).Bind(counter_set).Bind(except_backend).Bind(except_physical).Bind(except.claim_uid);
  return ReadHoldings(std::move(statement), counter_set);
}

absl::StatusOr<std::vector<OfferInUse>> SqlTransaction::OffersInUse() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT DISTINCT driver, pool, device, offer, backend, physical, mode FROM shares"
                                                                  " ORDER BY driver, pool, device, offer, backend, physical, mode"));
  std::vector<OfferInUse> offers;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return offers;
    OfferInUse offer{statement.Text(0), statement.Text(1), statement.Text(2), statement.Text(3), statement.Text(4), statement.Text(5), {}};
    TRANCHE_ASSIGN_OR_RETURN(offer.mode, ParseMode(statement.TextView(6)));
    offers.push_back(std::move(offer));
  }
}

absl::StatusOr<std::optional<PolicyRow>> SqlTransaction::FindPolicy(const std::string& version) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT json FROM policies WHERE version = ?"));
  statement.Bind(version);
  TRANCHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return std::nullopt;
  return PolicyRow{version, statement.Text(0)};
}

absl::StatusOr<std::int64_t> SqlTransaction::LastEpoch(const std::string& driver, const std::string& claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT epoch FROM epochs WHERE driver = ? AND claim_uid = ?"));
  statement.Bind(driver).Bind(claim_uid);
  TRANCHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  return found ? statement.Integer(0) : 0;
}

absl::Status SqlTransaction::CheckWritable() const {
  if (access_ == Access::kWrite) return absl::OkStatus();
  return absl::FailedPreconditionError("store: a change inside Read was refused; use Write");
}

absl::Status SqlTransaction::Run(const char* sql, const std::string& first, const std::string& second) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare(sql));
  return statement.Bind(first).Bind(second).Run();
}

absl::Status SqlTransaction::KeepEpoch(const std::string& driver, const std::string& claim_uid, std::int64_t epoch) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("INSERT INTO epochs (driver, claim_uid, epoch, used_at) VALUES (?, ?, ?, ?)"
                                                                  " ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch), used_at = excluded.used_at"));
  return statement.Bind(driver).Bind(claim_uid).Bind(epoch).Bind(ToNanoseconds(std::chrono::system_clock::now())).Run();
}

absl::Status SqlTransaction::PutClaim(const ClaimRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(const std::int64_t last, LastEpoch(row.driver, row.claim_uid));
  if (row.epoch > last) TRANCHE_RETURN_IF_ERROR(KeepEpoch(row.driver, row.claim_uid, row.epoch));
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("INSERT OR REPLACE INTO claims (" TRANCHE_CLAIM_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.Bind(row.driver).Bind(row.claim_uid).Bind(row.namespace_name).Bind(row.name).Bind(row.epoch).Bind(row.allocation_version);
  statement.Bind(ClaimStateName(row.state)).Bind(row.reason).Bind(JoinLines(row.pod_uids));
  return statement.Bind(ToNanoseconds(row.created_at)).Bind(ToNanoseconds(row.updated_at)).Run();
}

absl::Status SqlTransaction::PutShare(const ShareRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(const std::string consumed, EncodeAmounts(row.consumed));
  TRANCHE_ASSIGN_OR_RETURN(const std::string counters, EncodeCounters(row.counters));
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("INSERT INTO shares (" TRANCHE_SHARE_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                                             " ON CONFLICT DO UPDATE SET backend = excluded.backend, physical = excluded.physical, offer = excluded.offer,"
                                             " device_class = excluded.device_class, mode = excluded.mode, admin_access = excluded.admin_access,"
                                             " result_index = excluded.result_index, consumed = excluded.consumed, counters = excluded.counters,"
                                             " policy_version = excluded.policy_version, configuration = excluded.configuration, state = excluded.state,"
                                             " applied = excluded.applied"));
  const ShareKey& key = row.key;
  statement.Bind(key.driver).Bind(key.claim_uid).Bind(key.request).Bind(key.pool).Bind(key.device).Bind(key.share_id);
  statement.Bind(row.backend).Bind(row.physical).Bind(row.offer).Bind(row.device_class).Bind(ModeName(row.mode));
  statement.Bind(std::int64_t{row.admin_access}).Bind(std::int64_t{row.result_index}).Bind(consumed).Bind(counters);
  statement.Bind(row.policy_version).Bind(row.configuration).Bind(ShareStateName(row.state));
  if (!row.applied.has_value()) return statement.BindNull().Run();
  return statement.Bind(ToJsonText(EncodeAppliedShare(*row.applied))).Run();
}

absl::Status SqlTransaction::DeleteClaim(const std::string& driver, const std::string& claim_uid) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(const std::int64_t last, LastEpoch(driver, claim_uid));
  if (last > 0) TRANCHE_RETURN_IF_ERROR(KeepEpoch(driver, claim_uid, last));  // its day begins now
  TRANCHE_RETURN_IF_ERROR(Run("DELETE FROM shares WHERE driver = ? AND claim_uid = ?", driver, claim_uid));
  return Run("DELETE FROM claims WHERE driver = ? AND claim_uid = ?", driver, claim_uid);
}

absl::Status SqlTransaction::SpillZeros() {
  // A thousand pages of 4 KiB: then SQLite folds the log back into the file.
  absl::Status status = database_.Execute("PRAGMA cache_size = 16; CREATE TABLE zeros (data BLOB); INSERT INTO zeros VALUES (zeroblob(4100000))");
  if (const absl::Status restored = database_.Execute("PRAGMA cache_size = -2000"); status.ok()) status = restored;
  return status.ok() ? absl::CancelledError("undone on purpose") : status;
}

absl::Status SqlTransaction::PutPolicy(const PolicyRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  return Run("INSERT OR IGNORE INTO policies (version, json) VALUES (?, ?)", row.version, row.json);
}

absl::Status SqlTransaction::AppendAudit(const AuditRecord& record) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("INSERT INTO audit (" TRANCHE_AUDIT_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.Bind(ToNanoseconds(record.at == WallTime{} ? std::chrono::system_clock::now() : record.at));
  for (const std::string* field :
       {&record.actor, &record.action, &record.tenant, &record.claim, &record.claim_uid, &record.request, &record.driver, &record.pool, &record.device,
        &record.share_id, &record.capacity, &record.policy_version, &record.allocation_version, &record.outcome, &record.message}) {
    statement.Bind(*field);
  }
  return statement.Run();
}

absl::StatusOr<std::vector<AuditRecord>> SqlTransaction::Audit(const AuditQuery& query) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, database_.Prepare("SELECT id, " TRANCHE_AUDIT_COLUMNS
                                                                  " FROM audit WHERE id > ? AND (? = '' OR claim_uid = ?) AND (? = '' OR tenant = ?)"
                                                                  " ORDER BY id LIMIT ?"));
  statement.Bind(query.after_id).Bind(query.claim_uid).Bind(query.claim_uid).Bind(query.tenant).Bind(query.tenant);
  statement.Bind(std::max<std::int64_t>(query.limit, 0));
  std::vector<AuditRecord> records;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return records;
    records.push_back(ReadAudit(statement));
  }
}

}  // namespace tranche::store
