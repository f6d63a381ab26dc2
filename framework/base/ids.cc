#include "base/ids.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <random>
#include <span>

#include <openssl/evp.h>
#include <sys/random.h>

namespace tranche {

namespace {
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::array<std::uint8_t, 16> RandomBytes() {
  std::array<std::uint8_t, 16> bytes{};
  ssize_t got = 0;
  do { got = getrandom(bytes.data(), bytes.size(), 0); } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(bytes.size())) return bytes;
  std::random_device device;  // a sandbox that forbids the system call
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(device());
  return bytes;
}

bool IsDnsText(std::string_view text) {
  if (text.empty() || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; });
}

}  // namespace

std::string NewUuid() {
  std::array<std::uint8_t, 16> bytes = RandomBytes();
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
  std::string text = Hex(bytes);
  for (const std::size_t dash : {8u, 13u, 18u, 23u}) text.insert(dash, "-");
  return text;
}

bool IsUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool digit = IsDigit(text[i]) || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !digit) return false;
  }
  return true;
}

std::string Sha256Hex(std::string_view data) {
  std::array<std::uint8_t, 32> digest{};
  unsigned length = 0;
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);  // EVP_sha256() would be looked up at every call
  EVP_Digest(data.data(), data.size(), digest.data(), &length, kSha256, nullptr);
  return Hex(digest);
}

bool IsDnsLabel(std::string_view text) { return text.size() <= 63 && IsDnsText(text); }

bool IsDnsSubdomain(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  while (true) {
    const std::size_t dot = text.find('.');
    if (!IsDnsText(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool IsQualifiedName(std::string_view text) {
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos) {
    if (slash > 63 || !IsDnsSubdomain(text.substr(0, slash))) return false;
    text.remove_prefix(slash + 1);
  }
  if (text.empty() || text.size() > 32 || IsDigit(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return IsLower(c) || IsUpper(c) || IsDigit(c) || c == '_'; });
}

std::string ToDnsLabel(std::string_view text) {
  if (IsDnsLabel(text)) return std::string(text);
  const std::string digest = Sha256Hex(text).substr(0, 8);
  std::string label;
  for (const char c : text.substr(0, 63 - digest.size() - 1)) {
    const char lower = IsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c;
    label += IsLower(lower) || IsDigit(lower) ? lower : '-';
  }
  label.erase(0, std::min(label.find_first_not_of('-'), label.size()));
  while (!label.empty() && label.back() == '-') label.pop_back();
  return label.empty() ? digest : label + "-" + digest;
}

}  // namespace tranche
