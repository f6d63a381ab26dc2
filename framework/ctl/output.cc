#include "ctl/output.h"

#include <algorithm>
#include <iostream>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

// Characters, not bytes: continuation bytes take no column.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }));
}

std::string Shown(const json::value& value) {
  if (const json::string* text = value.if_string()) return std::string(text->data(), text->size());
  if (value.is_null()) return "";
  return ToJsonText(value);
}

}  // namespace

std::string Table::Text() const {
  std::vector<std::size_t> widths(rows_.front().size(), 1);
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t column = 0; column < row.size() && column < widths.size(); ++column) widths[column] = std::max(widths[column], Width(row[column]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string cell = row[column].empty() ? "-" : row[column];
      line += cell;
      if (column + 1 < row.size()) line.append(widths[column] - Width(cell) + 2, ' ');
    }
    text += line + "\n";
  }
  return text;
}

void PrintJson(const json::value& value) { std::cout << ToPrettyJson(value); }

int Fail(const absl::Status& status) {
  std::cerr << "tranchectl: " << View(status.message()) << " (" << CodeName(status.code()) << ")\n";
  return kFailure;
}

const json::value& Member(const json::value& object, std::string_view key) {
  static const json::value nothing;
  const json::object* fields = object.if_object();
  const json::value* found = fields == nullptr ? nullptr : fields->if_contains(key);
  return found == nullptr ? nothing : *found;
}

std::string Text(const json::value& object, std::string_view key) { return Shown(Member(object, key)); }

std::vector<json::value> Items(const json::value& object, std::string_view key) {
  const json::array* array = Member(object, key).if_array();
  if (array == nullptr) return {};
  return {array->begin(), array->end()};
}

std::string Pairs(const json::value& object) {
  std::string text;
  const json::object* fields = object.if_object();
  if (fields == nullptr) return text;
  for (const auto& [key, value] : *fields) {
    if (!text.empty()) text += ",";
    Append(text, std::string_view(key), "=", Shown(value));
  }
  return text;
}

}  // namespace tranche::ctl
