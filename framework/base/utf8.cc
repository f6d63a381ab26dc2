#include "base/utf8.h"

#include <algorithm>
#include <array>

namespace tranche {

std::optional<CodePoint> FrontCodePoint(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto byte = [&](std::size_t at) -> std::uint32_t { return static_cast<unsigned char>(text[at]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return CodePoint{first, 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return std::nullopt;
  std::uint32_t value = first & (0xFFU >> (bytes + 1));
  for (std::size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xC0U) != 0x80U) return std::nullopt;
    value = (value << 6U) | (byte(at) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[bytes] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
  return CodePoint{value, bytes};
}

std::size_t SequenceLength(std::string_view text) {
  const std::optional<CodePoint> point = FrontCodePoint(text);
  return point.has_value() ? point->bytes : 0;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(std::string_view text, std::size_t max_bytes) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string result;
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    const std::string_view piece = length == 0 ? kReplacement : text.substr(0, length);
    if (result.size() + piece.size() > max_bytes) break;
    result += piece;
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string Shortened(std::string_view text, std::size_t max_bytes) {
  std::string whole = ToUtf8(text);
  return whole.size() <= max_bytes ? whole : ToUtf8(whole, max_bytes - 3) + "...";
}

}  // namespace tranche
