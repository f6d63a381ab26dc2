#include "backend/manifest.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <boost/json.hpp>

#include "backend/schema.h"
#include "base/status.h"
#include "model/json.h"
#include "runner/sandbox.h"

namespace tranche::backend {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMiB = 1024 * 1024;

// Only for members that the schema has checked to be strings.
std::string Text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::vector<std::string> Texts(const json::object& object, std::string_view name) {
  std::vector<std::string> texts;
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_array()) return texts;
  for (const json::value& item : value->get_array()) texts.emplace_back(item.get_string());
  return texts;
}

std::uint64_t Amount(const json::object& object, std::string_view name, std::uint64_t otherwise) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr ? otherwise : value->to_number<std::uint64_t>();
}

// Types and ranges are the schema's; names are what this host can give.
absl::StatusOr<ProcessLimits> ReadProcess(const json::object& object) {
  ProcessLimits limits;
  limits.capabilities = Texts(object, "capabilities");
  limits.system_calls = Texts(object, "systemCalls");
  limits.memory_bytes = Amount(object, "memoryMiB", limits.memory_bytes / kMiB) * kMiB;
  limits.open_files = Amount(object, "openFiles", limits.open_files);
  for (const std::string& name : limits.capabilities) {
    if (!runner::IsCapability(name))
      return absl::InvalidArgumentError(absl::StrCat("process.capabilities: ", name, " is not a capability that a backend can have"));
  }
  for (const std::string& name : limits.system_calls) {
    if (!runner::IsDeniedSystemCall(name)) {
      return absl::InvalidArgumentError(absl::StrCat("process.systemCalls: ", name, " is not among the denied ones; what is not denied need not be listed"));
    }
  }
  return limits;
}

}  // namespace

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) { return absl::InvalidArgumentError(absl::StrCat("larger than ", kMaxManifestBytes, " bytes")); }
  TRANCHE_ASSIGN_OR_RETURN(const json::value value, ParseJson(text));
  TRANCHE_RETURN_IF_ERROR(ValidatePayload("manifest", value));
  const json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("a manifest must be a JSON object");

  Manifest manifest;
  manifest.name = Text(*object, "name");
  manifest.version = Text(*object, "version");
  manifest.library = Text(*object, "library");
  manifest.arch = Text(*object, "arch");
  manifest.sha256 = Text(*object, "sha256");
  manifest.licence = Text(*object, "licence");
  const std::string abi = Text(*object, "abi");
  const std::size_t dot = abi.find('.');
  if (dot == std::string::npos || !absl::SimpleAtoi(abi.substr(0, dot), &manifest.abi_major) || !absl::SimpleAtoi(abi.substr(dot + 1), &manifest.abi_minor)) {
    return absl::InvalidArgumentError(absl::StrCat("abi ", abi, " is not MAJOR.MINOR"));
  }
  if (manifest.library == "." || manifest.library == "..") return absl::InvalidArgumentError("library is not a file name");
  if (const json::value* schema = object->if_contains("configSchema")) {
    TRANCHE_RETURN_IF_ERROR(Annotate(JsonSchema::Compile(*schema).status(), "configSchema"));
    manifest.config_schema = ToJsonText(*schema);
  }
  if (const json::value* process = object->if_contains("process")) { TRANCHE_ASSIGN_OR_RETURN(manifest.process, ReadProcess(process->get_object())); }
  return manifest;
}

absl::Status CheckConfiguration(const Manifest& manifest, std::string_view config) {
  const std::string where = absl::StrCat("config of backend library ", manifest.name);
  absl::StatusOr<json::value> value = ParseJson(config);
  if (!value.ok()) return Annotate(value.status(), where);
  if (!value->is_object()) return absl::InvalidArgumentError(absl::StrCat(where, " must be an object"));
  if (manifest.config_schema.empty()) return absl::OkStatus();
  absl::StatusOr<json::value> schema_value = ParseJson(manifest.config_schema);
  if (!schema_value.ok()) return Annotate(schema_value.status(), absl::StrCat("configSchema of ", manifest.name));
  absl::StatusOr<JsonSchema> schema = JsonSchema::Compile(*schema_value);
  if (!schema.ok()) return Annotate(schema.status(), absl::StrCat("configSchema of ", manifest.name));
  const absl::Status valid = Annotate(schema->Validate(*value), where);
  if (valid.ok()) return valid;
  return absl::Status(valid.code(), absl::StrCat(std::string(valid.message()), "; correct it under the backend's config, as configSchema in ", manifest.name,
                                                 ".backend.json describes it"));
}

}  // namespace tranche::backend
