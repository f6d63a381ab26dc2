#include "config/yaml.h"

#include <charconv>
#include <cmath>
#include <exception>
#include <optional>
#include <sstream>

#include <boost/json.hpp>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "base/text.h"
#include "base/utf8.h"

namespace tranche::config {
namespace json = boost::json;

namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 50000;

// Ends the parse at the first thing that a configuration may not contain.
struct Refused : std::exception {
  ParseError error;
};

[[noreturn]] void Refuse(const YAML::Mark& mark, std::string message) {
  Refused refused;
  refused.error = {mark.line + 1, "", std::move(message)};
  throw refused;
}

// Builds the tree from yaml-cpp's events, without its node graph (whose aliases share and whose lookups are linear).
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Add(mark, anchor, {YamlNode::Kind::kNull, mark.line + 1, "", true, {}, {}}); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Refuse(mark, "aliases (*name) are not supported; write the value out"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    CheckTag(mark, tag);
    if (!IsUtf8(value)) Refuse(mark, "a value or key is not UTF-8 text; save the file as UTF-8");
    Add(mark, anchor, {YamlNode::Kind::kScalar, mark.line + 1, value, tag != "!", {}, {}});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(mark, anchor, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(mark, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    std::optional<std::pair<std::string, int>> key;  // of a map: read, its value not yet
  };

  // "?" marks a plain value without a tag and "!" a quoted one.
  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    Refuse(mark, "tags (!name) are not supported; quote the value to make it text");
  }

  void CheckBounds(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) Refuse(mark, "anchors (&name) are not supported; write the value out where it is needed");
    if (++nodes_ > kMaxNodes) Refuse(mark, Cat("more than ", kMaxNodes, " values; split the configuration or make it smaller"));
  }

  bool AwaitsKey() const { return !levels_.empty() && levels_.back().node.kind == YamlNode::Kind::kMap && !levels_.back().key.has_value(); }

  void Add(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode node) {
    CheckBounds(mark, anchor);
    if (!AwaitsKey()) return Place(std::move(node));
    if (node.kind != YamlNode::Kind::kScalar) Refuse(mark, "a key is missing before ':'");
    levels_.back().key.emplace(std::move(node.text), node.line);
  }

  void Open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    CheckBounds(mark, anchor);
    if (AwaitsKey()) Refuse(mark, "a key must be plain text, not a list or a map");
    if (levels_.size() >= kMaxDepth) Refuse(mark, Cat("nested deeper than ", kMaxDepth, " levels"));
    levels_.push_back({{kind, mark.line + 1, "", true, {}, {}}, std::nullopt});
  }

  void Close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Place(std::move(node));
  }

  void Place(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kSequence) {
      level.node.items.push_back(std::move(node));
      return;
    }
    level.node.members.push_back({std::move(level.key->first), level.key->second, std::move(node)});
    level.key.reset();
  }

  YamlNode root_;
  std::vector<Level> levels_;
  std::size_t nodes_ = 0;
};

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  for (std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

template <typename Number>
std::optional<Number> Whole(std::string_view text, int base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<json::value> PlainNumber(std::string_view text) {
  if (text.starts_with("0x")) {
    if (const auto number = Whole<std::uint64_t>(text.substr(2), 16)) return json::value(*number);
    return std::nullopt;
  }
  if (text.starts_with("0o")) {
    if (const auto number = Whole<std::uint64_t>(text.substr(2), 8)) return json::value(*number);
    return std::nullopt;
  }
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  if (const auto number = Whole<std::int64_t>(text, 10)) return json::value(*number);
  if (const auto number = Whole<std::uint64_t>(text, 10)) return json::value(*number);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return json::value(number);
}

json::value PlainScalar(std::string_view text) {
  if (IsOneOf(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (IsOneOf(text, {"true", "True", "TRUE"})) return true;
  if (IsOneOf(text, {"false", "False", "FALSE"})) return false;
  if (std::optional<json::value> number = PlainNumber(text)) return *number;
  return json::value(json::string_view(text.data(), text.size()));
}

}  // namespace

YamlOutcome ParseYaml(std::string_view text) {
  YamlOutcome outcome;
  if (text.size() > kMaxBytes) {
    outcome.errors.push_back({0, "", Cat("the file has ", text.size(), " bytes; at most ", kMaxBytes, " are read")});
    return outcome;
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) {
      outcome.errors.push_back({1, "", "the file is empty; it needs apiVersion: tranche.dev/v1alpha1 and kind: HostConfiguration"});
      return outcome;
    }
    outcome.root = builder.Take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      const int line = second.Take().line;
      outcome.errors.push_back({line, "", "a second document starts here; a configuration is one document, remove the '---' and what follows"});
    }
  } catch (const Refused& refused) { outcome.errors.push_back(refused.error); } catch (const YAML::Exception& error) {
    outcome.errors.push_back({error.mark.is_null() ? 0 : error.mark.line + 1, "", Cat("not valid YAML: ", error.msg)});
  } catch (const std::exception& error) { outcome.errors.push_back({0, "", Cat("not valid YAML: ", std::string_view(error.what()))}); }
  return outcome;
}

json::value ToJson(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return nullptr;
    case YamlNode::Kind::kScalar: return node.plain ? PlainScalar(node.text) : json::value(json::string_view(node.text));
    case YamlNode::Kind::kSequence: {
      json::array array;
      for (const YamlNode& item : node.items) array.push_back(ToJson(item));
      return array;
    }
    case YamlNode::Kind::kMap: break;
  }
  json::object object;
  for (const YamlMember& member : node.members) object[member.key] = ToJson(member.value);
  return object;
}

}  // namespace tranche::config
