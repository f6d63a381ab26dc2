#include "bench/floor.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"

namespace tranche::bench {
namespace {

constexpr std::size_t kBlock = 4096;  // a WAL frame's page

absl::Status Execute(sqlite3* database, const char* sql) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return absl::UnavailableError(Cat("SQLite: ", sqlite3_errmsg(database), " in ", sql));
}

}  // namespace

struct Floor::Impl {
  ~Impl() {
    sqlite3_finalize(insert);
    sqlite3_close(database);
    if (file >= 0) close(file);
  }
  absl::Status OpenFile(const std::string& path);
  absl::Status OpenDatabase(const std::string& path);

  std::unique_ptr<EchoServer> server;
  std::unique_ptr<Client> client;
  const std::string block = std::string(kBlock, 'x');
  int file = -1;
  sqlite3* database = nullptr;
  sqlite3_stmt* insert = nullptr;
};

absl::Status Floor::Impl::OpenFile(const std::string& path) {
  file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(Cat("open \"", path, "\": ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status Floor::Impl::OpenDatabase(const std::string& path) {
  if (const int code = sqlite3_open(path.c_str(), &database); code != SQLITE_OK) {
    return absl::UnavailableError(Cat("SQLite cannot make \"", path, "\": ", sqlite3_errstr(code)));
  }
  TRANCHE_RETURN_IF_ERROR(Execute(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)"));
  if (sqlite3_prepare_v2(database, "INSERT INTO rows (text) VALUES ('0123456789abcdef0123456789abcdef')", -1, &insert, nullptr) != SQLITE_OK) {
    return absl::UnavailableError(Cat("SQLite: ", sqlite3_errmsg(database)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Floor>> Floor::Make(const std::string& directory) {
  auto impl = std::make_unique<Impl>();
  const std::string socket = directory + "/echo.sock";
  TRANCHE_ASSIGN_OR_RETURN(impl->server, EchoServer::Start(socket));
  impl->client = std::make_unique<Client>(socket);
  TRANCHE_RETURN_IF_ERROR(impl->OpenFile(directory + "/fsync"));
  TRANCHE_RETURN_IF_ERROR(impl->OpenDatabase(directory + "/commit.db"));
  return std::unique_ptr<Floor>(new Floor(std::move(impl)));
}

Floor::Floor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Floor::~Floor() = default;

absl::Status Floor::Echo() { return impl_->client->Echo(); }

absl::Status Floor::Sync() {
  const std::string& block = impl_->block;
  if (write(impl_->file, block.data(), block.size()) != static_cast<ssize_t>(block.size()) || fdatasync(impl_->file) != 0) {
    return absl::UnavailableError(Cat("append and fdatasync: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status Floor::Commit() {
  if (sqlite3_step(impl_->insert) != SQLITE_DONE || sqlite3_reset(impl_->insert) != SQLITE_OK) {
    return absl::UnavailableError(Cat("SQLite commit: ", sqlite3_errmsg(impl_->database)));
  }
  return absl::OkStatus();
}

}  // namespace tranche::bench
