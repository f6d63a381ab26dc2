#include "ctl/target.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include <boost/json.hpp>

#include "admin/client.h"
#include "admin/views.h"
#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "store/store.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr char kSystemSocket[] = "/run/tranche/admin.sock";
constexpr char kSystemDatabase[] = "/var/lib/tranche/tranche.db";
constexpr std::chrono::seconds kCallDeadline{60};

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).lexically_normal();
}

bool Answers(const std::string& socket) { return admin::Call(socket, "status", json::object(), DeadlineIn(std::chrono::seconds(5))).ok(); }

absl::StatusOr<json::value> ReadStore(const Target& target, std::string_view method, const json::value& params) {
  if (::access(target.Database().c_str(), F_OK) != 0) return absl::UnavailableError(Cat("there is no state in ", target.Database()));
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<store::Store> store, store::Store::Open(target.Database(), store::OpenMode::kReadOnly));
  if (method == "audit") return admin::ViewAudit(*store, params);
  TRANCHE_ASSIGN_OR_RETURN(const admin::ClaimFilter filter, admin::DecodeClaimFilter(params));
  return method == "claims" ? admin::ViewClaims(*store, filter) : admin::ViewShares(*store, filter);
}

}  // namespace

std::string Target::Socket() const {
  if (!socket.empty()) return socket;
  if (directory.empty()) return kSystemSocket;
  const std::string run = Absolute(directory) + "/run/";
  const std::string usual = run + "admin.sock";
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(run);
  if (!names.ok()) return usual;
  // Overlapping hosts have a socket each; any of them knows the whole state. A killed one leaves a dead socket.
  std::string answering;
  for (const std::string& name : *names) {
    if (!name.starts_with("admin") || !name.ends_with(".sock") || !Answers(run + name)) continue;
    if (run + name == usual) return usual;
    answering = run + name;
  }
  return answering.empty() ? usual : answering;
}

std::string Target::Database() const { return directory.empty() ? kSystemDatabase : Absolute(directory) + "/state/tranche.db"; }

absl::StatusOr<local::Directory> Target::Directory() const {
  if (directory.empty()) return absl::InvalidArgumentError("this command works on a local directory; name it with --dir DIR");
  return local::Directory::Open(Absolute(directory));
}

absl::StatusOr<json::value> Ask(const Target& target, std::string_view method, const json::value& params) {
  return admin::Call(target.Socket(), method, params, DeadlineIn(kCallDeadline));
}

absl::StatusOr<json::value> AskOrRead(const Target& target, std::string_view method, const json::value& params) {
  absl::StatusOr<json::value> answer = Ask(target, method, params);
  if (!absl::IsUnavailable(answer.status())) return answer;
  absl::StatusOr<json::value> read = ReadStore(target, method, params);
  if (!read.ok()) return Annotate(answer.status(), View(read.status().message()));
  std::cerr << "tranchectl: no host answers; read from " << target.Database() << "\n";
  return read;
}

}  // namespace tranche::ctl
