#include "store/rows.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "model/json.h"
#include "store/codec.h"

namespace tranche::store {

// The two indexes of shares cover what the capacity check reads, in the order in which it groups: no sort, no look-up per share.
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
CREATE INDEX shares_by_physical ON shares (backend, physical, driver, pool, device, mode, admin_access, consumed, counters, claim_uid);

CREATE TABLE share_counters (
  driver TEXT NOT NULL, counter_set TEXT NOT NULL, backend TEXT NOT NULL, physical TEXT NOT NULL, pool TEXT NOT NULL, device TEXT NOT NULL,
  mode TEXT NOT NULL, admin_access INTEGER NOT NULL, counters TEXT NOT NULL,
  claim_uid TEXT NOT NULL, request TEXT NOT NULL, share_id TEXT NOT NULL,
  PRIMARY KEY (driver, counter_set, backend, physical, pool, device, mode, admin_access, counters, claim_uid, request, share_id)) WITHOUT ROWID;
CREATE INDEX share_counters_by_claim ON share_counters (driver, claim_uid);

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
#define TRANCHE_SHARE_COLUMNS                                                                                                     \
  "driver, claim_uid, request, pool, device, share_id, backend, physical, offer, device_class, mode, admin_access, result_index, " \
  "consumed, counters, policy_version, configuration, state, applied"
#define TRANCHE_AUDIT_COLUMNS                                                                                                  \
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
  for (std::string* field : {&record.actor, &record.action, &record.tenant, &record.claim, &record.claim_uid, &record.request, &record.driver,
                             &record.pool, &record.device, &record.share_id, &record.capacity, &record.policy_version,
                             &record.allocation_version, &record.outcome, &record.message}) {
    *field = row.Text(column++);
  }
  return record;
}

}  // namespace

absl::StatusOr<std::optional<ClaimRow>> SqlTransaction::FindClaim(const std::string& driver, const std::string& claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT " TRANCHE_CLAIM_COLUMNS " FROM claims WHERE driver = ? AND claim_uid = ?"));
  statement.Bind(driver).Bind(claim_uid);
  TRANCHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return std::nullopt;
  TRANCHE_ASSIGN_OR_RETURN(ClaimRow claim, ReadClaim(statement));
  return claim;
}

absl::StatusOr<std::vector<ClaimRow>> SqlTransaction::Claims() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT " TRANCHE_CLAIM_COLUMNS " FROM claims ORDER BY driver, claim_uid"));
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
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS " FROM shares WHERE driver = ? AND claim_uid = ? ORDER BY result_index, request"));
  statement.Bind(driver).Bind(claim_uid);
  return ReadShares(std::move(statement));
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::SharesOfPhysical(const std::string& backend, const std::string& physical) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS " FROM shares WHERE backend = ? AND physical = ?"));
  statement.Bind(backend).Bind(physical);
  return ReadShares(std::move(statement));
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::SharesOfCounterSet(const std::string& driver, const std::string& counter_set) {
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS
                        " FROM shares JOIN (SELECT DISTINCT driver, claim_uid, request, pool, device, share_id FROM share_counters"
                        " WHERE driver = ? AND counter_set = ?) USING (driver, claim_uid, request, pool, device, share_id)"));
  statement.Bind(driver).Bind(counter_set);
  return ReadShares(std::move(statement));
}

absl::StatusOr<std::vector<ShareRow>> SqlTransaction::Shares() {
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("SELECT " TRANCHE_SHARE_COLUMNS " FROM shares ORDER BY driver, claim_uid, result_index, request"));
  return ReadShares(std::move(statement));
}

absl::StatusOr<std::vector<Holding>> SqlTransaction::HoldingsOfPhysical(const std::string& backend, const std::string& physical,
                                                                        const std::string& except_driver,
                                                                        const std::string& except_claim_uid) {
  // The bare columns next to min() come from the row that has the minimum: the holder's.
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("SELECT driver, pool, device, mode, admin_access, consumed, counters, count(*), min(claim_uid), request, share_id"
                        " FROM shares INDEXED BY shares_by_physical WHERE backend = ? AND physical = ? AND NOT (driver = ? AND claim_uid = ?)"
                        " GROUP BY driver, pool, device, mode, admin_access, consumed, counters"));
  statement.Bind(backend).Bind(physical).Bind(except_driver).Bind(except_claim_uid);
  std::vector<Holding> holdings;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return holdings;
    Holding holding;
    holding.holder = {statement.Text(8), statement.Text(9), statement.Text(0), statement.Text(1), statement.Text(2), statement.Text(10)};
    holding.backend = backend;
    holding.physical = physical;
    TRANCHE_ASSIGN_OR_RETURN(holding.mode, ParseMode(statement.TextView(3)));
    holding.admin_access = statement.Integer(4) != 0;
    TRANCHE_ASSIGN_OR_RETURN(holding.consumed, DecodeAmounts(statement.TextView(5)));
    TRANCHE_ASSIGN_OR_RETURN(holding.counters, DecodeCounters(statement.TextView(6)));
    holding.shares = statement.Integer(7);
    for (auto& [name, amount] : holding.consumed) amount = amount.Times(holding.shares);
    holdings.push_back(std::move(holding));
  }
}

absl::StatusOr<std::vector<Holding>> SqlTransaction::HoldingsOfCounterSet(const std::string& driver, const std::string& counter_set,
                                                                          const std::string& except_backend,
                                                                          const std::string& except_physical,
                                                                          const std::string& except_claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("SELECT backend, physical, pool, device, mode, admin_access, counters, count(*), min(claim_uid), request, share_id"
                        " FROM share_counters WHERE driver = ? AND counter_set = ? AND NOT (backend = ? AND physical = ?) AND claim_uid <> ?"
                        " GROUP BY backend, physical, pool, device, mode, admin_access, counters"));
  statement.Bind(driver).Bind(counter_set).Bind(except_backend).Bind(except_physical).Bind(except_claim_uid);
  std::vector<Holding> holdings;
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return holdings;
    Holding holding;
    holding.holder = {statement.Text(8), statement.Text(9), driver, statement.Text(2), statement.Text(3), statement.Text(10)};
    holding.backend = statement.Text(0);
    holding.physical = statement.Text(1);
    TRANCHE_ASSIGN_OR_RETURN(holding.mode, ParseMode(statement.TextView(4)));
    holding.admin_access = statement.Integer(5) != 0;
    TRANCHE_ASSIGN_OR_RETURN(holding.counters, DecodeCounters(statement.TextView(6)));
    holding.shares = statement.Integer(7);
    holdings.push_back(std::move(holding));
  }
}

absl::StatusOr<std::vector<OfferInUse>> SqlTransaction::OffersInUse() {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT DISTINCT driver, pool, device, offer, backend, physical, mode FROM shares"
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
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("INSERT INTO epochs (driver, claim_uid, epoch, used_at) VALUES (?, ?, ?, ?)"
                                             " ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch), used_at = excluded.used_at"));
  return statement.Bind(driver).Bind(claim_uid).Bind(epoch).Bind(ToNanoseconds(std::chrono::system_clock::now())).Run();
}

absl::Status SqlTransaction::PutClaim(const ClaimRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(const std::int64_t last, LastEpoch(row.driver, row.claim_uid));
  if (row.epoch > last) TRANCHE_RETURN_IF_ERROR(KeepEpoch(row.driver, row.claim_uid, row.epoch));
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("INSERT OR REPLACE INTO claims (" TRANCHE_CLAIM_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.Bind(row.driver).Bind(row.claim_uid).Bind(row.namespace_name).Bind(row.name).Bind(row.epoch).Bind(row.allocation_version);
  statement.Bind(ClaimStateName(row.state)).Bind(row.reason).Bind(JoinLines(row.pod_uids));
  return statement.Bind(ToNanoseconds(row.created_at)).Bind(ToNanoseconds(row.updated_at)).Run();
}

absl::Status SqlTransaction::PutCounterSets(const ShareRow& row, const std::string& counters) {
  TRANCHE_ASSIGN_OR_RETURN(Statement remove,
                           database_.Prepare("DELETE FROM share_counters WHERE driver = ? AND claim_uid = ? AND request = ? AND pool = ?"
                                             " AND device = ? AND share_id = ?"));
  const ShareKey& key = row.key;
  TRANCHE_RETURN_IF_ERROR(
      remove.Bind(key.driver).Bind(key.claim_uid).Bind(key.request).Bind(key.pool).Bind(key.device).Bind(key.share_id).Run());
  for (const CounterUse& use : row.counters) {
    TRANCHE_ASSIGN_OR_RETURN(Statement insert,
                             database_.Prepare("INSERT OR REPLACE INTO share_counters (driver, counter_set, backend, physical, pool, device, mode,"
                                               " admin_access, counters, claim_uid, request, share_id)"
                                               " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    insert.Bind(key.driver).Bind(use.counter_set).Bind(row.backend).Bind(row.physical).Bind(key.pool).Bind(key.device);
    insert.Bind(ModeName(row.mode)).Bind(std::int64_t{row.admin_access}).Bind(counters).Bind(key.claim_uid).Bind(key.request);
    TRANCHE_RETURN_IF_ERROR(insert.Bind(key.share_id).Run());
  }
  return absl::OkStatus();
}

absl::Status SqlTransaction::PutShare(const ShareRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(const std::string consumed, EncodeAmounts(row.consumed));
  TRANCHE_ASSIGN_OR_RETURN(const std::string counters, EncodeCounters(row.counters));
  TRANCHE_RETURN_IF_ERROR(PutCounterSets(row, counters));
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("INSERT OR REPLACE INTO shares (" TRANCHE_SHARE_COLUMNS
                                             ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
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
  TRANCHE_RETURN_IF_ERROR(Run("DELETE FROM share_counters WHERE driver = ? AND claim_uid = ?", driver, claim_uid));
  TRANCHE_RETURN_IF_ERROR(Run("DELETE FROM shares WHERE driver = ? AND claim_uid = ?", driver, claim_uid));
  return Run("DELETE FROM claims WHERE driver = ? AND claim_uid = ?", driver, claim_uid);
}

absl::Status SqlTransaction::PutPolicy(const PolicyRow& row) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  return Run("INSERT OR IGNORE INTO policies (version, json) VALUES (?, ?)", row.version, row.json);
}

absl::Status SqlTransaction::AppendAudit(const AuditRecord& record) {
  TRANCHE_RETURN_IF_ERROR(CheckWritable());
  TRANCHE_ASSIGN_OR_RETURN(
      Statement statement,
      database_.Prepare("INSERT INTO audit (" TRANCHE_AUDIT_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  statement.Bind(ToNanoseconds(record.at == WallTime{} ? std::chrono::system_clock::now() : record.at));
  for (const std::string* field : {&record.actor, &record.action, &record.tenant, &record.claim, &record.claim_uid, &record.request,
                                   &record.driver, &record.pool, &record.device, &record.share_id, &record.capacity, &record.policy_version,
                                   &record.allocation_version, &record.outcome, &record.message}) {
    statement.Bind(*field);
  }
  return statement.Run();
}

absl::StatusOr<std::vector<AuditRecord>> SqlTransaction::Audit(const AuditQuery& query) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement,
                           database_.Prepare("SELECT id, " TRANCHE_AUDIT_COLUMNS
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
