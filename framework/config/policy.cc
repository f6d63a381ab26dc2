#include <charconv>

#include "base/text.h"
#include "config/parts.h"

namespace tranche::config {
namespace {

constexpr std::size_t kMaxValidValues = 10;  // resource.k8s.io

Reserve ReadReserve(const Place& at) {
  Reserve reserve;
  if (!at.present()) return reserve;
  const std::string text = at.Text("write an amount such as 1G, or a share of the whole such as 10%");
  if (!text.ends_with('%')) {
    reserve.amount = at.Amount();
    return reserve;
  }
  std::int64_t percent = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, percent);
  if (error != std::errc() || stop != end || percent < 0 || percent > 100) {
    at.Fail(Cat("\"", text, "\" is not a percentage"), "write a whole number from 0% to 100%");
    return reserve;
  }
  reserve.percent = percent;
  return reserve;
}

void CheckValidValues(const Place& at, const RequestPolicy& policy) {
  const std::vector<Quantity>& values = policy.valid_values;
  if (values.size() > kMaxValidValues) at.Fail(Cat("has ", values.size(), " values"), Cat("at most ", kMaxValidValues, " are allowed"));
  bool has_default = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0 && values[i] <= values[i - 1]) {
      at.Fail(Cat(values[i].ToString(), " after ", values[i - 1].ToString(), " is not in ascending order"), "list each value once, smallest first");
    }
    has_default = has_default || (policy.default_value.has_value() && values[i] == *policy.default_value);
  }
  if (policy.default_value.has_value() && !has_default && !values.empty()) {
    at.Fail(Cat("default ", policy.default_value->ToString(), " is not one of the values"), "add it, or choose a default from the list");
  }
}

void CheckGrid(const Place& at, const Place& parent, const ValidRange& range, const std::optional<Quantity>& value) {
  if (!value.has_value() || !range.step.has_value() || *value < range.min || value->IsZero()) return;
  if (value->IsOnGrid(range.min, *range.step)) return;
  at.Fail(Cat(value->ToString(), " is not min ", range.min.ToString(), " plus a multiple of step ", range.step->ToString()),
          Cat("the next value on the grid is ", value->RoundUpToGrid(range.min, *range.step).ToString(), " (", parent.path(), ")"));
}

void CheckRange(const Place& at, const RequestPolicy& policy, const ValidRange& range) {
  if (range.step.has_value() && range.step->IsZero()) return at["step"].Fail("is 0", "a step is more than 0; leave it out for any value");
  if (range.max.has_value() && *range.max < range.min) {
    return at["max"].Fail(Cat(range.max->ToString(), " is below min ", range.min.ToString()), "raise max or lower min");
  }
  const std::optional<Quantity>& standard = policy.default_value;
  if (standard.has_value() && *standard < range.min) {
    at["default"].Fail(Cat(standard->ToString(), " is below min ", range.min.ToString()), "choose a default between min and max");
  }
  if (standard.has_value() && range.max.has_value() && *standard > *range.max) {
    at["default"].Fail(Cat(standard->ToString(), " is above max ", range.max->ToString()), "choose a default between min and max");
  }
  CheckGrid(at["default"], at, range, standard);
  CheckGrid(at["max"], at, range, range.max);
}

std::optional<RequestPolicy> ReadPolicy(const Place& at) {
  const bool has_range = at.Has("min") || at.Has("max") || at.Has("step");
  const bool has_values = at.Has("validValues");
  if (!has_range && !has_values && !at.Has("default")) return std::nullopt;
  RequestPolicy policy;
  policy.default_value = at["default"].Amount();
  if (has_range && has_values) {
    at["validValues"].Fail("validValues excludes min, max and step", "keep either the list or the range");
    return policy;
  }
  for (const Place& item : at["validValues"].Items()) {
    if (std::optional<Quantity> value = item.Amount()) policy.valid_values.push_back(*std::move(value));
  }
  if (has_values) CheckValidValues(at["validValues"], policy);
  if (!has_range) return policy;
  if (!at.Has("min")) {
    at["min"].Fail("is missing", "max and step need it; write min: 0 for none");
    return policy;
  }
  const std::optional<Quantity> min = at["min"].Amount();
  policy.valid_range = ValidRange{min.value_or(Quantity()), at["max"].Amount(), at["step"].Amount()};
  if (min.has_value()) CheckRange(at, policy, *policy.valid_range);
  return policy;
}

}  // namespace

CapacityConfiguration ReadCapacity(const Place& at) {
  CapacityConfiguration capacity;
  at.ExpectKeys({"default", "min", "max", "step", "validValues", "reserve"});
  capacity.policy = ReadPolicy(at);
  capacity.reserve = ReadReserve(at["reserve"]);
  return capacity;
}

}  // namespace tranche::config
