// From a file name to a table of functions that may be called. Each step has its own reason to refuse; no step trusts the one before:
//
//   manifest  NAME.backend.json beside the library: present, schema, name, ABI, architecture, library inside the directory
//   file      regular, owned by root or us, not writable by others, not too large, the digest that the manifest states
//   symbols   exports the entry of a major that this host serves (read from the file; nothing of it has run yet)
//   dlopen    RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE: a library is never unloaded
//   entry     the library accepts this host
//   table     magic, major, size, required functions, name, flags; then copied into this host's own shape
//
// A message names the backend, the stage, the file and the remedy. One backend's refusal never affects another's load.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <tranche/backend.h>

#include "backend/manifest.h"

namespace tranche::backend {

enum class Stage { kManifest, kFile, kSymbols, kDlopen, kEntry, kTable };
std::string_view StageName(Stage stage);  // manifest | file | symbols | dlopen | entry | table
// The stage that refused; nullopt for a status of another origin.
std::optional<Stage> StageOf(const absl::Status& status);

constexpr std::uint64_t kMaxLibraryBytes = 512ull * 1024 * 1024;

// A library that passed every stage. Valid for the life of the process.
struct LoadedLibrary {
  Manifest manifest;
  std::string path;             // absolute
  std::string version;          // what the library says of itself
  std::uint16_t abi_minor = 0;  // the library's own
  tranche_backend_api table{};  // this host's shape: what the library does not have is null

  bool Concurrent() const { return (table.flags & TRANCHE_FLAG_CONCURRENT) != 0; }
};

// A library that passed what can be known without running any of it: manifest, file, symbols.
struct CheckedLibrary {
  Manifest manifest;
  std::string path;  // absolute
};
// The status of a library that the runner refused; `stage` as it names it.
absl::Status RefusedByRunner(const CheckedLibrary& library, std::string_view stage, std::string_view why);

// Checks a table as the loader does and brings it into this host's shape. Also for tables compiled into a test.
// InvalidArgument, without a stage.
absl::StatusOr<tranche_backend_api> NormaliseTable(const tranche_backend_api* table, std::string_view expected_name);

// Thread-safe; loads are serialised, since a library's constructors run in dlopen. One per process.
class Loader {
 public:
  explicit Loader(std::string directory);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // `name` is the manifest's ([a-z0-9_]{1,63}). The same name gives the same library; the same file under another name is AlreadyExists.
  absl::StatusOr<std::shared_ptr<const LoadedLibrary>> Load(const std::string& name);
  // The stages before dlopen, each time anew: the file may have been replaced. Runs nothing of the library.
  absl::StatusOr<CheckedLibrary> Check(const std::string& name) const;
  // Names that have a manifest in the directory, sorted. NotFound when the directory does not exist.
  absl::StatusOr<std::vector<std::string>> List() const;

 private:
  const std::string directory_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const LoadedLibrary>> libraries_;
  std::map<std::pair<dev_t, ino_t>, std::string> files_;  // by identity: the name that loaded it
};

// What an operator wants to know about one library.
struct Inspection {
  absl::Status status;                                // why it would be refused
  std::vector<std::pair<Stage, std::string>> passed;  // what each passed stage found
  std::optional<Manifest> manifest;
  std::shared_ptr<const LoadedLibrary> library;  // set exactly when status is OK
  std::vector<std::string> functions;            // provided functions of the table
};
// kFile stops before dlopen: nothing of the library runs. kLoad opens it, so its constructors run.
enum class InspectDepth { kFile, kLoad };
// `path` is a library or its manifest. With kFile `library` stays empty.
Inspection Inspect(const std::string& path, InspectDepth depth = InspectDepth::kLoad);

}  // namespace tranche::backend
