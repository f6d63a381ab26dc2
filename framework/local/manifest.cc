#include "local/manifest.h"

#include <charconv>
#include <cmath>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <absl/strings/numbers.h>
#include <boost/json.hpp>
#include <yaml-cpp/yaml.h>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/json.h"

namespace tranche::local {
namespace {

namespace json = boost::json;

constexpr int kMaxDepth = 48;
constexpr std::size_t kMaxNodes = 100000;

// Deep nesting is refused before yaml-cpp's recursive parser sees it. Counts open flow brackets and, for block style, indentation: each level of a
// block needs at least one more column.
absl::Status CheckNesting(std::string_view text) {
  int flow = 0;
  std::size_t indent = 0;
  bool at_line_start = true;
  for (const char c : text) {
    if (c == '\n') {
      at_line_start = true;
      indent = 0;
      continue;
    }
    // "- - - x" nests without indentation, so dashes count as columns too.
    if (at_line_start && (c == ' ' || c == '-' || c == '?' || c == ':')) {
      if (++indent > 400) return absl::InvalidArgumentError("a line is indented by more than 400 columns");
    } else {
      at_line_start = false;
    }
    if (c == '[' || c == '{') ++flow;
    if ((c == ']' || c == '}') && flow > 0) --flow;
    if (flow > 200) return absl::InvalidArgumentError("more than 200 brackets are open at once");
  }
  return absl::OkStatus();
}

std::optional<json::value> PlainNumber(const std::string& text) {
  std::int64_t integer = 0;
  const char* end = text.data() + text.size();
  const char* begin = text.data() + (text.front() == '+' ? 1 : 0);
  if (const auto [stop, error] = std::from_chars(begin, end, integer); error == std::errc() && stop == end && begin != end) return json::value(integer);
  // Letters other than an exponent make it text: "50M", "1e3" is a number, "inf" and "0x10" stay text.
  if (text.find_first_not_of("0123456789.eE+-") != std::string::npos || text.find_first_of("0123456789") == std::string::npos) return std::nullopt;
  double real = 0;
  if (!absl::SimpleAtod(text, &real) || !std::isfinite(real)) return std::nullopt;
  return json::value(real);
}

json::value ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return json::value(text);
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (std::optional<json::value> number = PlainNumber(text); number.has_value()) return *std::move(number);
  return json::value(text);
}

constexpr std::string_view kNotUtf8 = "a value or key is not UTF-8 text; save the file as UTF-8";

class Converter {
 public:
  absl::StatusOr<json::value> Convert(const YAML::Node& node, int depth) {
    if (depth > kMaxDepth) return Error(node, Cat("nested deeper than ", kMaxDepth, " levels"));
    if (++nodes_ > kMaxNodes) return Error(node, Cat("more than ", kMaxNodes, " values"));
    switch (node.Type()) {
      case YAML::NodeType::Scalar: return IsUtf8(node.Scalar()) ? absl::StatusOr<json::value>(ScalarToJson(node)) : Error(node, kNotUtf8);
      case YAML::NodeType::Sequence: return ConvertSequence(node, depth);
      case YAML::NodeType::Map: return ConvertMap(node, depth);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined: break;
    }
    return json::value(nullptr);
  }

 private:
  static absl::Status Error(const YAML::Node& node, std::string_view what) {
    return absl::InvalidArgumentError(Cat("line ", node.Mark().line + 1, ": ", what));
  }

  absl::StatusOr<json::value> ConvertSequence(const YAML::Node& node, int depth) {
    json::array array;
    for (const YAML::Node& item : node) {
      TRANCHE_ASSIGN_OR_RETURN(json::value value, Convert(item, depth + 1));
      array.push_back(std::move(value));
    }
    return json::value(std::move(array));
  }

  absl::StatusOr<json::value> ConvertMap(const YAML::Node& node, int depth) {
    json::object object;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Error(node, "a key must be a plain text");
      const std::string& key = entry.first.Scalar();
      if (!IsUtf8(key)) return Error(entry.first, kNotUtf8);
      if (object.contains(key)) return Error(entry.first, Cat("key \"", key, "\" appears twice"));
      TRANCHE_ASSIGN_OR_RETURN(json::value value, Convert(entry.second, depth + 1));
      object.emplace(key, std::move(value));
    }
    return json::value(std::move(object));
  }

  std::size_t nodes_ = 0;
};

absl::Status CheckClaim(const Claim& claim) {
  const std::string what = Cat("claim ", claim.namespace_name, "/", claim.name);
  if (!IsDnsSubdomain(claim.name)) return absl::InvalidArgumentError(Cat(what, ": metadata.name must be a DNS subdomain"));
  if (!IsDnsLabel(claim.namespace_name)) return absl::InvalidArgumentError(Cat(what, ": metadata.namespace must be a DNS label"));
  if (claim.requests.empty()) return absl::InvalidArgumentError(Cat(what, ": spec.devices.requests is empty; ask for at least one device"));
  std::set<std::string> names;
  for (const DeviceRequest& request : claim.requests) {
    if (!IsDnsLabel(request.name)) return absl::InvalidArgumentError(Cat(what, ": request name \"", request.name, "\" must be a DNS label"));
    if (!names.insert(request.name).second) return absl::InvalidArgumentError(Cat(what, ": two requests are named \"", request.name, "\""));
  }
  return absl::OkStatus();
}

// DecodeClaim treats an absent kind as ResourceClaim; a manifest must say what it is.
absl::Status CheckKind(const json::value& document) {
  const json::value* kind = document.is_object() ? document.get_object().if_contains("kind") : nullptr;
  const json::value* version = document.is_object() ? document.get_object().if_contains("apiVersion") : nullptr;
  if (kind != nullptr && *kind == "ResourceClaim" && version != nullptr && *version == "resource.k8s.io/v1") return absl::OkStatus();
  return absl::InvalidArgumentError("local mode takes objects with apiVersion resource.k8s.io/v1 and kind ResourceClaim only");
}

absl::StatusOr<Claim> ParseClaim(const json::value& document) {
  TRANCHE_RETURN_IF_ERROR(CheckKind(document));
  TRANCHE_ASSIGN_OR_RETURN(Claim claim, DecodeClaim(document));
  TRANCHE_RETURN_IF_ERROR(CheckClaim(claim));
  claim.uid.clear();
  claim.allocation.reset();
  claim.reserved_for.clear();
  return claim;
}

}  // namespace

absl::StatusOr<std::vector<json::value>> YamlToJson(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return absl::InvalidArgumentError(Cat("the manifest has ", text.size(), " bytes; at most ", kMaxManifestBytes, " are read"));
  }
  TRANCHE_RETURN_IF_ERROR(CheckNesting(text));
  try {
    std::vector<json::value> documents;
    Converter converter;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      if (!node.IsDefined() || node.IsNull()) continue;
      if (documents.size() >= kMaxManifestDocuments) {
        return absl::InvalidArgumentError(Cat("the manifest has more than ", kMaxManifestDocuments, " documents"));
      }
      TRANCHE_ASSIGN_OR_RETURN(json::value document, converter.Convert(node, 0));
      documents.push_back(std::move(document));
    }
    return documents;
  } catch (const std::exception& error) { return absl::InvalidArgumentError(Cat("the manifest is not valid YAML: ", error.what())); }
}

absl::StatusOr<std::vector<Claim>> ParseManifests(std::string_view text) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<json::value> documents, YamlToJson(text));
  std::vector<Claim> claims;
  std::set<std::pair<std::string, std::string>> names;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    absl::StatusOr<Claim> claim = ParseClaim(documents[i]);
    if (!claim.ok()) return Annotate(claim.status(), Cat("document ", i + 1));
    if (!names.emplace(claim->namespace_name, claim->name).second) {
      return absl::InvalidArgumentError(Cat("document ", i + 1, ": claim ", claim->namespace_name, "/", claim->name, " appears twice"));
    }
    claims.push_back(*std::move(claim));
  }
  if (claims.empty()) return absl::InvalidArgumentError("the manifest has no document");
  return claims;
}

}  // namespace tranche::local
