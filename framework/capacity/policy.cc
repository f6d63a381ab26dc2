// The admission rules of a request policy; P1…R10 are the numbers of docs/capacity.md.
#include <limits>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "base/ids.h"
#include "base/status.h"
#include "capacity/capacity.h"

namespace tranche::capacity {

namespace {
constexpr std::size_t kMaxValidValues = 10;

// Reports a rule that one field breaks.
class Field {
 public:
  explicit Field(std::string path) : path_(std::move(path)) {}
  Field At(std::string_view child) const { return Field(absl::StrCat(path_, ".", std::string(child))); }
  absl::Status Refuse(std::string_view why) const { return absl::InvalidArgumentError(absl::StrCat(path_, ": ", std::string(why))); }
  absl::Status Above(const Quantity& quantity, std::string_view limit_name, const Quantity& limit) const {
    return Refuse(absl::StrCat(quantity.ToString(), " is above ", std::string(limit_name), " ", limit.ToString()));
  }

 private:
  std::string path_;
};

absl::Status CheckValues(const Field& field, const RequestPolicy& policy, const Quantity& value) {
  if (!policy.default_value) return field.At("default").Refuse("is required with validValues");                         // V1
  if (policy.valid_values.size() > kMaxValidValues) return field.At("validValues").Refuse("has more than 10 entries");  // V2
  bool has_default = false;
  for (std::size_t i = 0; i < policy.valid_values.size(); ++i) {
    const Quantity& entry = policy.valid_values[i];
    const Field at = field.At(absl::StrCat("validValues[", i, "]"));
    if (entry.IsNegative()) return at.Refuse("is negative");
    if (i > 0 && policy.valid_values[i - 1] > entry) return at.Refuse("is below the entry before it; sort the list");  // V3
    if (i > 0 && policy.valid_values[i - 1] == entry) return at.Refuse("repeats the entry before it");                 // V4
    if (entry > value) return at.Above(entry, "the capacity's value", value);                                          // V5
    has_default = has_default || entry == *policy.default_value;
  }
  if (!has_default) return field.At("default").Refuse("is none of validValues");  // V6
  return absl::OkStatus();
}

// R9 and R10: what the API server can compute with. It counts in whole numbers, or in thousandths when one operand is a fraction.
absl::Status CheckOperand(const Field& field, const Quantity& operand) {
  if (operand.IsNegative()) return field.Refuse("is negative");
  if (operand.IsInteger() && operand.ToInt64().ok()) return absl::OkStatus();
  const absl::StatusOr<std::int64_t> milli = operand.CeilToMilli();
  if (milli.ok() && operand.Times(1000) == Quantity::FromInt64(*milli)) return absl::OkStatus();
  return field.Refuse(absl::StrCat(operand.ToString(), " is neither a whole number nor a number of thousandths of 64 bits"));
}

absl::Status CheckStep(const Field& field, const RequestPolicy& policy, const Quantity& value) {
  const ValidRange& range = *policy.valid_range;
  const Field at = field.At("validRange.step");
  if (*range.step <= Quantity()) return at.Refuse("is not positive");  // R6
  TRANCHE_RETURN_IF_ERROR(CheckOperand(at, *range.step));
  TRANCHE_RETURN_IF_ERROR(CheckOperand(field.At("validRange.min"), range.min));
  TRANCHE_RETURN_IF_ERROR(CheckOperand(field.At("default"), *policy.default_value));
  if (range.max) TRANCHE_RETURN_IF_ERROR(CheckOperand(field.At("validRange.max"), *range.max));
  if (range.min + *range.step > value) return at.Refuse("min plus step is above the capacity's value");                         // R7
  if (!policy.default_value->IsOnGrid(range.min, *range.step)) return at.Refuse("default is not min plus a multiple of step");  // R8
  if (range.max && !range.max->IsOnGrid(range.min, *range.step)) return at.Refuse("max is not min plus a multiple of step");
  return absl::OkStatus();
}

absl::Status CheckRange(const Field& field, const RequestPolicy& policy, const Quantity& value) {
  if (!policy.default_value) return field.At("default").Refuse("is required with validRange");  // R1; R2 by type
  const ValidRange& range = *policy.valid_range;
  const Quantity& fallback = *policy.default_value;
  const Field min = field.At("validRange.min");
  const Field max = field.At("validRange.max");
  if (range.min.IsNegative()) return min.Refuse("is negative");
  if (range.min > value) return min.Above(range.min, "the capacity's value", value);  // R3
  if (fallback < range.min) return field.At("default").Refuse("is below min");        // R4
  if (range.max) {                                                                    // R5
    if (range.min > *range.max) return min.Above(range.min, "max", *range.max);
    if (*range.max > value) return max.Above(*range.max, "the capacity's value", value);
    if (fallback > *range.max) return field.At("default").Above(fallback, "max", *range.max);
  }
  return range.step ? CheckStep(field, policy, value) : absl::OkStatus();
}
}  // namespace

absl::Status ValidatePolicy(const std::string& name, const PublishedCapacity& capacity, bool allow_multiple_allocations) {
  const Field capacity_field(absl::StrCat("capacity[", name, "]"));
  if (!IsQualifiedName(name)) return capacity_field.Refuse("the name is no C identifier of up to 32 characters, with or without a domain");
  if (capacity.value.IsNegative()) return capacity_field.At("value").Refuse("is negative");
  if (!capacity.request_policy) return absl::OkStatus();
  const RequestPolicy& policy = *capacity.request_policy;
  const Field field = capacity_field.At("requestPolicy");
  if (!allow_multiple_allocations) return field.Refuse("is allowed for shared devices only");                                    // P1
  if (!policy.valid_values.empty() && policy.valid_range) return field.Refuse("validValues and validRange exclude each other");  // P2
  if (policy.default_value && policy.default_value->IsNegative()) return field.At("default").Refuse("is negative");
  if (!policy.valid_values.empty()) TRANCHE_RETURN_IF_ERROR(CheckValues(field, policy, capacity.value));
  if (policy.valid_range) TRANCHE_RETURN_IF_ERROR(CheckRange(field, policy, capacity.value));
  if (policy.default_value && *policy.default_value > capacity.value) {
    return field.At("default").Above(*policy.default_value, "the capacity's value", capacity.value);
  }
  return absl::OkStatus();
}

}  // namespace tranche::capacity
