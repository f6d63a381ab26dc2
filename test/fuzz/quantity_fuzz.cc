// Any text either fails to parse or is a value whose printed form means the same value, and arithmetic on it is consistent.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/quantity.h"

namespace {
void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckOne(const tranche::Quantity& value) {
  const std::string text = value.ToString();
  const auto again = tranche::Quantity::Parse(text);
  // A text longer than the parser takes can only come from a sum of long inputs.
  Require(again.ok() || text.size() > 1024);
  if (again.ok()) Require(*again == value && again->ToString() == text);
  Require((value - value).IsZero());
  Require(value + tranche::Quantity() == value);
  if (const auto whole = value.ToInt64(); whole.ok()) Require(tranche::Quantity::FromInt64(*whole) == value);
  if (const auto ceiling = value.CeilToInt64(); ceiling.ok()) Require(tranche::Quantity::FromInt64(*ceiling) >= value);
}

void CheckPair(const tranche::Quantity& left, const tranche::Quantity& right) {
  Require((left + right) - right == left);
  Require(((left < right) + (left == right) + (left > right)) == 1);
  if (right <= tranche::Quantity()) return;
  const tranche::Quantity rounded = left.RoundUpToGrid(tranche::Quantity(), right);
  Require(rounded >= left && rounded.IsOnGrid(tranche::Quantity(), right));
  if (!left.IsNegative()) Require(rounded - left < right);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t space = text.find(' ');  // "left right" or one quantity
  const auto left = tranche::Quantity::Parse(text.substr(0, space));
  if (!left.ok()) return 0;
  CheckOne(*left);
  if (space == std::string_view::npos) return 0;
  const auto right = tranche::Quantity::Parse(text.substr(space + 1));
  if (!right.ok()) return 0;
  CheckOne(*right);
  CheckPair(*left, *right);
  return 0;
}
