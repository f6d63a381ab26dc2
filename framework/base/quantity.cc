#include "base/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <boost/multiprecision/cpp_int.hpp>

namespace tranche {

namespace {
using boost::multiprecision::cpp_int;
using Format = Quantity::Format;

constexpr std::size_t kMaxTextLength = 1024;  // longer is no amount of anything, and big-integer parsing is quadratic
constexpr int kMaxExponent = 1000;
constexpr int kNanoDigits = 9;
constexpr int kFastPathDigits = 18;

const cpp_int& NanoPerUnit() {
  static const cpp_int value = 1000000000;
  return value;
}

cpp_int PowerOfTen(int exponent) { return boost::multiprecision::pow(cpp_int(10), static_cast<unsigned>(exponent)); }

cpp_int FloorDivide(const cpp_int& numerator, const cpp_int& denominator) {  // denominator > 0
  cpp_int quotient, remainder;
  divide_qr(numerator, denominator, quotient, remainder);
  if (remainder < 0) --quotient;
  return quotient;
}

cpp_int CeilDivide(const cpp_int& numerator, const cpp_int& denominator) {  // denominator > 0
  cpp_int quotient, remainder;
  divide_qr(numerator, denominator, quotient, remainder);
  if (remainder > 0) ++quotient;
  return quotient;
}

absl::StatusOr<std::int64_t> Narrow(const cpp_int& value, std::string_view text, std::string_view unit) {
  if (value > std::numeric_limits<std::int64_t>::max() || value < std::numeric_limits<std::int64_t>::min()) {
    return absl::OutOfRangeError(absl::StrCat("quantity ", std::string(text), " does not fit 64 bits when counted in ", std::string(unit)));
  }
  return static_cast<std::int64_t>(value);
}

// The pieces of `[sign] digits [. digits] suffix`, as the API server cuts them.
struct Pieces {
  bool negative = false;
  std::string_view whole;  // without leading zeros
  std::string_view fraction;
  std::string_view suffix;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view TakeDigits(std::string_view& rest) {
  std::size_t length = 0;
  while (length < rest.size() && IsDigit(rest[length])) ++length;
  const std::string_view digits = rest.substr(0, length);
  rest.remove_prefix(length);
  return digits;
}

absl::Status BadText(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("quantity \"", absl::CHexEscape(std::string(text.substr(0, 64))), "\": ", std::string(why), "; write a number such as 1500m, 8Gi or 25e9"));
}

// False when `suffix` is not shaped letters, sign, digits.
bool HasSuffixShape(std::string_view suffix) {
  while (!suffix.empty() && std::string_view("eEinumkKMGTP").find(suffix.front()) != std::string_view::npos) suffix.remove_prefix(1);
  if (!suffix.empty() && (suffix.front() == '+' || suffix.front() == '-')) suffix.remove_prefix(1);
  TakeDigits(suffix);
  return suffix.empty();
}

absl::StatusOr<Pieces> Cut(std::string_view text) {
  if (text.empty()) return BadText(text, "the text is empty");
  if (text.size() > kMaxTextLength) return BadText(text, "the text is longer than 1024 characters");
  Pieces pieces;
  std::string_view rest = text;
  if (rest.front() == '+' || rest.front() == '-') {
    pieces.negative = rest.front() == '-';
    rest.remove_prefix(1);
  }
  pieces.whole = TakeDigits(rest);
  while (!pieces.whole.empty() && pieces.whole.front() == '0') pieces.whole.remove_prefix(1);
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    pieces.fraction = TakeDigits(rest);
  }
  if (!HasSuffixShape(rest)) return BadText(text, "wrong character or shape");
  pieces.suffix = rest;
  return pieces;
}

struct Unit {
  Format format = Format::kDecimalSI;
  int exponent = 0;  // of ten, or of two for kBinarySI
};

struct NamedUnit {
  std::string_view suffix;
  Unit unit;
};

constexpr std::array<NamedUnit, 16> kUnits = {{
    {"n", {Format::kDecimalSI, -9}},
    {"u", {Format::kDecimalSI, -6}},
    {"m", {Format::kDecimalSI, -3}},
    {"", {Format::kDecimalSI, 0}},
    {"k", {Format::kDecimalSI, 3}},
    {"M", {Format::kDecimalSI, 6}},
    {"G", {Format::kDecimalSI, 9}},
    {"T", {Format::kDecimalSI, 12}},
    {"P", {Format::kDecimalSI, 15}},
    {"E", {Format::kDecimalSI, 18}},
    {"Ki", {Format::kBinarySI, 10}},
    {"Mi", {Format::kBinarySI, 20}},
    {"Gi", {Format::kBinarySI, 30}},
    {"Ti", {Format::kBinarySI, 40}},
    {"Pi", {Format::kBinarySI, 50}},
    {"Ei", {Format::kBinarySI, 60}},
}};

std::string_view SuffixOf(Format format, int exponent) {
  for (const NamedUnit& named : kUnits) {
    if (named.unit.exponent == exponent && (named.unit.format == format || exponent == 0)) return named.suffix;
  }
  return "";
}

absl::StatusOr<Unit> ExponentUnit(std::string_view text, std::string_view suffix) {
  std::string_view digits = suffix.substr(1);
  if (digits.front() == '+') digits.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (error == std::errc::result_out_of_range) return BadText(text, "exponent outside -1000…1000");
  if (error != std::errc() || end != digits.data() + digits.size()) return BadText(text, "unknown suffix");
  if (exponent > kMaxExponent || exponent < -kMaxExponent) return BadText(text, "exponent outside -1000…1000");
  return Unit{Format::kDecimalExponent, static_cast<int>(exponent)};
}

absl::StatusOr<Unit> ParseUnit(std::string_view text, std::string_view suffix) {
  for (const NamedUnit& named : kUnits) {
    if (named.suffix == suffix) return named.unit;
  }
  if (suffix.size() > 1 && (suffix.front() == 'e' || suffix.front() == 'E')) return ExponentUnit(text, suffix);
  return BadText(text, "unknown suffix");
}

// Whether the API server keeps a text as it was typed: it does when its quick parser takes the text and the text looks
// canonical to a quick test, which accepts some that are not ("+1", "1.G").
bool KeepsText(const Pieces& pieces, const Unit& unit) {
  const std::string whole = pieces.whole.empty() ? "0" : std::string(pieces.whole);
  if (unit.format == Format::kBinarySI) {
    if (!pieces.fraction.empty() || static_cast<int>(whole.size()) > 14 - unit.exponent * 3 / 10) return false;
    return (whole.back() - '0' + 10 * (whole.size() > 1 ? whole[whole.size() - 2] - '0' : 0) + 100 * (whole.size() > 2 ? whole[whole.size() - 3] - '0' : 0)) %
               8 !=
           0;
  }
  const std::string digits = absl::StrCat(whole, std::string(pieces.fraction));
  const int scale = unit.exponent - static_cast<int>(pieces.fraction.size());
  if (digits.size() > kFastPathDigits || scale < -kNanoDigits || scale % 3 != 0) return false;
  return digits.front() != '0' && !digits.ends_with("000");
}

// Magnitude in nano units, rounded up, before any clamp.
cpp_int Magnitude(const Pieces& pieces, const Unit& unit) {
  std::string digits = absl::StrCat(std::string(pieces.whole), std::string(pieces.fraction));
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));  // a leading 0 would mean octal
  if (digits.empty()) return 0;
  cpp_int value(digits);
  int scale = kNanoDigits - static_cast<int>(pieces.fraction.size());
  if (unit.format == Format::kBinarySI) {
    value <<= static_cast<unsigned>(unit.exponent);
  } else {
    scale += unit.exponent;
  }
  return scale >= 0 ? cpp_int(value * PowerOfTen(scale)) : CeilDivide(value, PowerOfTen(-scale));
}
}  // namespace

struct Quantity::Rep {
  cpp_int nano;  // the value in units of 1n
  Format format = Format::kDecimalSI;
  std::string kept;  // text to print instead of the canonical one, empty for none
};

Quantity::Quantity(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}

Quantity::Quantity() {
  static const std::shared_ptr<const Rep> zero = std::make_shared<const Rep>();
  rep_ = zero;
}

absl::StatusOr<Quantity> Quantity::Parse(std::string_view text) {
  const absl::StatusOr<Pieces> pieces = Cut(text);
  if (!pieces.ok()) return pieces.status();
  const absl::StatusOr<Unit> unit = ParseUnit(text, pieces->suffix);
  if (!unit.ok()) return unit.status();
  Rep rep;
  rep.nano = Magnitude(*pieces, *unit);
  rep.format = unit->format;
  if (unit->format == Format::kBinarySI) {
    const cpp_int limit = cpp_int(std::numeric_limits<std::int64_t>::max()) * NanoPerUnit();
    if (rep.nano > limit) rep.nano = limit;
    if (rep.nano > 0 && rep.nano < NanoPerUnit()) rep.format = Format::kDecimalSI;
  }
  if (pieces->negative) rep.nano = -rep.nano;
  if (KeepsText(*pieces, *unit)) rep.kept = std::string(text);
  return Quantity(std::make_shared<const Rep>(std::move(rep)));
}

Quantity Quantity::FromInt64(std::int64_t value, Format format) {
  return Quantity(std::make_shared<const Rep>(Rep{cpp_int(value) * NanoPerUnit(), format, ""}));
}

Quantity::Format Quantity::format() const { return rep_->format; }
bool Quantity::IsZero() const { return rep_->nano.is_zero(); }
bool Quantity::IsNegative() const { return rep_->nano < 0; }
bool Quantity::IsInteger() const { return rep_->nano % NanoPerUnit() == 0; }

std::string Quantity::ToString() const {
  if (!rep_->kept.empty()) return rep_->kept;
  if (IsZero()) return "0";
  const bool binary = rep_->format == Format::kBinarySI && IsInteger() && abs(rep_->nano) >= 1024 * NanoPerUnit();
  cpp_int number = binary ? cpp_int(rep_->nano / NanoPerUnit()) : rep_->nano;
  int exponent = binary ? 0 : -kNanoDigits;
  const int factor = binary ? 1024 : 1000;
  const int step = binary ? 10 : 3;
  // Beyond the largest suffix, or the largest exponent that Parse takes, the number grows instead.
  const int largest = binary ? 60 : rep_->format == Format::kDecimalExponent ? kMaxExponent - kMaxExponent % step : 18;
  while (exponent < largest && number % factor == 0) {
    number /= factor;
    exponent += step;
  }
  if (binary) return absl::StrCat(number.str(), std::string(SuffixOf(Format::kBinarySI, exponent)));
  if (rep_->format != Format::kDecimalExponent) return absl::StrCat(number.str(), std::string(SuffixOf(Format::kDecimalSI, exponent)));
  return exponent == 0 ? number.str() : absl::StrCat(number.str(), "e", exponent);
}

absl::StatusOr<std::int64_t> Quantity::ToInt64() const {
  if (!IsInteger()) return absl::InvalidArgumentError(absl::StrCat("quantity ", ToString(), " is not a whole number"));
  return Narrow(rep_->nano / NanoPerUnit(), ToString(), "units");
}

absl::StatusOr<std::int64_t> Quantity::CeilToInt64() const { return Narrow(CeilDivide(rep_->nano, NanoPerUnit()), ToString(), "units"); }

absl::StatusOr<std::int64_t> Quantity::CeilToMilli() const { return Narrow(CeilDivide(rep_->nano, cpp_int(1000000)), ToString(), "thousandths"); }

Quantity operator+(const Quantity& left, const Quantity& right) {
  const Format format = left.IsZero() ? right.format() : left.format();
  return Quantity(std::make_shared<const Quantity::Rep>(Quantity::Rep{left.rep_->nano + right.rep_->nano, format, ""}));
}

Quantity operator-(const Quantity& left, const Quantity& right) {
  const Format format = left.IsZero() ? right.format() : left.format();
  return Quantity(std::make_shared<const Quantity::Rep>(Quantity::Rep{left.rep_->nano - right.rep_->nano, format, ""}));
}

Quantity Quantity::Times(std::int64_t factor) const { return Quantity(std::make_shared<const Rep>(Rep{rep_->nano * factor, rep_->format, ""})); }

Quantity Quantity::ScaleDown(std::int64_t numerator, std::int64_t denominator) const {
  if (denominator <= 0) return *this;
  const cpp_int unit = IsInteger() ? NanoPerUnit() : cpp_int(1);
  const cpp_int scaled = FloorDivide(rep_->nano * numerator, unit * denominator) * unit;
  return Quantity(std::make_shared<const Rep>(Rep{scaled, rep_->format, ""}));
}

Quantity Quantity::RoundUpToGrid(const Quantity& min, const Quantity& step) const {
  if (rep_->nano <= min.rep_->nano) return min;
  if (step.rep_->nano <= 0) return *this;
  const cpp_int steps = CeilDivide(rep_->nano - min.rep_->nano, step.rep_->nano);
  return Quantity(std::make_shared<const Rep>(Rep{min.rep_->nano + steps * step.rep_->nano, step.format(), ""}));
}

bool Quantity::IsOnGrid(const Quantity& min, const Quantity& step) const {
  if (step.rep_->nano <= 0) return false;
  return (rep_->nano - min.rep_->nano) % step.rep_->nano == 0;
}

bool operator==(const Quantity& left, const Quantity& right) { return left.rep_->nano == right.rep_->nano; }

std::strong_ordering operator<=>(const Quantity& left, const Quantity& right) {
  const int order = left.rep_->nano.compare(right.rep_->nano);
  return order <=> 0;
}

}  // namespace tranche
