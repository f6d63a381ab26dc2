// Without this, valijson prints and aborts on a schema that it cannot read.
#define VALIJSON_USE_EXCEPTIONS 1

#include "backend/schema.h"

#include <exception>
#include <map>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/json.hpp>
#include <valijson/adapters/boost_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/status.h"
#include "model/json.h"

namespace tranche::backend {
namespace {

namespace json = boost::json;

bool UsesReference(const json::value& value) {
  if (const json::array* array = value.if_array()) {
    for (const json::value& item : *array) {
      if (UsesReference(item)) return true;
    }
    return false;
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return false;
  for (const auto& [name, item] : *object) {
    if ((name == "$ref" && item.is_string()) || UsesReference(item)) return true;
  }
  return false;
}

std::string FirstError(valijson::ValidationResults& results) {
  // The last error is the innermost place: its parents follow from it.
  valijson::ValidationResults::Error error;
  std::string text = "does not match the schema";
  bool first = true;
  while (results.popError(error)) {
    std::string where;
    for (const std::string& step : error.context) absl::StrAppend(&where, step);
    if (first) text = absl::StrCat("at ", where, ": ", error.description);
    first = false;
  }
  return text;
}

std::map<std::string, absl::StatusOr<JsonSchema>, std::less<>> CompileEmbedded() {
  std::map<std::string, absl::StatusOr<JsonSchema>, std::less<>> schemas;
  for (const EmbeddedSchema* embedded = kEmbeddedSchemas; !embedded->name.empty(); ++embedded) {
    absl::StatusOr<json::value> value = ParseJson(embedded->text);
    if (value.ok()) {
      schemas.emplace(std::string(embedded->name), JsonSchema::Compile(*value));
    } else {
      schemas.emplace(std::string(embedded->name), value.status());
    }
  }
  return schemas;
}

}  // namespace

struct JsonSchema::Impl {
  valijson::Schema schema;
};

JsonSchema::JsonSchema(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<JsonSchema> JsonSchema::Compile(const json::value& schema) {
  if (!schema.is_object()) return absl::InvalidArgumentError("a JSON schema must be an object");
  if (UsesReference(schema)) return absl::InvalidArgumentError("the JSON schema uses $ref; write the referenced part in place");
  try {
    auto impl = std::make_shared<Impl>();
    const valijson::adapters::BoostJsonAdapter adapter(schema);
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(adapter, impl->schema);
    return JsonSchema(std::move(impl));
  } catch (const std::exception& error) { return absl::InvalidArgumentError(absl::StrCat("not a valid JSON schema (draft 7): ", error.what())); }
}

absl::Status JsonSchema::Validate(const json::value& value) const {
  try {
    // A validator caches the schemas' regular expressions, which cost more than the rest, so each thread keeps one.
    thread_local valijson::Validator validator(valijson::Validator::kStrongTypes);
    valijson::ValidationResults results;
    const valijson::adapters::BoostJsonAdapter adapter(value);
    if (validator.validate(impl_->schema, adapter, &results)) return absl::OkStatus();
    return absl::InvalidArgumentError(FirstError(results));
  } catch (const std::exception& error) { return absl::InvalidArgumentError(absl::StrCat("cannot be validated: ", error.what())); }
}

absl::Status ValidatePayload(std::string_view schema_name, const json::value& value) {
  static const auto* schemas = new std::map<std::string, absl::StatusOr<JsonSchema>, std::less<>>(CompileEmbedded());
  const auto found = schemas->find(schema_name);
  if (found == schemas->end()) return absl::InternalError(absl::StrCat("no schema ", std::string(schema_name), " is built in"));
  if (!found->second.ok()) return Annotate(found->second.status(), absl::StrCat("built-in schema ", std::string(schema_name)));
  return found->second->Validate(value);
}

}  // namespace tranche::backend
