// UTF-8, SHA-256, files and names of codes: the little that the kit needs without a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tranche::conform {

// The length of the UTF-8 sequence at `at`, 0 when it is not one.
std::size_t Utf8Length(std::string_view text, std::size_t at);
bool IsUtf8(std::string_view text);

std::string Sha256(std::string_view data);  // lower-case hexadecimal
// nullopt when it cannot be read or is larger.
std::optional<std::string> ReadWhole(const std::string& path, std::size_t max_bytes);
std::string RandomUuid();
// "INTERNAL"; "code 99" for what is none of the canonical codes.
std::string CodeName(std::int32_t code);

}  // namespace tranche::conform
