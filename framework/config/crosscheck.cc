#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/parts.h"

namespace tranche::config {
namespace {

// Names of one kind and the line of each.
class Names {
 public:
  explicit Names(std::string_view kind) : kind_(kind) {}
  void Add(const std::string& name, const Place& at) {
    if (name.empty()) return;
    const auto [entry, added] = lines_.emplace(name, at.line());
    if (!added) at.Fail(Cat("\"", name, "\" already names ", kind_), Cat("choose another name (the first is on line ", entry->second, ")"));
  }
  void Expect(const std::string& name, const Place& at) const {
    if (name.empty() || lines_.contains(name)) return;
    std::vector<std::string> known;
    for (const auto& [other, line] : lines_) known.push_back(other);
    at.Fail(Cat("\"", name, "\" does not name ", kind_), Suggest(name, known));
  }

 private:
  std::string kind_;
  std::map<std::string, int> lines_;
};

void CheckDriver(const DriverConfiguration& driver, const Place& at, const Names& backends, Names& classes) {
  Names offers("an offer of this driver");
  const std::vector<Place> offer_places = at["offers"].Items();
  for (std::size_t i = 0; i < driver.offers.size(); ++i) {
    offers.Add(driver.offers[i].name, offer_places[i]["name"]);
    backends.Expect(driver.offers[i].backend, offer_places[i]["backend"]);
  }
  const std::vector<Place> class_places = at["classes"].Items();
  for (std::size_t i = 0; i < driver.classes.size(); ++i) {
    classes.Add(driver.classes[i].name, class_places[i]["name"]);
    offers.Expect(driver.classes[i].offer, class_places[i]["offer"]);
  }
}

}  // namespace

void CheckAcross(const HostConfiguration& configuration, const Place& root) {
  if (configuration.backends.empty() && configuration.drivers.empty()) return;
  Names backends("a backend"), drivers("a driver"), classes("a class");
  // Places repeat what reading reported when a list is no list: lists that were read have their items.
  if (!configuration.backends.empty()) {
    const std::vector<Place> places = root["backends"].Items();
    for (std::size_t i = 0; i < configuration.backends.size(); ++i) backends.Add(configuration.backends[i].name, places[i]["name"]);
  }
  if (configuration.drivers.empty()) return;
  const std::vector<Place> places = root["drivers"].Items();
  for (std::size_t i = 0; i < configuration.drivers.size(); ++i) {
    drivers.Add(configuration.drivers[i].name, places[i]["name"]);
    CheckDriver(configuration.drivers[i], places[i], backends, classes);
  }
}

}  // namespace tranche::config
