#include "base/order.h"

#include <algorithm>
#include <cstddef>

namespace tranche {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes the run of digits that `text` begins with, without its leading zeros.
std::string_view TakeNumber(std::string_view& text) {
  const auto* const end = std::find_if_not(text.begin(), text.end(), IsDigit);
  std::string_view number = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(number.size());
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

// Below, at or above 0, as std::string_view::compare.
int Compare(std::string_view left, std::string_view right) {
  while (!left.empty() && !right.empty()) {
    if (IsDigit(left.front()) && IsDigit(right.front())) {
      const std::string_view a = TakeNumber(left), b = TakeNumber(right);
      if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
      if (const int difference = a.compare(b); difference != 0) return difference;
      continue;
    }
    if (left.front() != right.front()) return static_cast<unsigned char>(left.front()) < static_cast<unsigned char>(right.front()) ? -1 : 1;
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  return static_cast<int>(!left.empty()) - static_cast<int>(!right.empty());
}

}  // namespace

bool NaturalLess(std::string_view left, std::string_view right) {
  const int difference = Compare(left, right);
  return difference != 0 ? difference < 0 : left < right;
}

}  // namespace tranche
