// JSON schema (draft 7) as values: compiled once, then safe to use from any thread. Nothing here throws or reads a file.
#pragma once

#include <memory>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

namespace tranche::backend {

class JsonSchema {
 public:
  // InvalidArgument when it is no schema, or uses $ref (a schema must be self-contained: references can be circular).
  static absl::StatusOr<JsonSchema> Compile(const boost::json::value& schema);
  // InvalidArgument naming the place and the rule that is broken.
  absl::Status Validate(const boost::json::value& value) const;

 private:
  struct Impl;
  explicit JsonSchema(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// The schemas of sdk/schema/, built into the library: "device", "share", "health", "manifest", "prepare", "unprepare", "key".
// Internal for another name.
absl::Status ValidatePayload(std::string_view schema_name, const boost::json::value& value);

// One embedded file; the generated source defines the list, which ends with an empty name.
struct EmbeddedSchema {
  std::string_view name;
  std::string_view text;
};
extern const EmbeddedSchema kEmbeddedSchemas[];

}  // namespace tranche::backend
