#include "local/kubelet.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "model/json_reader.h"

namespace tranche::local {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxCheckpointBytes = 64 * 1024 * 1024;

json::array EncodeTexts(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

json::value EncodePrepared(const PreparedClaim& claim) {
  json::array drivers;
  for (const PreparedByDriver& driver : claim.drivers) {
    json::array devices;
    for (const claims::PreparedDevice& device : driver.devices) {
      json::object entry{{"requestNames", EncodeTexts(device.request_names)},
                         {"pool", device.pool},
                         {"device", device.device},
                         {"cdiDeviceIDs", EncodeTexts(device.cdi_device_ids)}};
      if (!device.share_id.empty()) entry["shareID"] = device.share_id;
      devices.push_back(std::move(entry));
    }
    drivers.push_back(json::object{{"driver", driver.driver}, {"devices", std::move(devices)}});
  }
  return json::object{
      {"namespace", claim.namespace_name}, {"name", claim.name}, {"uid", claim.uid}, {"prepared", claim.prepared}, {"drivers", std::move(drivers)}};
}

PreparedClaim ReadPrepared(const JsonReader& at) {
  PreparedClaim claim{at["namespace"].NonEmptyString(), at["name"].NonEmptyString(), at["uid"].NonEmptyString(), at["prepared"].BoolOr(false), {}};
  for (const JsonReader& item : at["drivers"].Items()) {
    PreparedByDriver driver{item["driver"].NonEmptyString(), {}};
    for (const JsonReader& device : item["devices"].Items()) {
      driver.devices.push_back({device["requestNames"].Strings(), device["pool"].String(), device["device"].String(), device["cdiDeviceIDs"].Strings(),
                                device["shareID"].StringOr("")});
    }
    claim.drivers.push_back(std::move(driver));
  }
  return claim;
}

absl::StatusOr<std::vector<PreparedClaim>> ReadCheckpoint(const Directory& directory) {
  const absl::StatusOr<std::string> text = ReadFile(directory.kubelet_file(), kMaxCheckpointBytes);
  if (absl::IsNotFound(text.status())) return std::vector<PreparedClaim>();
  if (!text.ok()) return text.status();
  const std::string what = Cat("\"", directory.kubelet_file(), "\"");
  const absl::StatusOr<json::value> value = ParseJson(*text);
  if (!value.ok()) return Annotate(value.status(), what);
  absl::Status error;
  std::vector<PreparedClaim> claims;
  const JsonReader root(*value, &error);
  for (const JsonReader& item : root["claims"].Items()) claims.push_back(ReadPrepared(item));
  if (!error.ok()) return Annotate(error, what);
  return claims;
}

absl::Status WriteCheckpoint(const Directory& directory, const std::vector<PreparedClaim>& claims) {
  json::array array;
  for (const PreparedClaim& claim : claims) array.push_back(EncodePrepared(claim));
  return WriteFileAtomically(directory.kubelet_file(), ToPrettyJson(json::object{{"claims", std::move(array)}}), 0640, Durability::kDurable);
}

auto SameName(const std::string& namespace_name, const std::string& name) {
  return [&namespace_name, &name](const PreparedClaim& claim) { return claim.namespace_name == namespace_name && claim.name == name; };
}

// Replaces the claim's entry under the lock. FailedPrecondition when the name is held by another UID.
absl::Status StoreEntry(const Directory& directory, const PreparedClaim& entry) {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory.Lock());
  TRANCHE_ASSIGN_OR_RETURN(std::vector<PreparedClaim> claims, ReadCheckpoint(directory));
  const auto found = std::find_if(claims.begin(), claims.end(), SameName(entry.namespace_name, entry.name));
  if (found == claims.end()) {
    claims.push_back(entry);
  } else if (found->uid != entry.uid) {
    return absl::FailedPreconditionError(Cat("claim ", entry.namespace_name, "/", entry.name, " is still prepared with UID ", found->uid, " but now has UID ",
                                             entry.uid, ": unprepare the old one first"));
  } else {
    *found = entry;
  }
  return WriteCheckpoint(directory, claims);
}

absl::Status DropEntry(const Directory& directory, const std::string& uid) {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory.Lock());
  TRANCHE_ASSIGN_OR_RETURN(std::vector<PreparedClaim> claims, ReadCheckpoint(directory));
  const auto removed = std::remove_if(claims.begin(), claims.end(), [&uid](const PreparedClaim& claim) { return claim.uid == uid; });
  if (removed == claims.end()) return absl::OkStatus();
  claims.erase(removed, claims.end());
  return WriteCheckpoint(directory, claims);
}

std::vector<std::string> DriversOf(const Allocation& allocation) {
  std::set<std::string> drivers;
  for (const AllocationResult& result : allocation.results) drivers.insert(result.driver);
  return {drivers.begin(), drivers.end()};
}

// The most recent registration wins with the kubelet; here the last socket by name does.
absl::StatusOr<Plugin> FindPlugin(const std::vector<Plugin>& plugins, const std::string& driver) {
  const auto found = std::find_if(plugins.rbegin(), plugins.rend(), [&driver](const Plugin& plugin) { return plugin.driver == driver; });
  if (found != plugins.rend()) return *found;
  return absl::FailedPreconditionError(Cat("driver \"", driver, "\" is not registered: start the host for this directory, or wait until it serves"));
}

absl::StatusOr<std::vector<claims::PreparedDevice>> PrepareOne(const Plugin& plugin, ProtocolVersion version, const ClaimReference& reference,
                                                               Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<DraClient> client, DraClient::Connect(plugin, version));
  claims::PrepareAnswers answers = client->Prepare({reference}, deadline);
  return std::move(answers.at(reference.uid));
}

absl::Status UnprepareOne(const Plugin& plugin, ProtocolVersion version, const ClaimReference& reference, Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<DraClient> client, DraClient::Connect(plugin, version));
  return client->Unprepare({reference}, deadline).at(reference.uid);
}

absl::Status CheckReady(const Claim& claim) {
  const std::string what = Cat("claim ", claim.namespace_name, "/", claim.name);
  if (!IsUuid(claim.uid)) return absl::FailedPreconditionError(Cat(what, ": metadata.uid is no UUID: delete the claim and apply it again"));
  if (!claim.allocation.has_value()) return absl::FailedPreconditionError(Cat(what, " is not allocated: allocate it first"));
  if (claim.reserved_for.empty()) return absl::FailedPreconditionError(Cat(what, " is reserved for no pod: allocate it again"));
  return absl::OkStatus();
}

// What Unprepare has to call.
struct Target {
  ClaimReference reference;
  std::vector<std::string> drivers;
};

absl::StatusOr<std::optional<Target>> FindTarget(const Directory& directory, const std::string& namespace_name, const std::string& name) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<PreparedClaim> claims, ReadCheckpoint(directory));
  const auto found = std::find_if(claims.begin(), claims.end(), SameName(namespace_name, name));
  if (found != claims.end()) {
    Target target{{namespace_name, name, found->uid}, {}};
    for (const PreparedByDriver& driver : found->drivers) target.drivers.push_back(driver.driver);
    return target;
  }
  const absl::StatusOr<Claim> claim = directory.ReadClaim(namespace_name, name);
  if (absl::IsNotFound(claim.status())) return std::optional<Target>();
  if (!claim.ok()) return claim.status();
  if (!claim->allocation.has_value()) return std::optional<Target>();
  return Target{{namespace_name, name, claim->uid}, DriversOf(*claim->allocation)};
}

}  // namespace

absl::StatusOr<std::vector<Plugin>> Kubelet::Register(Deadline deadline) const { return FindPlugins(directory_.plugins_registry(), deadline); }

absl::StatusOr<PreparedClaim> Kubelet::Prepare(const std::string& namespace_name, const std::string& name, Deadline deadline) const {
  TRANCHE_ASSIGN_OR_RETURN(const Claim claim, directory_.ReadClaim(namespace_name, name));
  TRANCHE_RETURN_IF_ERROR(CheckReady(claim));
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<Plugin> plugins, Register(deadline));
  PreparedClaim entry{namespace_name, name, claim.uid, false, {}};
  std::vector<Plugin> chosen;
  for (const std::string& driver : DriversOf(*claim.allocation)) {
    TRANCHE_ASSIGN_OR_RETURN(Plugin plugin, FindPlugin(plugins, driver));
    chosen.push_back(std::move(plugin));
    entry.drivers.push_back({driver, {}});
  }
  TRANCHE_RETURN_IF_ERROR(StoreEntry(directory_, entry));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    TRANCHE_ASSIGN_OR_RETURN(entry.drivers[i].devices, PrepareOne(chosen[i], version_, {namespace_name, name, claim.uid}, deadline));
  }
  entry.prepared = true;
  TRANCHE_RETURN_IF_ERROR(StoreEntry(directory_, entry));
  return entry;
}

absl::Status Kubelet::Unprepare(const std::string& namespace_name, const std::string& name, Deadline deadline) const {
  TRANCHE_ASSIGN_OR_RETURN(const std::optional<Target> target, FindTarget(directory_, namespace_name, name));
  if (!target.has_value()) return absl::OkStatus();
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<Plugin> plugins, Register(deadline));
  for (const std::string& driver : target->drivers) {
    TRANCHE_ASSIGN_OR_RETURN(const Plugin plugin, FindPlugin(plugins, driver));
    TRANCHE_RETURN_IF_ERROR(UnprepareOne(plugin, version_, target->reference, deadline));
  }
  return DropEntry(directory_, target->reference.uid);
}

absl::StatusOr<std::vector<PreparedClaim>> Kubelet::Prepared() const { return ReadCheckpoint(directory_); }

absl::StatusOr<PreparedClaim> Kubelet::FindPrepared(const std::string& namespace_name, const std::string& name) const {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<PreparedClaim> claims, ReadCheckpoint(directory_));
  const auto found = std::find_if(claims.begin(), claims.end(), SameName(namespace_name, name));
  if (found != claims.end() && found->prepared) return *found;
  return absl::NotFoundError(Cat("claim ", namespace_name, "/", name, " is not prepared: prepare it first"));
}

absl::StatusOr<bool> IsPrepared(const Directory& directory, const std::string& claim_uid) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<PreparedClaim> claims, ReadCheckpoint(directory));
  return std::any_of(claims.begin(), claims.end(), [&claim_uid](const PreparedClaim& claim) { return claim.uid == claim_uid; });
}

}  // namespace tranche::local
