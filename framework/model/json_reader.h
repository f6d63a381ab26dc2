// A cursor into a JSON value that knows its path, for decoders of this room and of backend payloads. The first mistake is kept in the
// status that the root was made with; later reads answer neutral values, so that a decoder reads straight down and checks once at the end.
// null counts as absent everywhere, as Go's encoder writes it for unset fields. Borrows the value; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <boost/json/fwd.hpp>

#include "base/quantity.h"

namespace tranche {

class JsonReader {
 public:
  JsonReader(const boost::json::value& value, absl::Status* error) : value_(&value), error_(error) {}

  // The member, absent when missing or null. An error when this is present and not an object.
  JsonReader operator[](std::string_view key) const;
  bool present() const { return value_ != nullptr; }
  const boost::json::value* value() const { return value_; }  // nullptr when absent

  // Required values: absence is an error.
  std::string String() const;
  std::string NonEmptyString() const;
  std::int64_t Int64() const;
  Quantity Amount() const;  // text, or a plain number as Kubernetes accepts it

  std::string StringOr(std::string_view fallback) const { return present() ? String() : std::string(fallback); }
  std::int64_t Int64Or(std::int64_t fallback) const { return present() ? Int64() : fallback; }
  std::uint64_t CountOr(std::uint64_t fallback) const;  // an integer ≥ 0
  bool BoolOr(bool fallback) const;
  std::optional<std::string> OptionalString() const;
  std::optional<std::int64_t> OptionalInt64() const;
  std::optional<Quantity> OptionalAmount() const;

  // Elements and members; empty when absent.
  std::vector<JsonReader> Items() const;
  std::vector<std::pair<std::string, JsonReader>> Members() const;
  std::vector<std::string> Strings() const;

  // Records a mistake at this place, unless an earlier one is recorded.
  void Fail(std::string_view what) const;

 private:
  JsonReader(const boost::json::value* value, std::string path, absl::Status* error) : value_(value), path_(std::move(path)), error_(error) {}
  void FailKind(std::string_view wanted) const;

  const boost::json::value* value_;
  std::string path_;
  absl::Status* error_;
};

}  // namespace tranche
