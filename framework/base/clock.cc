#include "base/clock.h"

#include <array>
#include <cstdio>

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace tranche {

namespace {
using std::chrono::floor;
using std::chrono::microseconds;

absl::Status BadTime(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("time \"", absl::CHexEscape(std::string(text.substr(0, 64))), "\" is not RFC 3339; write one such as 2026-11-29T12:00:00Z"));
}

// Reads the digits and fixed characters of a time from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  int Number(std::size_t digits) {
    int value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (rest_.size() <= i || rest_[i] < '0' || rest_[i] > '9') return Fail();
      value = value * 10 + (rest_[i] - '0');
    }
    rest_.remove_prefix(digits);
    return value;
  }
  bool Take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void Expect(char wanted) {
    if (!Take(wanted)) Fail();
  }
  microseconds Fraction() {  // finer than a microsecond is dropped
    int value = 0;
    int count = 0;
    for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; rest_.remove_prefix(1), ++count) {
      if (count < 6) value = value * 10 + (rest_.front() - '0');
    }
    if (count == 0) Fail();
    for (; count < 6; ++count) value *= 10;
    return microseconds(value);
  }
  bool Finished() const { return good_ && rest_.empty(); }

 private:
  int Fail() {
    good_ = false;
    rest_ = {};
    return 0;
  }
  std::string_view rest_;
  bool good_ = true;
};

std::chrono::minutes Offset(Reader& reader) {
  if (reader.Take('Z')) return std::chrono::minutes(0);
  const bool west = reader.Take('-');
  if (!west) reader.Expect('+');
  const int hours = reader.Number(2);
  reader.Expect(':');
  const int minutes = reader.Number(2);
  return std::chrono::minutes((west ? -1 : 1) * (hours * 60 + minutes));
}
}  // namespace

std::string FormatTime(WallTime time) {
  const auto days = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss<microseconds> clock(floor<microseconds>(time - days));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text.data();
}

absl::StatusOr<WallTime> ParseTime(std::string_view text) {
  Reader reader(text);
  const int year = reader.Number(4);
  reader.Expect('-');
  const int month = reader.Number(2);
  reader.Expect('-');
  const int day = reader.Number(2);
  reader.Expect('T');
  const int hour = reader.Number(2);
  reader.Expect(':');
  const int minute = reader.Number(2);
  reader.Expect(':');
  const int second = reader.Number(2);
  const microseconds fraction = reader.Take('.') ? reader.Fraction() : microseconds(0);
  const std::chrono::minutes offset = Offset(reader);
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  // The clock counts nanoseconds in 64 bits, which ends in 2262.
  const bool in_range = date.ok() && year >= 1700 && year <= 2261 && hour < 24 && minute < 60 && second < 60 && offset > std::chrono::hours(-24) &&
                        offset < std::chrono::hours(24);
  if (!reader.Finished() || !in_range) return BadTime(text);
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction - offset;
}

}  // namespace tranche
