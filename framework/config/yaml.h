// One YAML document as a plain tree with line numbers; internal to the room. Bounded: size, depth and number of nodes; aliases, anchors, tags and
// further documents are refused, so that the tree is never larger than the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "config/config.h"

namespace tranche::config {

constexpr std::size_t kMaxBytes = 1 << 20;

struct YamlMember;
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  int line = 0;       // 1-based
  std::string text;   // of a scalar
  bool plain = true;  // not quoted: typed when it becomes JSON
  std::vector<YamlNode> items;
  std::vector<YamlMember> members;  // in the file's order, duplicates kept
};
struct YamlMember {
  std::string key;
  int line = 0;  // of the key
  YamlNode value;
};

struct YamlOutcome {
  YamlNode root;
  std::vector<ParseError> errors;  // not empty: root is unusable
};
YamlOutcome ParseYaml(std::string_view text);

// Plain scalars become null, booleans, integers and numbers by YAML's core schema; anything else ("10G") and quoted text stays a string.
boost::json::value ToJson(const YamlNode& node);

}  // namespace tranche::config
