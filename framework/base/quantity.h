// Quantity: an exact decimal amount with the text rules of Kubernetes' resource.Quantity (apimachinery
// pkg/api/resource). Values are immutable and cheap to copy; safe to read from any thread.
//
// Differences from upstream, on purpose: nothing wraps. Conversions to 64 bits report overflow, an exponent outside ±1000 is
// an error instead of an enormous number, comparison is numeric only.
//
//   TRANCHE_ASSIGN_OR_RETURN(Quantity asked, Quantity::Parse("1500Mi"));
//   asked.ToString();                 // "1500Mi"
//   (asked + asked).ToString();       // "3000Mi"
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace tranche {

class Quantity {
 public:
  // How the canonical text is written: 1k | 1Ki | 1e3.
  enum class Format { kDecimalSI, kBinarySI, kDecimalExponent };

  Quantity();  // 0, DecimalSI
  Quantity(const Quantity&) = default;
  Quantity& operator=(const Quantity&) = default;
  // A moved-from Quantity is still a value (the old one): moving copies.

  // InvalidArgument names the text and which part is wrong (character set, digits, suffix, exponent). Finer than 1n is rounded
  // away from zero; a binary form is clamped to ±(2^63−1), as the API server does.
  static absl::StatusOr<Quantity> Parse(std::string_view text);
  static Quantity FromInt64(std::int64_t value, Format format = Format::kDecimalSI);

  // Canonical text as the API server prints it, the kept text of a parsed canonical-looking string included.
  std::string ToString() const;
  Format format() const;

  bool IsZero() const;
  bool IsNegative() const;
  bool IsInteger() const;
  // Exact value; InvalidArgument for a fraction, OutOfRange beyond int64.
  absl::StatusOr<std::int64_t> ToInt64() const;
  // Rounded up (toward +infinity); OutOfRange beyond int64.
  absl::StatusOr<std::int64_t> CeilToInt64() const;
  absl::StatusOr<std::int64_t> CeilToMilli() const;

  // The receiver's format is kept; a zero receiver takes the operand's. Never overflows.
  friend Quantity operator+(const Quantity& left, const Quantity& right);
  friend Quantity operator-(const Quantity& left, const Quantity& right);
  Quantity& operator+=(const Quantity& other) { return *this = *this + other; }
  Quantity& operator-=(const Quantity& other) { return *this = *this - other; }

  // this × factor, exact.
  Quantity Times(std::int64_t factor) const;
  // this × numerator / denominator, rounded down to a whole number when `this` is whole and up to 1n otherwise.
  // denominator > 0. For percentages of a capacity.
  Quantity ScaleDown(std::int64_t numerator, std::int64_t denominator) const;
  // min + ceil((this − min) / step) · step: the smallest value on the grid that is ≥ this; `min` when this ≤ min.
  // step > 0. The result carries the step's format.
  Quantity RoundUpToGrid(const Quantity& min, const Quantity& step) const;
  // (this − min) is a whole multiple of step (> 0).
  bool IsOnGrid(const Quantity& min, const Quantity& step) const;

  // Numeric, never textual: 1Gi == 1024Mi.
  friend bool operator==(const Quantity& left, const Quantity& right);
  friend std::strong_ordering operator<=>(const Quantity& left, const Quantity& right);

 private:
  struct Rep;
  explicit Quantity(std::shared_ptr<const Rep> rep);
  std::shared_ptr<const Rep> rep_;
};

}  // namespace tranche
