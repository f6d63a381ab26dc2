#include "ctl/yaml_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/utf8.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

// What YAML readers refuse raw, or take for a line end.
bool MustBeEscaped(std::uint32_t value) {
  return value < 0x20 || (value >= 0x7F && value <= 0x9F) || value == 0x2028 || value == 0x2029 || value == 0xFEFF || value == 0xFFFE || value == 0xFFFF;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::optional<CodePoint> point = FrontCodePoint(text);
    const std::size_t bytes = point.has_value() ? point->bytes : 1;
    const std::uint32_t value = point.has_value() ? point->value : 0xFFFD;
    if (value == '"' || value == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(value);
    } else if (value == '\n') {
      quoted += "\\n";
    } else if (MustBeEscaped(value) || !point.has_value()) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", value);
      quoted += escape.data();
    } else {
      quoted += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return quoted + "\"";
}

bool IsReserved(std::string_view text) {
  constexpr std::array<std::string_view, 9> kReserved = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kReserved.begin(), kReserved.end(), lower) != kReserved.end();
}

// A letter, '/' or a long option first, then characters without meaning in YAML: no number, date, anchor or comment looks like that.
bool IsPlain(std::string_view text) {
  if (text.empty() || IsReserved(text) || text.back() == ':') return false;
  std::string_view rest = text;
  if (rest.starts_with("--")) rest.remove_prefix(2);
  if (rest.empty() || !(std::isalpha(static_cast<unsigned char>(rest[0])) != 0 || rest[0] == '/')) return false;
  return std::all_of(rest.begin(), rest.end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || std::string_view("/_.=:-").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string Scalar(std::string_view text) { return IsPlain(text) ? std::string(text) : Quoted(text); }

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

// Whether a literal block gives back exactly this text: at most one line end at its end, an indented first line would set the indentation.
bool FitsLiteral(std::string_view text) {
  if (text.find('\n') == std::string_view::npos || text.ends_with("\n\n") || text[0] == ' ' || text[0] == '\n') return false;
  for (const std::string_view line : Lines(text)) {
    if (!line.empty() && line.back() == ' ') return false;
    for (std::string_view rest = line; !rest.empty();) {
      const std::optional<CodePoint> point = FrontCodePoint(rest);
      if (!point.has_value() || MustBeEscaped(point->value)) return false;
      rest.remove_prefix(point->bytes);
    }
  }
  return true;
}

std::string Literal(std::string_view text, const std::string& indent) {
  const bool ends = text.ends_with('\n');
  if (ends) text.remove_suffix(1);
  std::string block = ends ? "|\n" : "|-\n";
  for (const std::string_view line : Lines(text)) {
    if (!line.empty()) block += indent;
    block += line;
    block += '\n';
  }
  return block;
}

std::string_view ViewOf(const json::string& text) { return {text.data(), text.size()}; }

class Writer {
 public:
  std::string Document(const json::value& value) {
    if (IsInline(value)) return Inline(value, "") + "\n";
    Block(value, "", false);
    return std::move(text_);
  }

 private:
  static bool IsInline(const json::value& value) {
    if (value.is_object()) return value.get_object().empty();
    if (value.is_array()) return value.get_array().empty();
    return true;
  }

  static std::string Inline(const json::value& value, const std::string& indent) {
    if (!value.is_string()) return json::serialize(value);
    const std::string_view text = ViewOf(value.get_string());
    return FitsLiteral(text) ? Literal(text, indent) : Scalar(text);
  }

  // `started`: the first line already has its indentation ("- ").
  void Block(const json::value& value, const std::string& indent, bool started) {
    if (const json::object* object = value.if_object()) {
      for (const json::key_value_pair& member : *object) {
        if (!std::exchange(started, false)) text_ += indent;
        text_ += Scalar({member.key().data(), member.key().size()});
        text_ += ':';
        // Lists stand at their key's own depth, as kubectl writes them.
        After(member.value(), member.value().is_array() ? indent : indent + "  ", indent + "  ");
      }
      return;
    }
    for (const json::value& item : value.get_array()) {
      if (!std::exchange(started, false)) text_ += indent;
      text_ += '-';
      if (IsInline(item)) {
        After(item, indent + "  ", indent + "  ");
      } else {
        text_ += ' ';
        Block(item, indent + "  ", true);
      }
    }
  }

  void After(const json::value& value, const std::string& block_indent, const std::string& text_indent) {
    if (!IsInline(value)) {
      text_ += '\n';
      Block(value, block_indent, false);
      return;
    }
    text_ += ' ';
    text_ += Inline(value, text_indent);
    if (text_.back() != '\n') text_ += '\n';
  }

  std::string text_;
};

}  // namespace

std::string WriteYaml(const json::value& value) { return Writer().Document(value); }

}  // namespace tranche::ctl
