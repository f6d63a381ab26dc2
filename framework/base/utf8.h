#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tranche {

// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 1 to 4
};

// The code point at the front; nullopt for an empty text and for bytes that are not UTF-8.
std::optional<CodePoint> FrontCodePoint(std::string_view text);

// Bytes of the sequence at the front, 0 where FrontCodePoint finds none.
std::size_t SequenceLength(std::string_view text);

bool IsUtf8(std::string_view text);

// The text cut to `max_bytes` on a character boundary; every byte that is not UTF-8 becomes U+FFFD.
std::string ToUtf8(std::string_view text, std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

// The same for people: a text that is cut ends with "...". `max_bytes` is at least 3.
std::string Shortened(std::string_view text, std::size_t max_bytes);

}  // namespace tranche
