#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>

#include <sys/stat.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "cdi/cdi.h"

namespace tranche::cdi {
namespace {

constexpr std::size_t kMaxSpecBytes = 4 << 20;
constexpr std::string_view kInfix = "_claim_";
constexpr std::string_view kSuffix = ".json";
constexpr auto kAbandonedAfter = std::chrono::minutes(1);

// Both become part of a path.
absl::Status CheckNames(const std::string& driver, const std::string& claim_uid) {
  const bool plain = std::all_of(claim_uid.begin(), claim_uid.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
  if (!claim_uid.empty() && claim_uid.size() <= 128 && plain && IsDnsSubdomain(driver)) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("CDI spec of driver \"", driver, "\" and claim \"", claim_uid, "\": the names cannot be part of a file name"));
}

// A temporary file is named ".<file>.<process>.<number>" (base/files). Its writer is gone when no such process lives here, or when the file is
// old: a writer in another process namespace renames within milliseconds.
bool IsAbandoned(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t before = path.rfind('.', last - 1);
  pid_t process = 0;
  const auto [end, error] = std::from_chars(path.data() + before + 1, path.data() + last, process);
  const bool named = error == std::errc() && end == path.data() + last && process > 0;
  if (named && kill(process, 0) != 0 && errno == ESRCH) return true;
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return false;
  return std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(info.st_mtime) > kAbandonedAfter;
}

}  // namespace

std::string Directory::FilePath(const std::string& driver, const std::string& claim_uid) const { return Cat(path_, "/", driver, kInfix, claim_uid, kSuffix); }

absl::Status Directory::Write(const std::string& driver, const std::string& claim_uid, const std::vector<Device>& devices) const {
  TRANCHE_RETURN_IF_ERROR(CheckNames(driver, claim_uid));
  Spec spec{Cat(driver, "/claim"), {}};
  for (const Device& device : devices) {
    if (device.edits != ContainerEdits{}) spec.devices.push_back(device);
  }
  if (spec.devices.empty()) return Remove(driver, claim_uid);
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, EncodeSpec(spec));
  const std::string file = FilePath(driver, claim_uid);
  absl::Status written = WriteFileAtomically(file, text, 0600, Durability::kVisible);
  if (!absl::IsNotFound(written)) return written;
  // A runtime's directory on tmpfs may be missing after a reboot; it is there for every other claim.
  TRANCHE_RETURN_IF_ERROR(MakeDirectories(path_, 0755));
  return WriteFileAtomically(file, text, 0600, Durability::kVisible);
}

absl::Status Directory::Remove(const std::string& driver, const std::string& claim_uid) const {
  TRANCHE_RETURN_IF_ERROR(CheckNames(driver, claim_uid));
  return RemoveFile(FilePath(driver, claim_uid));
}

absl::StatusOr<std::vector<std::string>> Directory::ListClaims(const std::string& driver) const {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(path_);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>{};
  TRANCHE_RETURN_IF_ERROR(names.status());
  const std::string prefix = Cat(driver, kInfix);
  const std::string temporary_prefix = Cat(".", prefix);
  std::vector<std::string> claims;
  for (const std::string& name : *names) {
    if (name.starts_with(temporary_prefix)) {
      const std::string path = Cat(path_, "/", name);
      if (IsAbandoned(path)) TRANCHE_RETURN_IF_ERROR(RemoveFile(path));
    }
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix) || name.size() <= prefix.size() + kSuffix.size()) continue;
    claims.push_back(name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size()));
  }
  return claims;
}

absl::StatusOr<Spec> Directory::Read(const std::string& driver, const std::string& claim_uid) const {
  TRANCHE_RETURN_IF_ERROR(CheckNames(driver, claim_uid));
  const std::string path = FilePath(driver, claim_uid);
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxSpecBytes));
  absl::StatusOr<Spec> spec = DecodeSpec(text);
  if (!spec.ok()) return Annotate(spec.status(), path);
  return spec;
}

}  // namespace tranche::cdi
