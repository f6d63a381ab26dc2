#include "config/place.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>

#include <boost/json.hpp>

#include "base/text.h"
#include "model/json.h"

namespace tranche::config {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Levenshtein distance, letters' case ignored.
std::size_t Distance(std::string_view left, std::string_view right) {
  const std::string a = Lower(left), b = Lower(right);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string_view KindName(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull: return "nothing";
    case YamlNode::Kind::kScalar: return "a single value";
    case YamlNode::Kind::kSequence: return "a list";
    case YamlNode::Kind::kMap: return "a map";
  }
  return "something else";
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = Distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string Suggest(std::string_view word, const std::vector<std::string>& candidates) {
  if (const std::string nearest = Nearest(word, candidates); !nearest.empty()) return Cat("did you mean \"", nearest, "\"?");
  if (candidates.empty()) return "none is defined";
  std::string list;
  for (const std::string& candidate : candidates) Append(list, list.empty() ? "" : ", ", candidate);
  return Cat("use one of ", list);
}

void CheckDuplicateKeys(const Place& place) {
  if (!place.present()) return;
  if (place.node()->kind == YamlNode::Kind::kSequence) {
    for (const Place& item : place.Items()) CheckDuplicateKeys(item);
    return;
  }
  if (place.node()->kind != YamlNode::Kind::kMap) return;
  std::set<std::string_view> seen;
  for (const auto& [key, member] : place.Members()) { CheckDuplicateKeys(member); }
  for (const YamlMember& member : place.node()->members) {
    if (seen.insert(member.key).second) continue;
    const auto first =
        std::find_if(place.node()->members.begin(), place.node()->members.end(), [&](const YamlMember& other) { return other.key == member.key; });
    place.At(member).Fail("this key is here twice", Cat("keep one of them (the first is on line ", first->line, ")"));
  }
}

void Place::Fail(std::string_view what, std::string_view remedy) const {
  errors_->push_back({line_, path_, remedy.empty() ? std::string(what) : Cat(what, "; ", remedy)});
}

Place Place::At(const YamlMember& member) const {
  const bool absent = member.value.kind == YamlNode::Kind::kNull;
  return {absent ? nullptr : &member.value, member.line, path_.empty() ? member.key : Cat(path_, ".", member.key), errors_};
}

void Place::ExpectKeys(std::initializer_list<std::string_view> known) const {
  if (!present()) return Fail("is missing", "it must be a map");
  if (node_->kind != YamlNode::Kind::kMap) return Fail(Cat("must be a map, not ", KindName(node_->kind)), "write it as KEY: VALUE lines");
  const std::vector<std::string> candidates(known.begin(), known.end());
  for (const YamlMember& member : node_->members) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) At(member).Fail("unknown key", Suggest(member.key, candidates));
  }
}

Place Place::operator[](std::string_view key) const {
  if (present()) {
    for (const YamlMember& member : node_->members) {
      if (member.key == key) return At(member);
    }
  }
  return {nullptr, line_, path_.empty() ? std::string(key) : Cat(path_, ".", key), errors_};
}

std::vector<Place> Place::Items() const {
  std::vector<Place> items;
  if (!present()) return items;
  if (node_->kind != YamlNode::Kind::kSequence) {
    Fail(Cat("must be a list, not ", KindName(node_->kind)), "write it as [a, b] or with '- ' lines");
    return items;
  }
  for (std::size_t i = 0; i < node_->items.size(); ++i) {
    const YamlNode& item = node_->items[i];
    items.push_back({item.kind == YamlNode::Kind::kNull ? nullptr : &item, item.line, Cat(path_, "[", i, "]"), errors_});
  }
  return items;
}

std::vector<std::pair<std::string, Place>> Place::Members() const {
  std::vector<std::pair<std::string, Place>> members;
  if (!present()) return members;
  if (node_->kind != YamlNode::Kind::kMap) {
    Fail(Cat("must be a map, not ", KindName(node_->kind)), "write it as KEY: VALUE lines");
    return members;
  }
  for (const YamlMember& member : node_->members) members.emplace_back(member.key, At(member));
  return members;
}

std::string Place::Text(std::string_view remedy) const {
  if (!present()) {
    Fail("is missing", remedy);
    return "";
  }
  if (node_->kind != YamlNode::Kind::kScalar) {
    Fail(Cat("must be a single value, not ", KindName(node_->kind)), remedy);
    return "";
  }
  if (node_->text.empty()) Fail("is empty", remedy);
  return node_->text;
}

std::optional<bool> Place::Flag() const {
  if (!present()) return std::nullopt;
  const std::string text = Text("write true or false");
  if (text == "true" || text == "false") return text == "true";
  if (!text.empty()) Fail(Cat("\"", text, "\" is not a boolean"), "write true or false");
  return std::nullopt;
}

std::optional<Quantity> Place::Amount() const {
  if (!present()) return std::nullopt;
  const std::string text = Text("write an amount such as 100M or 10Gi");
  if (text.empty()) return std::nullopt;
  absl::StatusOr<Quantity> amount = Quantity::Parse(text);
  if (!amount.ok()) {
    Fail(View(amount.status().message()), "write an amount such as 100M or 10Gi");
    return std::nullopt;
  }
  if (amount->IsNegative()) {
    Fail(Cat("\"", text, "\" is negative"), "an amount is 0 or more");
    return std::nullopt;
  }
  return *std::move(amount);
}

std::vector<std::string> Place::Texts() const {
  std::vector<std::string> texts;
  for (const Place& item : Items()) {
    if (std::string text = item.Text("write text, or remove the entry"); !text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

std::string Place::JsonObject(std::size_t max_bytes) const {
  if (!present()) return "{}";
  if (node_->kind != YamlNode::Kind::kMap) {
    Fail(Cat("must be a map, not ", KindName(node_->kind)), "write it as KEY: VALUE lines or {KEY: VALUE}");
    return "{}";
  }
  std::string text = ToJsonText(ToJson(*node_));
  if (text.size() <= max_bytes) return text;
  Fail(Cat("is ", text.size(), " bytes as JSON"), Cat("at most ", max_bytes, " are allowed"));
  return "{}";
}

}  // namespace tranche::config
