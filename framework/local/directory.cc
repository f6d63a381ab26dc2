#include "local/directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/match.h>
#include <boost/json.hpp>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::local {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxObjectBytes = 4 * 1024 * 1024;
constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 0750;
// Of a file name's 255 bytes, "_", ".json" and the temporary name's decoration leave this much.
constexpr std::size_t kMaxClaimName = 220;

absl::StatusOr<json::value> ReadJsonFile(const std::string& path) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxObjectBytes));
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), Cat("\"", path, "\""));
  return value;
}

// The array member `key`; empty when it is absent or of another kind.
json::array ArrayOf(const json::value& object, std::string_view key) {
  const json::value* member = object.is_object() ? object.get_object().if_contains(json::string_view(key.data(), key.size())) : nullptr;
  return member != nullptr && member->is_array() ? member->get_array() : json::array();
}

std::string TextOf(const json::value& object, std::string_view key) {
  const json::value* member = object.is_object() ? object.get_object().if_contains(json::string_view(key.data(), key.size())) : nullptr;
  return member != nullptr && member->is_string() ? std::string(member->get_string().c_str()) : std::string();
}

std::string Qualified(std::string_view driver, std::string_view counter_set) { return Cat(driver, "/", counter_set); }

json::value EncodeSlice(const std::string& driver, const inventory::Snapshot& snapshot) {
  json::array devices, sets;
  for (const PublishedDevice& device : snapshot.devices) {
    if (device.driver == driver) devices.push_back(EncodePublishedDevice(device));
  }
  if (const auto found = snapshot.counter_sets.find(driver); found != snapshot.counter_sets.end()) {
    for (const CounterSet& set : found->second) sets.push_back(json::object{{"name", set.name}, {"counters", EncodeQuantities(set.counters)}});
  }
  return json::object{{"driver", driver}, {"devices", std::move(devices)}, {"sharedCounters", std::move(sets)}};
}

// Absent is an empty list; anything else but a list is named, not taken for empty.
absl::Status CheckList(const json::value& object, std::string_view key) {
  if (!object.is_object()) return absl::InvalidArgumentError("is no JSON object; the host writes it again when it is removed");
  const json::value* member = object.get_object().if_contains(json::string_view(key.data(), key.size()));
  if (member == nullptr || member->is_array()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(key, " is no list; the host writes the file again when it is removed"));
}

absl::StatusOr<Published> DecodeSlice(const json::value& slice) {
  for (const char* list : {"devices", "sharedCounters"}) TRANCHE_RETURN_IF_ERROR(CheckList(slice, list));
  if (TextOf(slice, "driver").empty()) return absl::InvalidArgumentError("driver is absent or no text; the host writes the file again when it is removed");
  if (!slice.get_object().contains("devices")) return absl::InvalidArgumentError("devices is absent; the host writes the file again when it is removed");
  Published published;
  const std::string driver = TextOf(slice, "driver");
  for (const json::value& item : ArrayOf(slice, "devices")) {
    TRANCHE_ASSIGN_OR_RETURN(PublishedDevice device, DecodePublishedDevice(item));
    for (CounterUse& use : device.consumes_counters) use.counter_set = Qualified(driver, use.counter_set);
    published.devices.push_back(std::move(device));
  }
  for (const json::value& item : ArrayOf(slice, "sharedCounters")) {
    const json::value* counters = item.is_object() ? item.get_object().if_contains("counters") : nullptr;
    if (counters == nullptr) return absl::InvalidArgumentError("a shared counter set has no counters");
    TRANCHE_ASSIGN_OR_RETURN(Quantities amounts, DecodeQuantities(*counters));
    published.counter_sets.push_back({Qualified(driver, TextOf(item, "name")), std::move(amounts)});
  }
  return published;
}

json::value EncodeClass(const std::string& driver, const config::ClassConfiguration& device_class) {
  json::array namespaces;
  for (const std::string& glob : device_class.namespaces) namespaces.emplace_back(glob);
  return json::object{{"name", device_class.name},           {"driver", driver},
                      {"offer", device_class.offer},         {"minimumEnforcement", EnforcementName(device_class.minimum_enforcement)},
                      {"namespaces", std::move(namespaces)}, {"parameters", device_class.parameters}};
}

absl::StatusOr<LocalClass> DecodeClass(const json::value& value) {
  LocalClass device_class;
  device_class.view.name = TextOf(value, "name");
  device_class.view.driver = TextOf(value, "driver");
  device_class.view.offer = TextOf(value, "offer");
  device_class.view.parameters = TextOf(value, "parameters");
  TRANCHE_ASSIGN_OR_RETURN(device_class.view.minimum_enforcement, ParseEnforcement(TextOf(value, "minimumEnforcement")));
  for (const json::value& glob : ArrayOf(value, "namespaces")) {
    if (glob.is_string()) device_class.namespaces.emplace_back(glob.get_string().c_str());
  }
  return device_class;
}

bool IsObjectFile(const std::string& name) { return !absl::StartsWith(name, ".") && absl::EndsWith(name, ".json"); }

}  // namespace

absl::StatusOr<Directory> Directory::Open(const std::string& path) {
  if (path.empty() || path.front() != '/') return absl::InvalidArgumentError(Cat("local directory \"", path, "\" must be an absolute path"));
  Directory directory(path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path);
  for (const std::string& part :
       {directory.claims(), directory.slices(), directory.state(), directory.cdi(), directory.plugins(), directory.plugins_registry(), directory.run()}) {
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(part, kDirectoryMode));
  }
  return directory;
}

absl::StatusOr<FileLock> Directory::Lock() const { return FileLock::Acquire(path_ + "/.lock"); }

absl::StatusOr<std::string> Directory::ClaimPath(std::string_view namespace_name, std::string_view name) const {
  if (!IsDnsLabel(namespace_name)) return absl::InvalidArgumentError(Cat("namespace \"", namespace_name, "\" is not a DNS label"));
  if (!IsDnsSubdomain(name)) return absl::InvalidArgumentError(Cat("claim name \"", name, "\" is not a DNS subdomain"));
  if (namespace_name.size() + name.size() > kMaxClaimName) {
    return absl::InvalidArgumentError(Cat("claim ", namespace_name, "/", name, ": namespace and name have more than ", kMaxClaimName,
                                          " bytes together, which a file name of local mode cannot hold"));
  }
  return Cat(claims(), "/", namespace_name, "_", name, ".json");
}

absl::StatusOr<Claim> Directory::ReadClaim(std::string_view namespace_name, std::string_view name) const {
  TRANCHE_ASSIGN_OR_RETURN(const std::string path, ClaimPath(namespace_name, name));
  const absl::StatusOr<json::value> value = ReadJsonFile(path);
  if (absl::IsNotFound(value.status())) {
    return absl::NotFoundError(Cat("claim ", namespace_name, "/", name, " does not exist in \"", path_, "\": apply its manifest first"));
  }
  if (!value.ok()) return value.status();
  absl::StatusOr<Claim> claim = DecodeClaim(*value);
  if (!claim.ok()) return Annotate(claim.status(), Cat("\"", path, "\""));
  return claim;
}

absl::StatusOr<std::vector<Claim>> Directory::ReadClaims() const {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(claims()));
  std::vector<Claim> result;
  for (const std::string& name : names) {
    const std::size_t separator = name.find('_');
    if (!IsObjectFile(name) || separator == std::string::npos) continue;
    absl::StatusOr<Claim> claim =
        ReadClaim(name.substr(0, separator), name.substr(separator + 1, name.size() - separator - 1 - std::string_view(".json").size()));
    if (absl::IsNotFound(claim.status())) continue;  // deleted since it was listed
    if (!claim.ok()) return claim.status();
    result.push_back(*std::move(claim));
  }
  return result;
}

absl::Status Directory::WriteClaim(const Claim& claim) const {
  TRANCHE_ASSIGN_OR_RETURN(const std::string path, ClaimPath(claim.namespace_name, claim.name));
  return WriteFileAtomically(path, ToPrettyJson(EncodeClaim(claim)), kFileMode, Durability::kDurable);
}

absl::Status Directory::RemoveClaim(std::string_view namespace_name, std::string_view name) const {
  TRANCHE_ASSIGN_OR_RETURN(const std::string path, ClaimPath(namespace_name, name));
  return RemoveFile(path);
}

absl::Status Directory::PublishSlices(const inventory::Snapshot& snapshot) const {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, Lock());
  std::set<std::string> drivers;
  for (const PublishedDevice& device : snapshot.devices) drivers.insert(device.driver);
  for (const std::string& driver : drivers) {
    const std::string path = Cat(slices(), "/", driver, ".json");
    TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(path, ToPrettyJson(EncodeSlice(driver, snapshot)), kFileMode, Durability::kVisible));
  }
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(slices()));
  for (const std::string& name : names) {
    if (!IsObjectFile(name) || drivers.count(name.substr(0, name.size() - std::string_view(".json").size())) > 0) continue;
    TRANCHE_RETURN_IF_ERROR(RemoveFile(Cat(slices(), "/", name)));
  }
  return absl::OkStatus();
}

absl::Status Directory::PublishClasses(const config::HostConfiguration& configuration) const {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, Lock());
  json::array classes;
  for (const config::DriverConfiguration& driver : configuration.drivers) {
    for (const config::ClassConfiguration& device_class : driver.classes) classes.push_back(EncodeClass(driver.name, device_class));
  }
  return WriteFileAtomically(classes_file(), ToPrettyJson(json::object{{"classes", std::move(classes)}}), kFileMode, Durability::kVisible);
}

absl::StatusOr<Published> Directory::ReadSlices() const {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(slices()));
  Published published;
  for (const std::string& name : names) {
    if (!IsObjectFile(name)) continue;
    const std::string path = Cat(slices(), "/", name);
    const absl::StatusOr<json::value> slice = ReadJsonFile(path);
    if (absl::IsNotFound(slice.status())) continue;
    if (!slice.ok()) return slice.status();
    const absl::StatusOr<Published> one = DecodeSlice(*slice);
    if (!one.ok()) return Annotate(one.status(), Cat("\"", path, "\""));
    published.devices.insert(published.devices.end(), one->devices.begin(), one->devices.end());
    published.counter_sets.insert(published.counter_sets.end(), one->counter_sets.begin(), one->counter_sets.end());
  }
  return published;
}

absl::StatusOr<std::map<std::string, LocalClass>> Directory::ReadClasses() const {
  const absl::StatusOr<json::value> value = ReadJsonFile(classes_file());
  std::map<std::string, LocalClass> classes;
  if (absl::IsNotFound(value.status())) return classes;
  if (!value.ok()) return value.status();
  if (const absl::Status list = CheckList(*value, "classes"); !list.ok()) return Annotate(list, Cat("\"", classes_file(), "\""));
  for (const json::value& item : ArrayOf(*value, "classes")) {
    absl::StatusOr<LocalClass> device_class = DecodeClass(item);
    if (!device_class.ok()) return Annotate(device_class.status(), Cat("\"", classes_file(), "\""));
    classes[device_class->view.name] = *device_class;
  }
  return classes;
}

absl::StatusOr<Claim> LocalClaimReader::ReadClaim(const ClaimReference& reference, Deadline deadline) {
  if (Passed(deadline)) return absl::DeadlineExceededError(Cat("claim ", reference.namespace_name, "/", reference.name, ": no time left to read it"));
  return directory_.ReadClaim(reference.namespace_name, reference.name);
}

}  // namespace tranche::local
