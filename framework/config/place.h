// A place in the configuration: a YAML node with its path, and where to report what is wrong with it. Internal to the room.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "config/yaml.h"

namespace tranche::config {

class Place {
 public:
  Place(const YamlNode* node, int line, std::string path, std::vector<ParseError>* errors)
      : node_(node), line_(line), path_(std::move(path)), errors_(errors) {}

  bool present() const { return node_ != nullptr; }  // a key without a value counts as absent
  int line() const { return line_; }
  const std::string& path() const { return path_; }
  const YamlNode* node() const { return node_; }

  void Fail(std::string_view what, std::string_view remedy) const;

  // Reports a value that is no map and keys that are not in `known`.
  void ExpectKeys(std::initializer_list<std::string_view> known) const;
  bool Has(std::string_view key) const { return (*this)[key].present(); }
  Place operator[](std::string_view key) const;
  Place At(const YamlMember& member) const;
  std::vector<Place> Items() const;                            // reports a value that is no list
  std::vector<std::pair<std::string, Place>> Members() const;  // reports a value that is no map

  // Scalars. Absent is an error for Text; the optional ones answer nullopt.
  std::string Text(std::string_view remedy) const;
  std::optional<bool> Flag() const;
  std::optional<Quantity> Amount() const;  // ≥ 0
  std::vector<std::string> Texts() const;
  // A map as JSON text; "{}" when absent.
  std::string JsonObject(std::size_t max_bytes) const;

 private:
  const YamlNode* node_;
  int line_;
  std::string path_;
  std::vector<ParseError>* errors_;
};

// The candidate that `word` is probably a misspelling of, or "".
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);
// "did you mean "x"?" or "use one of a, b, c".
std::string Suggest(std::string_view word, const std::vector<std::string>& candidates);

// Reports every key that is twice in one map, everywhere below `place`.
void CheckDuplicateKeys(const Place& place);

}  // namespace tranche::config
