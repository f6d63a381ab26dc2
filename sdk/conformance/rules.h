// The numbered rules of the backend ABI: what docs/backend-rules.md lists, and what every finding of the kit names. A number is never
// used again for another rule.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tranche::conform {

struct Rule {
  std::string_view id;           // "TB-001"
  std::string_view part;         // heading of the document
  std::string_view text;         // the rule, one sentence
  std::string_view check;        // how the kit finds out
  std::string_view enforced;     // who else acts on it at run time: "loader", "host", "runner", "-"
  std::string_view consequence;  // what a violation causes
};

std::span<const Rule> Rules();
// nullptr for an unknown id.
const Rule* FindRule(std::string_view id);
// docs/backend-rules.md, whole.
std::string RulesDocument();

}  // namespace tranche::conform
