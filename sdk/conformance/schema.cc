// Without this, valijson prints and aborts on a schema that it cannot read.
#define VALIJSON_USE_EXCEPTIONS 1

#include "conformance/schema.h"

#include <exception>
#include <map>
#include <memory>

#include <boost/json.hpp>
#include <valijson/adapters/boost_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

namespace tranche::conform {
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

struct Compiled {
  std::unique_ptr<valijson::Schema> schema;
  std::string why;
};

Compiled Compile(const json::value& value) {
  if (!value.is_object()) return {nullptr, "a JSON schema must be an object"};
  if (UsesReference(value)) return {nullptr, "the schema uses $ref; write the referenced part in place"};
  try {
    auto schema = std::make_unique<valijson::Schema>();
    const valijson::adapters::BoostJsonAdapter adapter(value);
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(adapter, *schema);
    return {std::move(schema), ""};
  } catch (const std::exception& error) { return {nullptr, std::string("not a valid JSON schema (draft 7): ") + error.what()}; }
}

std::string Validate(const valijson::Schema& schema, const json::value& value) {
  try {
    thread_local valijson::Validator validator(valijson::Validator::kStrongTypes);
    valijson::ValidationResults results;
    const valijson::adapters::BoostJsonAdapter adapter(value);
    if (validator.validate(schema, adapter, &results)) return "";
    valijson::ValidationResults::Error error;
    if (!results.popError(error)) return "does not match the schema";
    std::string where;
    for (const std::string& step : error.context) where += step;
    return "at " + where + ": " + error.description;
  } catch (const std::exception& error) { return std::string("cannot be validated: ") + error.what(); }
}

const Compiled& Embedded(std::string_view name) {
  static const auto* schemas = [] {
    auto* all = new std::map<std::string, Compiled, std::less<>>();
    for (const EmbeddedSchema* embedded = kSchemas; !embedded->name.empty(); ++embedded) {
      boost::system::error_code error;
      const json::value value = json::parse(json::string_view(embedded->text.data(), embedded->text.size()), error);
      (*all)[std::string(embedded->name)] = Compile(value);
    }
    return all;
  }();
  return schemas->at(std::string(name));
}

}  // namespace

std::string WhyInvalid(std::string_view name, std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) return "is not JSON: " + error.message();
  const Compiled& compiled = Embedded(name);
  return compiled.schema == nullptr ? compiled.why : Validate(*compiled.schema, value);
}

std::string WhyNoSchema(const json::value& schema) { return Compile(schema).why; }

std::string WhyInvalid(const json::value& schema, const json::value& value) {
  const Compiled compiled = Compile(schema);
  return compiled.schema == nullptr ? compiled.why : Validate(*compiled.schema, value);
}

}  // namespace tranche::conform
