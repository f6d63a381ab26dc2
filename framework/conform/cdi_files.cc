#include "conform/cdi_files.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <boost/json.hpp>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "config/yaml.h"

namespace tranche::dra_conform {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxSpecBytes = 1U << 20;

bool IsWord(std::string_view text, std::string_view inner) {
  const auto is_end = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !text.empty() && is_end(text.front()) && is_end(text.back()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_end(c) || inner.find(c) != std::string_view::npos; });
}

absl::StatusOr<json::value> ReadSpec(const std::string& path) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxSpecBytes));
  if (absl::EndsWith(path, ".json")) {
    boost::system::error_code error;
    json::value value = json::parse(text, error);
    if (error) return absl::InvalidArgumentError(Cat(path, ": not JSON"));
    return value;
  }
  const config::YamlOutcome yaml = config::ParseYaml(text);
  if (!yaml.errors.empty()) return absl::InvalidArgumentError(Cat(path, ":", yaml.errors.front().line, ": ", yaml.errors.front().message));
  return config::ToJson(yaml.root);
}

std::string_view TextOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  if (value == nullptr || !value->is_string()) return "";
  return {value->get_string().data(), value->get_string().size()};
}

// What a runtime would resolve the spec's devices by: "kind=name".
absl::StatusOr<std::vector<std::string>> IdsOf(const std::string& path) {
  TRANCHE_ASSIGN_OR_RETURN(const json::value spec, ReadSpec(path));
  if (!spec.is_object() || TextOf(spec.get_object(), "cdiVersion").empty()) return absl::InvalidArgumentError(Cat(path, ": no cdiVersion"));
  const std::string_view kind = TextOf(spec.get_object(), "kind");
  const json::value* devices = spec.get_object().if_contains("devices");
  std::vector<std::string> ids;
  if (devices == nullptr || !devices->is_array()) return absl::InvalidArgumentError(Cat(path, ": no devices"));
  for (const json::value& device : devices->get_array()) {
    if (device.is_object()) ids.push_back(Cat(kind, "=", TextOf(device.get_object(), "name")));
  }
  return ids;
}

}  // namespace

std::string CdiIdProblem(std::string_view id) {
  const std::size_t equals = id.find('=');
  const std::size_t slash = id.find('/');
  if (equals == std::string_view::npos || slash == std::string_view::npos || slash > equals) return "is not vendor/class=name";
  const std::string_view vendor = id.substr(0, slash), kind = id.substr(slash + 1, equals - slash - 1), name = id.substr(equals + 1);
  if (!absl::ascii_isalpha(static_cast<unsigned char>(vendor.empty() ? '-' : vendor.front())) || !IsWord(vendor, "-_.")) return "has no valid vendor";
  if (!absl::ascii_isalpha(static_cast<unsigned char>(kind.empty() ? '-' : kind.front())) || !IsWord(kind, "-_.")) return "has no valid class";
  if (!IsWord(name, "-_.:")) return "has no valid name";
  return "";
}

absl::StatusOr<std::string> CdiFiles::Find(const std::string& id) const {
  std::string problems;
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(*directory);
    if (!names.ok()) continue;  // absent
    for (const std::string& name : *names) {
      if (!absl::EndsWith(name, ".json") && !absl::EndsWith(name, ".yaml")) continue;
      const std::string path = Cat(*directory, "/", name);
      const absl::StatusOr<std::vector<std::string>> ids = IdsOf(path);
      if (!ids.ok() && !absl::IsNotFound(ids.status())) Append(problems, problems.empty() ? "; unreadable: " : ", ", View(ids.status().message()));
      if (ids.ok() && std::find(ids->begin(), ids->end(), id) != ids->end()) return path;
    }
  }
  return absl::NotFoundError(Cat(id, " is in no spec of the CDI directories", problems));
}

}  // namespace tranche::dra_conform
