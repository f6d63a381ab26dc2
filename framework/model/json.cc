#include "model/json.h"

#include <exception>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json_parts.h"

namespace tranche {
namespace json = boost::json;

namespace {

constexpr std::size_t kMaxDepth = 64;

void AppendPretty(std::string& text, const json::value& value, std::size_t indent) {
  const std::string inner(indent + 2, ' ');
  const auto separate = [&, first = true]() mutable {
    Append(text, first ? "\n" : ",\n", inner);
    first = false;
  };
  if (const json::object* object = value.if_object(); object != nullptr && !object->empty()) {
    text += '{';
    auto next = separate;
    for (const json::key_value_pair& member : *object) {
      next();
      Append(text, json::serialize(json::value(member.key())), ": ");
      AppendPretty(text, member.value(), indent + 2);
    }
    Append(text, "\n", std::string(indent, ' '), "}");
    return;
  }
  if (const json::array* array = value.if_array(); array != nullptr && !array->empty()) {
    text += '[';
    auto next = separate;
    for (const json::value& item : *array) {
      next();
      AppendPretty(text, item, indent + 2);
    }
    Append(text, "\n", std::string(indent, ' '), "]");
    return;
  }
  text += json::serialize(value);
}

// nullopt: a list-valued attribute of a newer API, which this host has no use for.
std::optional<AttributeValue> ReadAttribute(const JsonReader& at) {
  if (at["string"].present()) return at["string"].String();
  if (at["int"].present()) return at["int"].Int64();
  if (at["bool"].present()) return at["bool"].BoolOr(false);
  if (at["version"].present()) return VersionValue{at["version"].String()};
  for (std::string_view list : {"strings", "ints", "bools", "versions"}) {
    if (at[list].present()) return std::nullopt;
  }
  at.Fail("must have one of string, int, bool, version");
  return std::nullopt;
}

}  // namespace

absl::StatusOr<json::value> ParseJson(std::string_view text) {
  try {
    json::parse_options options;
    options.max_depth = kMaxDepth;
    json::parser parser({}, options);
    json::error_code error;
    const std::size_t read = parser.write_some(text.data(), text.size(), error);
    if (error) return absl::InvalidArgumentError(Cat("not valid JSON at byte ", read, ": ", error.message()));
    for (std::size_t i = read; i < text.size(); ++i) {
      if (std::string_view(" \t\r\n").find(text[i]) == std::string_view::npos) {
        return absl::InvalidArgumentError(Cat("not valid JSON at byte ", i, ": text after the end of the value"));
      }
    }
    return parser.release();
  } catch (const std::exception& error) { return absl::InvalidArgumentError(Cat("not valid JSON: ", error.what())); }
}

std::string ToJsonText(const json::value& value) { return json::serialize(value); }

std::string ToPrettyJson(const json::value& value) {
  std::string text;
  AppendPretty(text, value, 0);
  return text += '\n';
}

// ---- Parts that several objects use.

json::value EncodeQuantities(const Quantities& quantities) {
  json::object object;
  for (const auto& [name, amount] : quantities) object[name] = amount.ToString();
  return object;
}

Quantities ReadQuantities(const JsonReader& at) {
  Quantities quantities;
  for (const auto& [name, amount] : at.Members()) quantities[name] = amount.Amount();
  return quantities;
}

absl::StatusOr<Quantities> DecodeQuantities(const json::value& value) {
  absl::Status error;
  Quantities quantities = ReadQuantities({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return quantities;
}

json::value EncodeRequestPolicy(const RequestPolicy& policy) {
  json::object object;
  if (policy.default_value.has_value()) object["default"] = policy.default_value->ToString();
  if (!policy.valid_values.empty()) {
    json::array values;
    for (const Quantity& value : policy.valid_values) values.emplace_back(value.ToString());
    object["validValues"] = std::move(values);
  }
  if (policy.valid_range.has_value()) {
    json::object range;
    range["min"] = policy.valid_range->min.ToString();
    if (policy.valid_range->max.has_value()) range["max"] = policy.valid_range->max->ToString();
    if (policy.valid_range->step.has_value()) range["step"] = policy.valid_range->step->ToString();
    object["validRange"] = std::move(range);
  }
  return object;
}

RequestPolicy ReadRequestPolicy(const JsonReader& at) {
  RequestPolicy policy;
  policy.default_value = at["default"].OptionalAmount();
  for (const JsonReader& value : at["validValues"].Items()) policy.valid_values.push_back(value.Amount());
  if (const JsonReader range = at["validRange"]; range.present()) {
    policy.valid_range = ValidRange{range["min"].Amount(), range["max"].OptionalAmount(), range["step"].OptionalAmount()};
  }
  if (!policy.valid_values.empty() && policy.valid_range.has_value()) at.Fail("validValues and validRange exclude each other; keep one");
  return policy;
}

absl::StatusOr<RequestPolicy> DecodeRequestPolicy(const json::value& value) {
  absl::Status error;
  RequestPolicy policy = ReadRequestPolicy({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return policy;
}

json::value EncodeAttributes(const Attributes& attributes) {
  json::object object;
  for (const auto& [name, value] : attributes) {
    json::object& one = object[name].emplace_object();
    if (const bool* flag = std::get_if<bool>(&value)) one["bool"] = *flag;
    if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) one["int"] = *number;
    if (const std::string* text = std::get_if<std::string>(&value)) one["string"] = *text;
    if (const VersionValue* version = std::get_if<VersionValue>(&value)) one["version"] = version->text;
  }
  return object;
}

Attributes ReadAttributes(const JsonReader& at) {
  Attributes attributes;
  for (const auto& [name, member] : at.Members()) {
    if (std::optional<AttributeValue> value = ReadAttribute(member)) attributes.emplace(name, *std::move(value));
  }
  return attributes;
}

absl::StatusOr<Attributes> DecodeAttributes(const json::value& value) {
  absl::Status error;
  Attributes attributes = ReadAttributes({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return attributes;
}

json::value EncodeCounterUses(const std::vector<CounterUse>& uses) {
  json::array array;
  for (const CounterUse& use : uses) {
    json::object counters;
    for (const auto& [name, amount] : use.counters) counters[name] = json::object{{"value", amount.ToString()}};
    array.push_back(json::object{{"counterSet", use.counter_set}, {"counters", std::move(counters)}});
  }
  return array;
}

std::vector<CounterUse> ReadCounterUses(const JsonReader& at) {
  std::vector<CounterUse> uses;
  for (const JsonReader& item : at.Items()) {
    CounterUse use{item["counterSet"].NonEmptyString(), {}};
    for (const auto& [name, counter] : item["counters"].Members()) use.counters[name] = counter["value"].Amount();
    uses.push_back(std::move(use));
  }
  return uses;
}

absl::StatusOr<std::vector<CounterUse>> DecodeCounterUses(const json::value& value) {
  absl::Status error;
  std::vector<CounterUse> uses = ReadCounterUses({value, &error});
  TRANCHE_RETURN_IF_ERROR(error);
  return uses;
}

// ---- Published devices.

json::value EncodePublishedDevice(const PublishedDevice& device) {
  json::object object{{"name", device.name}, {"attributes", EncodeAttributes(device.attributes)}};
  json::object& capacities = object["capacity"].emplace_object();
  for (const auto& [name, capacity] : device.capacity) {
    json::object& one = capacities[name].emplace_object();
    one["value"] = capacity.value.ToString();
    if (capacity.request_policy.has_value()) one["requestPolicy"] = EncodeRequestPolicy(*capacity.request_policy);
    one["enforcement"] = EnforcementName(capacity.enforcement);
  }
  if (!device.consumes_counters.empty()) object["consumesCounters"] = EncodeCounterUses(device.consumes_counters);
  object["allowMultipleAllocations"] = device.allow_multiple_allocations;
  object["driver"] = device.driver;
  object["pool"] = device.pool;
  object["offer"] = device.offer;
  object["backend"] = device.backend;
  object["physical"] = device.physical;
  object["mode"] = ModeName(device.mode);
  object["enforcement"] = EnforcementName(device.enforcement);
  object["draining"] = device.draining;
  return object;
}

Enforcement ReadEnforcement(const JsonReader& at) {
  absl::StatusOr<Enforcement> level = ParseEnforcement(at.StringOr("none"));
  if (level.ok()) return *level;
  at.Fail(View(level.status().message()));
  return Enforcement::kNone;
}

Mode ReadMode(const JsonReader& at) {
  absl::StatusOr<Mode> mode = ParseMode(at.StringOr("whole"));
  if (mode.ok()) return *mode;
  at.Fail(View(mode.status().message()));
  return Mode::kWhole;
}

absl::StatusOr<PublishedDevice> DecodePublishedDevice(const json::value& value) {
  absl::Status error;
  const JsonReader at(value, &error);
  PublishedDevice device;
  device.name = at["name"].NonEmptyString();
  device.attributes = ReadAttributes(at["attributes"]);
  for (const auto& [name, member] : at["capacity"].Members()) {
    PublishedCapacity capacity{member["value"].Amount(), std::nullopt, ReadEnforcement(member["enforcement"])};
    if (member["requestPolicy"].present()) capacity.request_policy = ReadRequestPolicy(member["requestPolicy"]);
    device.capacity.emplace(name, std::move(capacity));
  }
  device.consumes_counters = ReadCounterUses(at["consumesCounters"]);
  device.allow_multiple_allocations = at["allowMultipleAllocations"].BoolOr(false);
  device.driver = at["driver"].StringOr("");
  device.pool = at["pool"].StringOr("");
  device.offer = at["offer"].StringOr("");
  device.backend = at["backend"].StringOr("");
  device.physical = at["physical"].StringOr("");
  device.mode = ReadMode(at["mode"]);
  device.enforcement = ReadEnforcement(at["enforcement"]);
  device.draining = at["draining"].BoolOr(false);
  TRANCHE_RETURN_IF_ERROR(error);
  return device;
}

}  // namespace tranche
