#include "kube/credentials.h"

#include <algorithm>
#include <cstdlib>

#include <absl/strings/ascii.h>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "kube/kubeconfig.h"
#include "telemetry/log.h"

namespace tranche::kube {

namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

absl::StatusOr<AccessSource> ServiceAccount(const std::string& directory) {
  const std::string host = Environment("KUBERNETES_SERVICE_HOST");
  const std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "not in a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set) and no kubeconfig was given; name a kubeconfig file");
  }
  AccessSource source;
  const bool bare_v6 = host.find(':') != std::string::npos && host.front() != '[';
  source.access.server = bare_v6 ? Cat("https://[", host, "]:", port) : Cat("https://", host, ":", port);
  source.ca_file = directory + "/ca.crt";
  source.token_file = directory + "/token";
  return source;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (token.empty()) return absl::InvalidArgumentError(Cat(path, ": the token file is empty"));
  const bool bad = std::any_of(token.begin(), token.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f; });
  if (bad) return absl::InvalidArgumentError(Cat(path, ": the token has spaces or control characters in it"));
  return token;
}

}  // namespace

bool Credentials::Stamp::operator==(const Stamp& other) const {
  return path == other.path && device == other.device && inode == other.inode && size == other.size && changed.tv_sec == other.changed.tv_sec &&
         changed.tv_nsec == other.changed.tv_nsec;
}

Credentials::Stamp Credentials::Look(const std::string& path) {
  Stamp stamp{.path = path};
  struct stat data {};
  if (::stat(path.c_str(), &data) != 0) return stamp;
  stamp.device = data.st_dev;
  stamp.inode = data.st_ino;
  stamp.size = data.st_size;
  stamp.changed = data.st_mtim;
  return stamp;
}

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(const ClientOptions& options) {
  std::unique_ptr<Credentials> credentials(new Credentials(options));
  const absl::Status read = credentials->ReadAll();
  if (!read.ok()) {
    // A pod without its token is no pod for us; a named file that cannot be read is a wrong option.
    return options.kubeconfig.empty() ? absl::FailedPreconditionError(read.message()) : absl::InvalidArgumentError(read.message());
  }
  return credentials;
}

absl::StatusOr<AccessSource> Credentials::ReadSource() const {
  if (options_.kubeconfig.empty()) return ServiceAccount(options_.service_account_directory);
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.kubeconfig, kMaxFileBytes));
  return ParseKubeconfig(text, options_.kubeconfig, options_.context);
}

absl::StatusOr<Access> Credentials::ReadFiles(const AccessSource& source) const {
  Access access = source.access;
  if (!source.ca_file.empty()) { TRANCHE_ASSIGN_OR_RETURN(access.ca_pem, ReadFile(source.ca_file, kMaxFileBytes)); }
  if (!source.certificate_file.empty()) { TRANCHE_ASSIGN_OR_RETURN(access.client_certificate_pem, ReadFile(source.certificate_file, kMaxFileBytes)); }
  if (!source.key_file.empty()) { TRANCHE_ASSIGN_OR_RETURN(access.client_key_pem, ReadFile(source.key_file, kMaxFileBytes)); }
  if (!source.token_file.empty()) { TRANCHE_ASSIGN_OR_RETURN(access.bearer_token, ReadToken(source.token_file)); }
  return access;
}

absl::Status Credentials::ReadAll() {
  // Stamps come before contents: what changes in between is read again next time.
  std::vector<Stamp> stamps;
  if (!options_.kubeconfig.empty()) stamps.push_back(Look(options_.kubeconfig));
  TRANCHE_ASSIGN_OR_RETURN(const AccessSource source, ReadSource());
  for (const std::string* file : {&source.ca_file, &source.certificate_file, &source.key_file, &source.token_file}) {
    if (!file->empty()) stamps.push_back(Look(*file));
  }
  TRANCHE_ASSIGN_OR_RETURN(Access access, ReadFiles(source));
  stamps_ = std::move(stamps);
  if (access_ == nullptr || *access_ != access) access_ = std::make_shared<const Access>(std::move(access));
  checked_ = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

bool Credentials::FilesChanged() const {
  return std::any_of(stamps_.begin(), stamps_.end(), [](const Stamp& stamp) { return !(Look(stamp.path) == stamp); });
}

void Credentials::ReadAgain() {
  checked_ = std::chrono::steady_clock::now();
  const absl::Status read = ReadAll();
  const std::string warning(read.message());
  if (!read.ok() && warning != last_warning_) LogWarning("API credentials changed but cannot be used; the old ones stay", {{"error", warning}});
  last_warning_ = warning;
}

std::shared_ptr<const Access> Credentials::Current() {
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() - checked_ < kCheckInterval) return access_;
  checked_ = std::chrono::steady_clock::now();
  if (FilesChanged()) ReadAgain();
  return access_;
}

std::shared_ptr<const Access> Credentials::Reload() {
  const std::lock_guard lock(mutex_);
  ReadAgain();
  return access_;
}

}  // namespace tranche::kube
