// The host's configuration: one YAML document, `kind: HostConfiguration`, read into typed values. Every error names file, line, key and
// remedy; unknown and duplicate keys are errors; all errors of a file are reported at once. No I/O but LoadConfiguration.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "model/device.h"

namespace tranche::config {

enum class Isolation { kProcess, kInProcess };

// allowEdits of a backend: path prefixes, see backend::EditAllowList.
struct AllowEdits {
  std::vector<std::string> device_nodes, mounts, hooks, env;
  bool net_devices = false;
  friend bool operator==(const AllowEdits&, const AllowEdits&) = default;
};

struct BackendConfiguration {
  std::string name;     // DNS label, unique
  std::string library;  // "vnic_tc": found in the backend directory with its manifest
  Isolation isolation = Isolation::kProcess;
  std::string config = "{}";  // the backend's own, as JSON text; checked against the manifest's schema by backend/
  AllowEdits allow_edits;
  int line = 0;
  friend bool operator==(const BackendConfiguration&, const BackendConfiguration&) = default;
};

// Reserve of a capacity: a share of the whole in percent, or an amount. Never published.
struct Reserve {
  std::optional<Quantity> amount;
  std::optional<std::int64_t> percent;  // 0–100
  friend bool operator==(const Reserve&, const Reserve&) = default;
};

struct CapacityConfiguration {
  std::optional<RequestPolicy> policy;  // default, min, max, step | validValues
  Reserve reserve;
  friend bool operator==(const CapacityConfiguration&, const CapacityConfiguration&) = default;
};

struct OfferConfiguration {
  std::string name;  // DNS label, unique within the driver
  std::string backend;
  Mode mode = Mode::kWhole;
  std::map<std::string, CapacityConfiguration> capacity;
  int line = 0;
  friend bool operator==(const OfferConfiguration&, const OfferConfiguration&) = default;
};

struct ClassConfiguration {
  std::string name;  // DNS subdomain: the DeviceClass
  std::string offer;
  std::vector<std::string> namespaces = {"*"};  // namespaces.allow: globs with '*'
  Enforcement minimum_enforcement = Enforcement::kNone;
  std::string parameters = "{}";              // JSON object: the class's opaque configuration
  std::vector<std::string> claim_parameters;  // parameter names that a claim may set itself; others are refused at prepare
  int line = 0;
  friend bool operator==(const ClassConfiguration&, const ClassConfiguration&) = default;
};

struct DriverConfiguration {
  std::string name;  // DNS subdomain ≤ 63
  std::vector<OfferConfiguration> offers;
  std::vector<ClassConfiguration> classes;
  int line = 0;
  friend bool operator==(const DriverConfiguration&, const DriverConfiguration&) = default;
};

struct HostConfiguration {
  std::vector<BackendConfiguration> backends;
  std::vector<DriverConfiguration> drivers;
  friend bool operator==(const HostConfiguration&, const HostConfiguration&) = default;
};

struct ParseError {
  int line = 0;      // 1-based; 0 unknown
  std::string path;  // "drivers[0].offers[1].capacity.bandwidth.step"
  std::string message;
};

// `file` is used in messages only. InvalidArgument: one line per error, "FILE:LINE: PATH: what; remedy".
absl::StatusOr<HostConfiguration> ParseConfiguration(std::string_view yaml, std::string_view file);
// The same with errors as values (for `tranchectl check -o json` and tests). Empty errors: configuration is set.
struct ParseOutcome {
  std::optional<HostConfiguration> configuration;
  std::vector<ParseError> errors;
};
ParseOutcome ParseConfigurationDetailed(std::string_view yaml);

absl::StatusOr<HostConfiguration> LoadConfiguration(const std::string& path);  // at most 1 MiB

// Glob with '*' only, over the whole text.
bool MatchesAny(const std::vector<std::string>& globs, std::string_view text);

const ClassConfiguration* FindClass(const DriverConfiguration& driver, std::string_view name);
const DriverConfiguration* FindDriver(const HostConfiguration& configuration, std::string_view name);

// Merges class and claim parameters (objects; the claim's keys win and must be in `allowed`). PermissionDenied names the key and the class.
absl::StatusOr<std::string> MergeParameters(const ClassConfiguration& device_class, const std::vector<std::string>& claim_parameters_json);

// The policy snapshot of a class and its offer (CAP-7): canonical JSON, and "sha256:…" over it.
struct PolicySnapshot {
  std::string version;
  std::string json;
};
PolicySnapshot SnapshotPolicy(const DriverConfiguration& driver, const ClassConfiguration& device_class);

}  // namespace tranche::config
