// Names and values of attributes made acceptable to the API server.
#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/ids.h"
#include "base/text.h"
#include "base/utf8.h"
#include "slices/planner.h"

namespace tranche::slices {
namespace {

constexpr std::size_t kMaxIdentifier = 32;
constexpr std::size_t kMaxText = 64;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string ToIdentifier(std::string_view text) {
  std::string identifier;
  for (const char c : text) identifier += IsAlphanumeric(c) || c == '_' ? c : '_';
  if (IsDigit(identifier.front())) identifier.insert(0, 1, '_');
  if (identifier.size() <= kMaxIdentifier) return identifier;
  const std::string digest = Sha256Hex(text).substr(0, 6);  // two long names stay two names
  return Cat(identifier.substr(0, kMaxIdentifier - digest.size() - 1), "_", digest);
}

// ---- Versions.

// The decimal number at the front, without leading zeros; nullopt: none, or too large for a server to read.
std::optional<std::string> TakeNumber(std::string_view& rest) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || rest.empty() || !IsDigit(rest.front())) return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return std::to_string(number);
}

// Identifiers joined by dots from any text: what cannot be in one becomes '-', empty ones go.
std::string Identifiers(std::string_view text, bool numbers_without_zeros) {
  std::string joined;
  while (!text.empty()) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    std::string one;
    for (const char c : text.substr(0, dot)) one += IsAlphanumeric(c) || c == '-' ? c : '-';
    text.remove_prefix(std::min(dot + 1, text.size()));
    const bool number = !one.empty() && std::all_of(one.begin(), one.end(), IsDigit);
    if (number && numbers_without_zeros) one.erase(0, std::min(one.find_first_not_of('0'), one.size() - 1));
    if (one.empty()) continue;
    if (!joined.empty()) joined += '.';
    joined += one;
  }
  return joined;
}

struct Version {
  std::string core, prerelease, build;
  std::string Text() const { return Cat(core, prerelease.empty() ? "" : "-", prerelease, build.empty() ? "" : "+", build); }
};

// What follows the three numbers.
void ReadSuffix(std::string_view rest, Version& version) {
  if (rest.empty()) return;
  const bool separate = rest.front() == '-' || rest.front() == '+';
  const bool prerelease = rest.front() == '-' || (IsAlphanumeric(rest.front()) && !IsDigit(rest.front()));  // 1.2.3rc1 comes before 1.2.3
  if (separate || !prerelease) rest.remove_prefix(1);
  if (!prerelease) {  // a fourth number, a distribution's suffix: does not order
    version.build = Identifiers(rest, false);
    return;
  }
  const std::size_t plus = std::min(rest.find('+'), rest.size());
  version.prerelease = Identifiers(rest.substr(0, plus), true);
  if (plus < rest.size()) version.build = Identifiers(rest.substr(plus + 1), false);
}

}  // namespace

std::optional<std::string> RepairAttributeName(std::string_view text) {
  if (IsQualifiedName(text)) return std::string(text);
  const std::size_t slash = text.find('/');
  const std::string_view domain = text.substr(0, slash == std::string_view::npos ? 0 : slash);
  const std::string_view rest = slash == std::string_view::npos ? text : text.substr(slash + 1);
  if (!domain.empty() && domain.size() <= 63 && IsDnsSubdomain(domain) && !rest.empty()) return Cat(domain, "/", ToIdentifier(rest));
  if (std::none_of(text.begin(), text.end(), IsAlphanumeric)) return std::nullopt;
  return ToIdentifier(text);
}

std::string RepairText(std::string_view text) { return ToUtf8(text, kMaxText); }

std::optional<std::string> RepairVersion(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  if (text.size() > 1 && (text.front() == 'v' || text.front() == 'V') && IsDigit(text[1])) text.remove_prefix(1);
  Version version;
  for (int part = 0; part < 3; ++part) {
    std::optional<std::string> number = "0";
    const bool given = part == 0 || (text.size() > 1 && text.front() == '.' && IsDigit(text[1]));
    if (given) {
      if (part > 0) text.remove_prefix(1);
      number = TakeNumber(text);
    }
    if (!number.has_value()) return std::nullopt;
    Append(version.core, part == 0 ? "" : ".", *number);
  }
  ReadSuffix(text, version);
  if (version.Text().size() > kMaxText) version.build.clear();
  if (version.Text().size() > kMaxText) version.prerelease.clear();
  return version.Text().size() <= kMaxText ? std::optional(version.Text()) : std::nullopt;
}

}  // namespace tranche::slices
