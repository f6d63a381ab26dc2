// What no host can be faster than on this machine: one empty call, one fsync, one commit.
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/client.h"

namespace tranche::bench {
namespace {

constexpr int kWarmUp = 50;
constexpr std::size_t kBlock = 4096;  // a WAL frame's page

absl::StatusOr<Measurement> MeasureEcho(const std::string& directory, int count) {
  const std::string socket = directory + "/echo.sock";
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<EchoServer> server, EchoServer::Start(socket));
  const Client client(socket);
  const auto call = [&](int) { return client.Echo(); };
  TRANCHE_RETURN_IF_ERROR(Repeat(kWarmUp, call).status());
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> samples, Repeat(count, call));
  return Series("rpc_echo", std::move(samples));
}

absl::Status AppendAndSync(int file, const std::string& block) {
  if (write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size()) || fdatasync(file) != 0) {
    return absl::UnavailableError(Cat("append and fdatasync: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Measurement> MeasureFsync(const std::string& directory, int count) {
  const std::string path = directory + "/fsync";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(Cat("open \"", path, "\": ", std::strerror(errno)));
  const std::string block(kBlock, 'x');
  absl::StatusOr<std::vector<Microseconds>> samples = Repeat(count, [&](int) { return AppendAndSync(file, block); });
  close(file);
  if (!samples.ok()) return samples.status();
  return Series("fsync", *std::move(samples));
}

absl::Status Execute(sqlite3* database, const char* sql) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return absl::UnavailableError(Cat("SQLite: ", sqlite3_errmsg(database), " in ", sql));
}

absl::StatusOr<std::vector<Microseconds>> CommitRows(sqlite3* database, int count) {
  TRANCHE_RETURN_IF_ERROR(Execute(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)"));
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(database, "INSERT INTO rows (text) VALUES ('0123456789abcdef0123456789abcdef')", -1, &raw, nullptr) != SQLITE_OK) {
    return absl::UnavailableError(Cat("SQLite: ", sqlite3_errmsg(database)));
  }
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
  return Repeat(count, [&](int) -> absl::Status {
    if (sqlite3_step(statement.get()) != SQLITE_DONE || sqlite3_reset(statement.get()) != SQLITE_OK) {
      return absl::UnavailableError(Cat("SQLite commit: ", sqlite3_errmsg(database)));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Measurement> MeasureCommit(const std::string& directory, int count) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open((directory + "/commit.db").c_str(), &raw);
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> database(raw, sqlite3_close);
  if (code != SQLITE_OK) return absl::UnavailableError(Cat("SQLite cannot make a database in \"", directory, "\": ", sqlite3_errstr(code)));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> samples, CommitRows(database.get(), count));
  return Series("sqlite_commit", std::move(samples));
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> MeasureFloors(const std::string& directory, const Sizes& sizes) {
  TRANCHE_ASSIGN_OR_RETURN(const Measurement echo, MeasureEcho(directory, sizes.floor_operations));
  TRANCHE_ASSIGN_OR_RETURN(const Measurement fsync, MeasureFsync(directory, sizes.floor_operations));
  TRANCHE_ASSIGN_OR_RETURN(const Measurement commit, MeasureCommit(directory, sizes.floor_operations));
  return std::vector<Measurement>{echo, fsync, commit};
}

}  // namespace tranche::bench
