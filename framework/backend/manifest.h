// NAME.backend.json: what is known about a vendor's library before any of its code runs (sdk/schema/manifest.schema.json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche::backend {

// What a backend's own process may have and use (the manifest's `process`).
struct ProcessLimits {
  std::vector<std::string> capabilities;  // "NET_ADMIN"; none by default
  std::vector<std::string> system_calls;  // of those that are denied otherwise, by the names of runner/sandbox.h
  std::uint64_t memory_bytes = 512ull * 1024 * 1024;
  std::uint64_t open_files = 512;
  friend bool operator==(const ProcessLimits&, const ProcessLimits&) = default;
};

struct Manifest {
  std::string name, version;
  std::string library;  // a file name in the manifest's directory
  int abi_major = 0, abi_minor = 0;
  std::string arch;    // as uname -m says it
  std::string sha256;  // lower-case hexadecimal
  std::string licence;
  std::string config_schema;  // JSON text; "" accepts any object
  ProcessLimits process;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

constexpr std::size_t kMaxManifestBytes = 256 * 1024;

// InvalidArgument with the place of the first violation; a configSchema that cannot be used is one.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

// The operator's `config` (JSON text, an object) against the manifest's schema. InvalidArgument names the backend and the key.
absl::Status CheckConfiguration(const Manifest& manifest, std::string_view config);

}  // namespace tranche::backend
