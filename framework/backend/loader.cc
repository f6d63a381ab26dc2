#include "backend/loader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <boost/dll/library_info.hpp>
#include <openssl/evp.h>

#include "base/files.h"
#include "base/status.h"
#include "runner/library.h"

namespace tranche::backend {
namespace {

constexpr std::string_view kStageUrl = "tranche.dev/backend-stage";
constexpr std::string_view kManifestSuffix = ".backend.json";
constexpr std::size_t kMaxNameBytes = 63;

#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr std::string_view kArchitecture = "aarch64";
#else
constexpr std::string_view kArchitecture = "unknown";
#endif

absl::Status Refuse(Stage stage, absl::StatusCode code, std::string_view name, std::string_view file, std::string_view why) {
  absl::Status status(
      code, absl::StrCat("backend ", std::string(name), " refused at stage ", std::string(StageName(stage)), ": ", std::string(file), ": ", std::string(why)));
  status.SetPayload(std::string(kStageUrl), absl::Cord(std::string(StageName(stage))));
  return status;
}
absl::Status Refuse(Stage stage, std::string_view name, std::string_view file, std::string_view why) {
  return Refuse(stage, absl::StatusCode::kFailedPrecondition, name, file, why);
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// "" when the file may be trusted as much as root's or our own word.
std::string WhyUntrusted(const struct stat& file, std::uint64_t max_bytes) {
  if (!S_ISREG(file.st_mode)) return "is not a regular file";
  if (file.st_uid != 0 && file.st_uid != ::geteuid()) {
    return absl::StrCat("belongs to user ", file.st_uid, "; only root's and the host's own files are loaded (chown it)");
  }
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "is writable by group or others; run chmod go-w on it";
  if (static_cast<std::uint64_t>(file.st_size) > max_bytes) return absl::StrCat("is larger than ", max_bytes, " bytes");
  return "";
}

absl::StatusOr<std::string> Digest(int fd) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return absl::InternalError("cannot start SHA-256");
  std::vector<unsigned char> buffer(256 * 1024);
  off_t offset = 0;
  while (true) {
    const ssize_t count = ::pread(fd, buffer.data(), buffer.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(absl::StrCat("cannot be read: ", std::strerror(errno)));
    if (count == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(count));
    offset += count;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context.get(), bytes.data(), &size) != 1) return absl::InternalError("cannot finish SHA-256");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 0xf];
  }
  return text;
}

bool IsBackendName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// What the manifest and file stages found out about one name.
struct Candidate {
  std::string name, manifest_path, library_path;
  Manifest manifest;
  struct stat identity {};
};

absl::Status ReadManifest(const std::string& directory, Candidate& candidate) {
  const auto refuse = [&](std::string_view why) { return Refuse(Stage::kManifest, candidate.name, candidate.manifest_path, why); };
  if (!IsBackendName(candidate.name)) return refuse("the name must match [a-z0-9_]{1,63}");
  struct stat place {};
  if (::stat(directory.c_str(), &place) != 0 || !S_ISDIR(place.st_mode)) {
    return Refuse(Stage::kManifest, absl::StatusCode::kNotFound, candidate.name, directory, "the backend directory does not exist");
  }
  if ((place.st_mode & S_IWOTH) != 0) return refuse("its directory is writable by everyone; run chmod o-w on the directory");
  {
    const OpenFile file(candidate.manifest_path);
    if (file.fd() < 0) {
      const auto code = errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
      return Refuse(Stage::kManifest, code, candidate.name, candidate.manifest_path,
                    absl::StrCat("cannot be opened: ", std::strerror(errno), "; every library needs its manifest beside it"));
    }
    struct stat status {};
    if (::fstat(file.fd(), &status) != 0) return refuse(absl::StrCat("cannot be examined: ", std::strerror(errno)));
    if (const std::string why = WhyUntrusted(status, kMaxManifestBytes); !why.empty()) return refuse(why);
  }
  absl::StatusOr<std::string> text = ReadFile(candidate.manifest_path, kMaxManifestBytes);
  if (!text.ok()) return refuse(std::string(text.status().message()));
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) return refuse(absl::StrCat("is not a valid manifest: ", std::string(manifest.status().message())));
  candidate.manifest = *std::move(manifest);
  if (candidate.manifest.name != candidate.name) return refuse(absl::StrCat("is the manifest of ", candidate.manifest.name));
  if (candidate.manifest.abi_major != TRANCHE_ABI_MAJOR) {
    return refuse(absl::StrCat("needs ABI ", candidate.manifest.abi_major, ".", candidate.manifest.abi_minor, ", this host serves ", TRANCHE_ABI_MAJOR,
                               ".x; install the build for it"));
  }
  if (candidate.manifest.arch != kArchitecture) {
    return refuse(absl::StrCat("is for ", candidate.manifest.arch, ", this host is ", std::string(kArchitecture)));
  }
  candidate.library_path = absl::StrCat(directory, "/", candidate.manifest.library);
  return absl::OkStatus();
}

absl::Status CheckFile(const std::string& directory, Candidate& candidate) {
  const auto refuse = [&](std::string_view why) { return Refuse(Stage::kFile, candidate.name, candidate.library_path, why); };
  const OpenFile file(candidate.library_path);
  if (file.fd() < 0) {
    const auto code = errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
    return Refuse(Stage::kFile, code, candidate.name, candidate.library_path, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  if (::fstat(file.fd(), &candidate.identity) != 0) return refuse(absl::StrCat("cannot be examined: ", std::strerror(errno)));
  if (const std::string why = WhyUntrusted(candidate.identity, kMaxLibraryBytes); !why.empty()) return refuse(why);

  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(candidate.library_path, error);
  if (error) return refuse(absl::StrCat("cannot be resolved: ", error.message()));
  const std::filesystem::path home = std::filesystem::canonical(directory, error);
  if (error || real.parent_path() != home) return refuse(absl::StrCat("leads outside its directory, to ", real.string()));
  candidate.library_path = real.string();

  // dlopen of the running program would silently give the program itself.
  struct stat self {};
  if (::stat("/proc/self/exe", &self) == 0 && self.st_dev == candidate.identity.st_dev && self.st_ino == candidate.identity.st_ino) {
    return refuse("is the running program");
  }
  absl::StatusOr<std::string> digest = Digest(file.fd());
  if (!digest.ok()) return refuse(std::string(digest.status().message()));
  if (*digest != candidate.manifest.sha256) {
    return refuse(absl::StrCat("has SHA-256 ", *digest, ", its manifest states ", candidate.manifest.sha256, "; install library and manifest of one build"));
  }
  return absl::OkStatus();
}

absl::Status CheckSymbols(const Candidate& candidate) {
  const auto refuse = [&](std::string_view why) { return Refuse(Stage::kSymbols, candidate.name, candidate.library_path, why); };
  std::vector<std::string> symbols;
  try {
    boost::dll::library_info info(candidate.library_path);
    symbols = info.symbols();
  } catch (const std::exception&) {  // its text says nothing useful
    return refuse("is not a readable ELF library");
  } catch (...) { return refuse("is not a readable ELF library"); }
  if (std::find(symbols.begin(), symbols.end(), TRANCHE_BACKEND_ENTRY) != symbols.end()) return absl::OkStatus();
  for (const std::string& symbol : symbols) {
    if (symbol.starts_with("tranche_backend_v")) {
      return refuse(absl::StrCat("exports ", symbol.substr(0, 64), " but not ", TRANCHE_BACKEND_ENTRY, "; it is for another major version of the ABI"));
    }
  }
  return refuse(absl::StrCat("does not export ", TRANCHE_BACKEND_ENTRY, "; use TRANCHE_BACKEND() or check the version script"));
}

std::optional<Stage> StageNamed(std::string_view name) {
  for (const Stage stage : {Stage::kManifest, Stage::kFile, Stage::kSymbols, Stage::kDlopen, Stage::kEntry, Stage::kTable}) {
    if (StageName(stage) == name) return stage;
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<LoadedLibrary>> OpenCandidate(const Candidate& candidate, Inspection& inspection) {
  TRANCHE_RETURN_IF_ERROR(CheckSymbols(candidate));
  inspection.passed.emplace_back(Stage::kSymbols, absl::StrCat("exports ", TRANCHE_BACKEND_ENTRY));
  // The one place that runs the library's code for the first time in this process.
  const runner::OpenedLibrary opened = runner::OpenLibrary(candidate.library_path, candidate.name);
  const std::optional<Stage> failed = StageNamed(opened.stage);
  if (failed == Stage::kDlopen) return Refuse(*failed, candidate.name, candidate.library_path, opened.problem);
  inspection.passed.emplace_back(Stage::kDlopen, "opened with RTLD_NOW, RTLD_LOCAL, RTLD_NODELETE");
  if (failed == Stage::kEntry) return Refuse(*failed, candidate.name, candidate.library_path, opened.problem);
  inspection.passed.emplace_back(Stage::kEntry, "accepts this host");
  if (failed.has_value()) return Refuse(*failed, candidate.name, candidate.library_path, opened.problem);
  auto library = std::make_shared<LoadedLibrary>();
  library->manifest = candidate.manifest;
  library->path = candidate.library_path;
  library->version = opened.version;
  library->abi_minor = opened.abi_minor;
  library->table = opened.api;
  inspection.passed.emplace_back(
      Stage::kTable, absl::StrCat("ABI ", TRANCHE_ABI_MAJOR, ".", opened.abi_minor, ", ", opened.table_bytes, " bytes, version ", library->version));
  return library;
}

// Manifest and file stages: nothing of the library has run afterwards.
absl::StatusOr<Candidate> FindCandidate(const std::string& directory, const std::string& name, Inspection& inspection) {
  Candidate candidate;
  candidate.name = name;
  candidate.manifest_path = absl::StrCat(directory, "/", name, std::string(kManifestSuffix));
  TRANCHE_RETURN_IF_ERROR(ReadManifest(directory, candidate));
  inspection.manifest = candidate.manifest;
  inspection.passed.emplace_back(Stage::kManifest, absl::StrCat("name ", candidate.manifest.name, ", ABI ", candidate.manifest.abi_major, ".",
                                                                candidate.manifest.abi_minor, ", ", candidate.manifest.arch));
  TRANCHE_RETURN_IF_ERROR(CheckFile(directory, candidate));
  inspection.passed.emplace_back(Stage::kFile, absl::StrCat("SHA-256 ", candidate.manifest.sha256));
  return candidate;
}

std::vector<std::string> ProvidedFunctions(const tranche_backend_api& table) {
  std::vector<std::string> names = {"create", "destroy", "discover", "prepare", "unprepare", "list_prepared"};
  if (table.verify != nullptr) names.emplace_back("verify");
  if (table.check_health != nullptr) names.emplace_back("check_health");
  if (table.recover != nullptr) names.emplace_back("recover");
  if (table.release_handles != nullptr) names.emplace_back("release_handles");
  if (table.self_test != nullptr) names.emplace_back("self_test");
  if (table.sweep != nullptr) names.emplace_back("sweep");
  return names;
}

}  // namespace

std::string_view StageName(Stage stage) {
  switch (stage) {
    case Stage::kManifest: return "manifest";
    case Stage::kFile: return "file";
    case Stage::kSymbols: return "symbols";
    case Stage::kDlopen: return "dlopen";
    case Stage::kEntry: return "entry";
    case Stage::kTable: return "table";
  }
  return "unknown";
}

std::optional<Stage> StageOf(const absl::Status& status) {
  const auto payload = status.GetPayload(std::string(kStageUrl));
  if (!payload.has_value()) return std::nullopt;
  return StageNamed(std::string(*payload));
}

absl::StatusOr<tranche_backend_api> NormaliseTable(const tranche_backend_api* table, std::string_view expected_name) {
  runner::Table normalised = runner::NormaliseTable(table, expected_name);
  if (!normalised.problem.empty()) return absl::InvalidArgumentError(normalised.problem);
  return normalised.api;
}

absl::Status RefusedByRunner(const CheckedLibrary& library, std::string_view stage, std::string_view why) {
  if (const std::optional<Stage> known = StageNamed(stage); known.has_value()) return Refuse(*known, library.manifest.name, library.path, why);
  return absl::FailedPreconditionError(absl::StrCat("backend ", library.manifest.name, ": its process could not be prepared: ", std::string(why)));
}

Loader::Loader(std::string directory) : directory_(std::move(directory)) {}

absl::StatusOr<std::shared_ptr<const LoadedLibrary>> Loader::Load(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = libraries_.find(name); found != libraries_.end()) return found->second;
  Inspection inspection;
  TRANCHE_ASSIGN_OR_RETURN(const Candidate candidate, FindCandidate(directory_, name, inspection));
  const std::pair<dev_t, ino_t> identity{candidate.identity.st_dev, candidate.identity.st_ino};
  if (const auto found = files_.find(identity); found != files_.end()) {
    return Refuse(Stage::kFile, absl::StatusCode::kAlreadyExists, name, candidate.library_path,
                  absl::StrCat("is the same file as backend ", found->second, "; remove one of the two manifests"));
  }
  TRANCHE_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedLibrary> library, OpenCandidate(candidate, inspection));
  libraries_.emplace(name, library);
  files_.emplace(identity, name);
  return library;
}

absl::StatusOr<CheckedLibrary> Loader::Check(const std::string& name) const {
  Inspection inspection;
  TRANCHE_ASSIGN_OR_RETURN(const Candidate candidate, FindCandidate(directory_, name, inspection));
  TRANCHE_RETURN_IF_ERROR(CheckSymbols(candidate));
  return CheckedLibrary{.manifest = candidate.manifest, .path = candidate.library_path};
}

absl::StatusOr<std::vector<std::string>> Loader::List() const {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListDirectory(directory_));
  std::vector<std::string> names;
  for (const std::string& file : files) {
    if (!file.ends_with(kManifestSuffix) || file.starts_with(".")) continue;
    names.push_back(file.substr(0, file.size() - kManifestSuffix.size()));
  }
  return names;
}

Inspection Inspect(const std::string& path, InspectDepth depth) {
  Inspection inspection;
  const std::filesystem::path file(path);
  std::string directory = file.parent_path().string();
  if (directory.empty()) directory = ".";
  std::string name = file.filename().string();
  if (name.ends_with(kManifestSuffix)) {
    name.resize(name.size() - kManifestSuffix.size());
  } else if (name.ends_with(".so")) {
    name.resize(name.size() - 3);
  }
  absl::StatusOr<Candidate> candidate = FindCandidate(directory, name, inspection);
  if (!candidate.ok()) {
    inspection.status = candidate.status();
    return inspection;
  }
  if (depth == InspectDepth::kFile) {
    inspection.status = CheckSymbols(*candidate);
    if (inspection.status.ok()) inspection.passed.emplace_back(Stage::kSymbols, absl::StrCat("exports ", TRANCHE_BACKEND_ENTRY));
    return inspection;
  }
  absl::StatusOr<std::shared_ptr<LoadedLibrary>> library = OpenCandidate(*candidate, inspection);
  inspection.status = library.status();
  if (!library.ok()) return inspection;
  inspection.library = *library;
  inspection.functions = ProvidedFunctions((*library)->table);
  return inspection;
}

}  // namespace tranche::backend
