// JSON schemas of sdk/schema/, built in.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

namespace tranche::conform {

// "" when `text` is JSON and valid against the built-in schema `name`; else why not.
std::string WhyInvalid(std::string_view name, std::string_view text);
// "" when `schema` is a self-contained draft 7 schema.
std::string WhyNoSchema(const boost::json::value& schema);
// "" when `value` is valid against `schema`.
std::string WhyInvalid(const boost::json::value& schema, const boost::json::value& value);

struct EmbeddedSchema {
  std::string_view name, text;
};
extern const EmbeddedSchema kSchemas[];  // ends with an empty name

}  // namespace tranche::conform
