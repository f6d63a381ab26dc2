#include "store/store.h"

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"
#include "base/text.h"
#include "store/codec.h"
#include "store/database.h"
#include "store/rows.h"
#include "telemetry/log.h"

namespace tranche::store {
namespace {

constexpr std::size_t kLargestGroup = 64;
constexpr auto kEpochLife = std::chrono::hours(48);
constexpr auto kOpenLimit = std::chrono::seconds(10);

absl::Status NotOurs(const std::string& path, std::string_view why) {
  return absl::DataLossError(Cat(path, ": ", why, "; the file was left as it is. Move it away to start with an empty store, or restore a copy"));
}

// -1: absent.
std::int64_t SizeOf(const std::string& path) {
  struct stat information {};
  return ::stat(path.c_str(), &information) == 0 ? static_cast<std::int64_t>(information.st_size) : -1;
}

absl::Status CreateWhenAbsent(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) {
    ::close(fd);
    return absl::OkStatus();
  }
  if (errno == EEXIST) return absl::OkStatus();
  const int error = errno;
  return absl::ErrnoToStatus(error, Cat(path, ": the store cannot be created"));
}

// What SQLite itself would take for an empty file and overwrite.
absl::Status CheckFile(const std::string& path) {
  // In this order: another host that creates the store just now writes the file before its log.
  const bool has_log = SizeOf(path + "-wal") > 0;
  const std::int64_t size = SizeOf(path);
  if (size == 0 && has_log) return NotOurs(path, "the file is empty but its write-ahead log is not: it was truncated");
  if (size <= 0) return absl::OkStatus();
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::string head(kMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return absl::PermissionDeniedError(Cat(path, ": the store cannot be read: ", std::strerror(errno)));
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (head != kMagic) return NotOurs(path, "this is not an SQLite file");
  return absl::OkStatus();
}

struct Identity {
  std::int64_t application_id = 0, schema_version = 0, objects = 0;
  bool empty() const { return application_id == 0 && schema_version == 0 && objects == 0; }
};

// Inside a transaction: all three are of one moment, also while another host creates the store.
absl::StatusOr<Identity> IdentifyInside(Database& database) {
  Identity identity;
  TRANCHE_ASSIGN_OR_RETURN(identity.objects, database.QueryInteger("SELECT count(*) FROM sqlite_master"));
  TRANCHE_ASSIGN_OR_RETURN(identity.application_id, database.QueryInteger("PRAGMA application_id"));
  TRANCHE_ASSIGN_OR_RETURN(identity.schema_version, database.QueryInteger("PRAGMA user_version"));
  return identity;
}

absl::StatusOr<Identity> Identify(Database& database) {
  TRANCHE_RETURN_IF_ERROR(database.Run("BEGIN"));
  absl::StatusOr<Identity> identity = IdentifyInside(database);
  if (database.InTransaction()) database.Run("ROLLBACK").IgnoreError();
  return identity;
}

absl::Status CheckIdentity(const std::string& path, const Identity& identity) {
  if (identity.application_id != kApplicationId) return NotOurs(path, "this SQLite file belongs to another program");
  if (identity.schema_version > 0 && identity.schema_version <= kSchemaVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat(path, ": the store has schema ", identity.schema_version, ", this program knows ", kSchemaVersion,
                                           "; run a version that is at least as new as the one that wrote it"));
}

// SQLite answers BUSY at once, without its busy handler, when two processes switch to WAL together.
absl::Status UseWriteAheadLog(Database& database) {
  const Deadline deadline = DeadlineIn(kOpenLimit);
  while (true) {
    const absl::StatusOr<std::string> mode = database.QueryText("PRAGMA journal_mode = WAL");
    if (mode.ok() && *mode == "wal") return absl::OkStatus();
    if (mode.ok()) return absl::FailedPreconditionError(Cat("store: the file system does not allow a write-ahead log (journal mode ", *mode, ")"));
    if (mode.status().code() != absl::StatusCode::kUnavailable || Passed(deadline)) return mode.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

absl::Status InTransaction(Database& database, const std::function<absl::Status()>& change) {
  TRANCHE_RETURN_IF_ERROR(database.Run("BEGIN IMMEDIATE"));
  absl::Status status = change();
  if (status.ok()) status = database.Run("COMMIT");
  if (!status.ok() && database.InTransaction()) database.Run("ROLLBACK").IgnoreError();
  return status;
}

absl::Status CreateSchema(Database& database) {
  return InTransaction(database, [&]() -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const Identity now, IdentifyInside(database));  // another host may have been faster
    if (!now.empty()) return absl::OkStatus();
    return database.Execute(Cat(kSchema, "PRAGMA application_id = ", kApplicationId, "; PRAGMA user_version = ", kSchemaVersion, ";"));
  });
}

// To the schema of this program, and with the counts that the shares give: a count that is wrong would let too much be granted.
absl::Status BringUpToDate(const std::string& path, Database& database) {
  return InTransaction(database, [&]() -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const Identity now, IdentifyInside(database));
    if (now.schema_version == 1) {
      TRANCHE_RETURN_IF_ERROR(database.Execute(Cat(kUpgradeFrom1, "PRAGMA user_version = ", kSchemaVersion, ";", kRecountHoldings)));
    }
    TRANCHE_RETURN_IF_ERROR(database.Execute(kAddedSince2));
    TRANCHE_ASSIGN_OR_RETURN(const std::int64_t wrong, database.QueryInteger(kWrongHoldings));
    if (wrong == 0) return absl::OkStatus();
    LogError("the store's counts of shares did not match its shares; they were counted anew", {{"store", path}, {"rows", std::to_string(wrong)}});
    return database.Execute(kRecountHoldings);
  });
}

absl::Status CheckPages(const std::string& path, Database& database) {
  const absl::StatusOr<std::string> verdict = database.QueryText("PRAGMA quick_check(1)");
  if (!verdict.ok()) return Annotate(verdict.status(), path);
  return *verdict == "ok" ? absl::OkStatus() : NotOurs(path, Cat("the file is damaged: ", *verdict));
}

absl::Status ForgetOldEpochs(Database& database) {
  const std::int64_t before = ToNanoseconds(std::chrono::system_clock::now() - kEpochLife);
  return database.Execute(Cat("DELETE FROM epochs WHERE used_at < ", before,
                              " AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.driver = epochs.driver"
                              " AND claims.claim_uid = epochs.claim_uid)"));
}

// One IMMEDIATE transaction for several changes, a savepoint each. The state of every change is what Write returns for it.
struct Pending {
  const std::function<absl::Status(Transaction&)>* change;
  absl::Status status;
  bool done = false, leads = false;
  std::condition_variable turn;
};

absl::Status RunOne(Database& database, Pending& pending) {
  TRANCHE_RETURN_IF_ERROR(database.Run("SAVEPOINT one"));
  SqlTransaction transaction(database, SqlTransaction::Access::kWrite);
  absl::Status status = (*pending.change)(transaction);
  if (!database.InTransaction()) return status.ok() ? absl::AbortedError("store: SQLite rolled the transaction back") : status;
  if (!status.ok()) TRANCHE_RETURN_IF_ERROR(database.Run("ROLLBACK TO one"));
  TRANCHE_RETURN_IF_ERROR(database.Run("RELEASE one"));
  return status;
}

absl::Status Commit(Database& database) {
  TRANCHE_RETURN_IF_ERROR(TRANCHE_FAULT_STATUS("store.before_commit"));
  TRANCHE_RETURN_IF_ERROR(database.Run("COMMIT"));
  TRANCHE_FAULT_POINT("store.after_commit");
  return absl::OkStatus();
}

// A lone change needs no savepoint: its transaction is rolled back with it.
absl::Status RunAlone(Database& database, Pending& pending) {
  SqlTransaction transaction(database, SqlTransaction::Access::kWrite);
  pending.status = (*pending.change)(transaction);
  if (!database.InTransaction()) return pending.status.ok() ? absl::AbortedError("store: SQLite rolled the transaction back") : pending.status;
  return pending.status.ok() ? Commit(database) : absl::OkStatus();
}

absl::Status RunChanges(Database& database, const std::vector<Pending*>& group) {
  if (group.size() == 1) return RunAlone(database, *group.front());
  bool changed = false;
  for (Pending* pending : group) {
    pending->status = RunOne(database, *pending);
    if (!database.InTransaction()) return pending->status.ok() ? absl::AbortedError("store: the transaction is gone") : pending->status;
    changed = changed || pending->status.ok();
  }
  return changed ? Commit(database) : absl::OkStatus();
}

void RunGroup(Database& database, const std::vector<Pending*>& group) {
  absl::Status whole = database.Run("BEGIN IMMEDIATE");
  if (whole.ok()) whole = RunChanges(database, group);
  if (database.InTransaction()) database.Run("ROLLBACK").IgnoreError();
  if (whole.ok()) return;
  for (Pending* pending : group) {
    if (pending->status.ok()) pending->status = Annotate(whole, "nothing was stored");
  }
}

class SqliteStore final : public Store {
 public:
  // `writer` is null for a read-only store.
  SqliteStore(std::unique_ptr<Database> writer, std::unique_ptr<Database> reader) : writer_(std::move(writer)), reader_(std::move(reader)) {}
  ~SqliteStore() override { reader_.reset(); }  // the writer is last, so that it folds the log back into the file

  // The first caller leads: it commits at once, without a change of thread. Those that arrive while it waits for the disk form the next group,
  // which the first of them leads.
  absl::Status Write(const std::function<absl::Status(Transaction&)>& change) override {
    if (writer_ == nullptr) return absl::FailedPreconditionError("store: opened read-only, nothing can be written");
    Pending mine{&change, {}, false, false, {}};
    std::unique_lock lock(mutex_);
    queue_.push_back(&mine);
    if (leading_) {
      mine.turn.wait(lock, [&] { return mine.done || mine.leads; });
      if (mine.done) return mine.status;
    }
    leading_ = true;
    std::vector<Pending*> group;
    while (!queue_.empty() && group.size() < kLargestGroup) {
      group.push_back(queue_.front());
      queue_.pop_front();
    }
    lock.unlock();
    RunGroup(*writer_, group);
    lock.lock();
    for (Pending* pending : group) {
      pending->done = true;
      if (pending != &mine) pending->turn.notify_one();
    }
    leading_ = !queue_.empty();
    if (leading_) {
      queue_.front()->leads = true;
      queue_.front()->turn.notify_one();
    }
    return mine.status;
  }

  absl::Status LengthenLog() override {
    const absl::Status undone = Write([](Transaction& transaction) { return static_cast<SqlTransaction&>(transaction).SpillZeros(); });
    return absl::IsCancelled(undone) ? absl::OkStatus() : undone;
  }

  absl::Status Read(const std::function<absl::Status(Transaction&)>& look) override {
    return WithReader([&](SqlTransaction& transaction) { return look(transaction); });
  }

  absl::StatusOr<std::vector<AuditRecord>> Audit(const AuditQuery& query) override {
    std::vector<AuditRecord> records;
    TRANCHE_RETURN_IF_ERROR(WithReader([&](SqlTransaction& transaction) -> absl::Status {
      TRANCHE_ASSIGN_OR_RETURN(records, transaction.Audit(query));
      return absl::OkStatus();
    }));
    return records;
  }

 private:
  absl::Status WithReader(const std::function<absl::Status(SqlTransaction&)>& look) {
    const std::lock_guard lock(read_mutex_);
    TRANCHE_RETURN_IF_ERROR(reader_->Run("BEGIN"));
    SqlTransaction transaction(*reader_, SqlTransaction::Access::kRead);
    const absl::Status status = look(transaction);
    if (reader_->InTransaction()) reader_->Run("ROLLBACK").IgnoreError();
    return status;
  }

  std::unique_ptr<Database> writer_;  // used by the leader only
  std::unique_ptr<Database> reader_;
  std::mutex read_mutex_;
  std::mutex mutex_;  // the three below
  std::deque<Pending*> queue_;
  bool leading_ = false;
};

absl::StatusOr<std::unique_ptr<Database>> OpenWriter(const std::string& path) {
  TRANCHE_RETURN_IF_ERROR(CreateWhenAbsent(path));
  TRANCHE_RETURN_IF_ERROR(CheckFile(path));
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(path, Database::Access::kReadWrite));
  TRANCHE_ASSIGN_OR_RETURN(Identity identity, Identify(*database));
  if (identity.empty()) {
    TRANCHE_RETURN_IF_ERROR(UseWriteAheadLog(*database));
    TRANCHE_RETURN_IF_ERROR(CreateSchema(*database));
    TRANCHE_ASSIGN_OR_RETURN(identity, Identify(*database));
  }
  TRANCHE_RETURN_IF_ERROR(CheckIdentity(path, identity));
  TRANCHE_RETURN_IF_ERROR(CheckPages(path, *database));
  TRANCHE_RETURN_IF_ERROR(UseWriteAheadLog(*database));
  // FULL: a commit is on disk before it is answered. recursive_triggers: REPLACE must not slip past the audit triggers.
  TRANCHE_RETURN_IF_ERROR(database->Execute("PRAGMA synchronous = FULL; PRAGMA recursive_triggers = ON; PRAGMA trusted_schema = OFF"));
  TRANCHE_RETURN_IF_ERROR(Annotate(BringUpToDate(path, *database), path));
  TRANCHE_RETURN_IF_ERROR(ForgetOldEpochs(*database));
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> OpenReaderAs(const std::string& path, Database::Access access) {
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(path, access));
  TRANCHE_ASSIGN_OR_RETURN(const Identity identity, Identify(*database));
  TRANCHE_RETURN_IF_ERROR(CheckIdentity(path, identity));
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> OpenReader(const std::string& path) {
  if (SizeOf(path) < 0) return absl::NotFoundError(Cat(path, ": there is no store; has a host run on this node?"));
  TRANCHE_RETURN_IF_ERROR(CheckFile(path));
  if (SizeOf(path) == 0) return NotOurs(path, "the file is empty: it was truncated, or no host has come so far as to make its tables");
  // Without a log nobody has the file open and it is complete by itself: nothing needs to be created next to it.
  const Database::Access access = SizeOf(path + "-wal") < 0 ? Database::Access::kImmutable : Database::Access::kReadOnly;
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, OpenReaderAs(path, access));
  TRANCHE_RETURN_IF_ERROR(CheckPages(path, *database));  // a damaged page must not read as fewer rows
  return database;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path, OpenMode mode) {
  std::unique_ptr<Database> writer;
  if (mode == OpenMode::kReadWrite) {
    absl::StatusOr<std::unique_ptr<Database>> opened = OpenWriter(path);
    if (!opened.ok()) return Annotate(opened.status(), Cat("open the store ", path));
    writer = *std::move(opened);
  }
  absl::StatusOr<std::unique_ptr<Database>> reader = mode == OpenMode::kReadWrite ? OpenReaderAs(path, Database::Access::kReadOnly) : OpenReader(path);
  if (!reader.ok()) return Annotate(reader.status(), Cat("open the store ", path));
  return std::make_unique<SqliteStore>(std::move(writer), *std::move(reader));
}

}  // namespace tranche::store
