// What tranchectl prints: aligned tables for people, JSON for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <boost/json/fwd.hpp>

namespace tranche::ctl {

enum class Format { kTable, kJson };

// Exit codes of every command.
inline constexpr int kSuccess = 0, kFailure = 1, kUsage = 2;

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // Columns as wide as their widest cell, two spaces between, "-" for an empty cell.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

void PrintJson(const boost::json::value& value);
// To standard error; kFailure.
int Fail(const absl::Status& status);

// Members of an answer, tolerant: absent or of another kind is empty.
std::string Text(const boost::json::value& object, std::string_view key);  // numbers and booleans as text, objects as compact JSON
const boost::json::value& Member(const boost::json::value& object, std::string_view key);
std::vector<boost::json::value> Items(const boost::json::value& object, std::string_view key);
// {"bandwidth": "50M"} as "bandwidth=50M".
std::string Pairs(const boost::json::value& object);

}  // namespace tranche::ctl
