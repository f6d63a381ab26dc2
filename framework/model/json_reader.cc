#include "model/json_reader.h"

#include <limits>

#include <boost/json.hpp>

#include "base/text.h"

namespace tranche {
namespace json = boost::json;

namespace {

std::string_view KindName(const json::value* value) {
  if (value == nullptr) return "nothing";
  switch (value->kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "a boolean";
    case json::kind::int64:
    case json::kind::uint64: return "an integer";
    case json::kind::double_: return "a number with a fraction";
    case json::kind::string: return "a string";
    case json::kind::array: return "a list";
    case json::kind::object: return "an object";
  }
  return "something else";
}

}  // namespace

void JsonReader::Fail(std::string_view what) const {
  if (!error_->ok()) return;
  *error_ = absl::InvalidArgumentError(path_.empty() ? std::string(what) : Cat(path_, ": ", what));
}

void JsonReader::FailKind(std::string_view wanted) const {
  if (!present()) return Fail(Cat("is missing; it must be ", wanted));
  Fail(Cat("must be ", wanted, ", not ", KindName(value_)));
}

JsonReader JsonReader::operator[](std::string_view key) const {
  std::string path = path_.empty() ? std::string(key) : Cat(path_, ".", key);
  if (!present()) return {nullptr, std::move(path), error_};
  const json::object* object = value_->if_object();
  if (object == nullptr) {
    FailKind("an object");
    return {nullptr, std::move(path), error_};
  }
  const json::value* member = object->if_contains({key.data(), key.size()});
  if (member != nullptr && member->is_null()) member = nullptr;
  return {member, std::move(path), error_};
}

std::string JsonReader::String() const {
  const json::string* text = present() ? value_->if_string() : nullptr;
  if (text == nullptr) {
    FailKind("a string");
    return {};
  }
  return {text->data(), text->size()};
}

std::string JsonReader::NonEmptyString() const {
  std::string text = String();
  if (text.empty()) Fail("must not be empty");
  return text;
}

std::int64_t JsonReader::Int64() const {
  const std::int64_t* number = present() ? value_->if_int64() : nullptr;
  if (number != nullptr) return *number;
  if (present() && value_->is_uint64()) {
    Fail("is above 9223372036854775807, the largest 64-bit integer");
  } else {
    FailKind("an integer");
  }
  return 0;
}

std::uint64_t JsonReader::CountOr(std::uint64_t fallback) const {
  if (!present()) return fallback;
  if (const std::uint64_t* number = value_->if_uint64()) return *number;
  const std::int64_t number = Int64();
  if (number >= 0) return static_cast<std::uint64_t>(number);
  Fail("must not be negative");
  return 0;
}

bool JsonReader::BoolOr(bool fallback) const {
  if (!present()) return fallback;
  if (const bool* flag = value_->if_bool()) return *flag;
  FailKind("a boolean");
  return fallback;
}

Quantity JsonReader::Amount() const {
  if (!present() || !(value_->is_string() || value_->is_number())) {
    FailKind("a quantity such as \"10Gi\"");
    return {};
  }
  const std::string text = value_->is_string() ? String() : json::serialize(*value_);
  absl::StatusOr<Quantity> amount = Quantity::Parse(text);
  if (amount.ok()) return *std::move(amount);
  Fail(View(amount.status().message()));
  return {};
}

std::optional<std::string> JsonReader::OptionalString() const {
  if (!present()) return std::nullopt;
  return String();
}

std::optional<std::int64_t> JsonReader::OptionalInt64() const {
  if (!present()) return std::nullopt;
  return Int64();
}

std::optional<Quantity> JsonReader::OptionalAmount() const {
  if (!present()) return std::nullopt;
  return Amount();
}

std::vector<JsonReader> JsonReader::Items() const {
  std::vector<JsonReader> items;
  if (!present()) return items;
  const json::array* array = value_->if_array();
  if (array == nullptr) {
    FailKind("a list");
    return items;
  }
  items.reserve(array->size());
  for (std::size_t i = 0; i < array->size(); ++i) {
    const json::value* item = &(*array)[i];
    items.push_back({item->is_null() ? nullptr : item, Cat(path_, "[", i, "]"), error_});
  }
  return items;
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::Members() const {
  std::vector<std::pair<std::string, JsonReader>> members;
  if (!present()) return members;
  const json::object* object = value_->if_object();
  if (object == nullptr) {
    FailKind("an object");
    return members;
  }
  members.reserve(object->size());
  for (const json::key_value_pair& member : *object) {
    std::string key(member.key().data(), member.key().size());
    JsonReader child = (*this)[key];
    members.emplace_back(std::move(key), std::move(child));
  }
  return members;
}

std::vector<std::string> JsonReader::Strings() const {
  std::vector<std::string> texts;
  for (const JsonReader& item : Items()) texts.push_back(item.String());
  return texts;
}

}  // namespace tranche
