// One SQLite connection with its prepared statements. Internal to this room. Not thread-safe: the owner serialises.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

struct sqlite3;
struct sqlite3_stmt;

namespace tranche::store {

// One use of a cached statement; reset when it goes out of scope. Binding errors come out of Step.
class Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement(Statement&& other) noexcept : database_(other.database_), statement_(other.statement_), next_(other.next_), error_(other.error_) {
    other.statement_ = nullptr;
  }
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Binds the next parameter, from the left.
  Statement& Bind(std::string_view text);
  Statement& Bind(std::int64_t value);
  Statement& BindNull();
  // True: a row is there. False: done.
  absl::StatusOr<bool> Step();
  absl::Status Run();  // for statements without rows

  std::string Text(int column) const;
  std::string_view TextView(int column) const;  // until the next Step
  std::int64_t Integer(int column) const;
  bool IsNull(int column) const;

 private:
  void Note(int code);
  sqlite3* database_;
  sqlite3_stmt* statement_;
  int next_ = 1;
  int error_ = 0;
};

class Database {
 public:
  enum class Access { kReadWrite, kReadOnly, kImmutable };
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Access access);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  absl::Status Execute(const std::string& sql);        // any number of statements, not cached
  absl::StatusOr<Statement> Prepare(const char* sql);  // cached by the text's address: pass literals
  absl::Status Run(const char* sql);                   // one statement without rows, cached like that
  absl::StatusOr<std::int64_t> QueryInteger(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);
  bool InTransaction() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::map<const char*, sqlite3_stmt*> statements_;
};

}  // namespace tranche::store
