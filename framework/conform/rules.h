// The numbered rules of the kubelet's DRA protocol that can be seen from outside a driver: what docs/dra-conformance.md lists, and what every finding
// of dra-conform names. A number is never given to another rule.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tranche::dra_conform {

enum class Level {
  kMust,    // a violation breaks pods or loses state
  kShould,  // a violation costs something, in some version or case: a warning
};
std::string_view LevelName(Level level);  // "must" | "should"

struct Rule {
  std::string_view id;    // "D-1"
  std::string_view part;  // heading of the document
  Level level;
  std::string_view text;         // the rule, one sentence
  std::string_view check;        // how dra-conform finds out
  std::string_view consequence;  // what a violation causes
  std::string_view source;       // where the rule comes from: an API, a KEP, code of Kubernetes, an issue
};

std::span<const Rule> Rules();
// nullptr for an unknown id.
const Rule* FindRule(std::string_view id);
// The tables of docs/dra-conformance.md, a part each.
std::string RulesTable();

}  // namespace tranche::dra_conform
