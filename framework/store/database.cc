#include "store/database.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <absl/strings/numbers.h>
#include <sqlite3.h>

#include "base/status.h"
#include "base/text.h"

namespace tranche::store {
namespace {

constexpr auto kBusyLimit = std::chrono::seconds(10);

// SQLite's own handler sleeps up to 100 ms between tries; two hosts that overlap would feel that.
int OnBusy(void* start, int tries) {
  auto* since = static_cast<std::chrono::steady_clock::time_point*>(start);
  const auto now = std::chrono::steady_clock::now();
  if (tries == 0) *since = now;
  if (now - *since > kBusyLimit) return 0;
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(200 + 200 * tries, 5000)));
  return 1;
}

absl::Status ErrorOf(sqlite3* handle, int code) {
  const std::string text = Cat("store: ", handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code), " (SQLite ", code, ")");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return absl::UnavailableError(Cat(text, "; another process holds the store, retry"));
    case SQLITE_FULL: return absl::ResourceExhaustedError(Cat(text, "; free space on the file system of the store"));
    case SQLITE_IOERR: return absl::UnavailableError(Cat(text, "; check the disk that holds the store"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(Cat(text,
                                     "; the file is damaged or not a Tranche store, it was left as it is. Move it away to start with an empty "
                                     "store, or restore a copy"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return absl::PermissionDeniedError(text);
    case SQLITE_CANTOPEN: return absl::NotFoundError(Cat(text, "; check that the directory exists and may be written"));
    case SQLITE_CONSTRAINT: return absl::FailedPreconditionError(text);
    default: return absl::InternalError(text);
  }
}

}  // namespace

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::Note(int code) {
  if (error_ == SQLITE_OK) error_ = code;
}

Statement& Statement::Bind(std::string_view text) {
  const char* data = text.empty() ? "" : text.data();  // a null pointer would bind NULL
  Note(sqlite3_bind_text64(statement_, next_++, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::Bind(std::int64_t value) {
  Note(sqlite3_bind_int64(statement_, next_++, value));
  return *this;
}

Statement& Statement::BindNull() {
  Note(sqlite3_bind_null(statement_, next_++));
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  if (error_ != SQLITE_OK) return ErrorOf(database_, error_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ErrorOf(database_, code);
}

absl::Status Statement::Run() {
  while (true) {
    TRANCHE_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) return absl::OkStatus();
  }
}

std::string_view Statement::TextView(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::string Statement::Text(int column) const { return std::string(TextView(column)); }
std::int64_t Statement::Integer(int column) const { return sqlite3_column_int64(statement_, column); }
bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Access access) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      Append(uri, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      uri.push_back(c);
    }
  }
  if (access == Access::kImmutable) uri += "?immutable=1";
  const int mode = access == Access::kReadWrite ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(uri.c_str(), &handle, mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI, nullptr);
  if (code != SQLITE_OK) {
    const absl::Status error = Annotate(ErrorOf(handle, code), path);
    sqlite3_close(handle);
    return error;
  }
  sqlite3_extended_result_codes(handle, 1);
  auto database = std::unique_ptr<Database>(new Database(handle));
  static thread_local std::chrono::steady_clock::time_point busy_since;
  sqlite3_busy_handler(
      handle, [](void*, int tries) { return OnBusy(&busy_since, tries); }, nullptr);
  return database;
}

Database::~Database() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(handle_, code);
}

absl::StatusOr<Statement> Database::Prepare(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code = sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) {
      statements_.erase(sql);
      return ErrorOf(handle_, code);
    }
  }
  return Statement(handle_, statement);
}

absl::Status Database::Run(const char* sql) {
  TRANCHE_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  return statement.Run();
}

absl::StatusOr<std::string> Database::QueryText(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &raw, nullptr);
  if (code != SQLITE_OK) return ErrorOf(handle_, code);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owner(raw, sqlite3_finalize);
  Statement statement(handle_, raw);
  TRANCHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Text(0) : std::string();
}

absl::StatusOr<std::int64_t> Database::QueryInteger(const std::string& sql) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, QueryText(sql));
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return absl::InternalError(Cat("store: '", sql, "' gave '", text, "' instead of a number"));
  return value;
}

bool Database::InTransaction() const { return sqlite3_get_autocommit(handle_) == 0; }

}  // namespace tranche::store
