// An API server in memory for what writes claim statuses and Events: server-side apply of status.devices with managers, UID precondition, refusal of
// devices that are not allocated, and failures on demand. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "kube/client.h"

namespace tranche::kube {

class FakeApiServer final : public Client {
 public:
  using Object = boost::json::object;

  absl::StatusOr<Object> Get(const std::string& path, Deadline) override {
    ++gets;
    if (absl::Status status = Enter("get"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(path);
    if (found == objects_.end()) return absl::NotFoundError(path);
    return found->second;
  }

  absl::StatusOr<Object> Patch(const std::string& path, PatchKind kind, const boost::json::value& patch, Deadline) override {
    ++patches;
    if (absl::Status status = Enter("patch"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (kind == PatchKind::kMerge) {
      const auto found = objects_.find(path);
      if (found == objects_.end()) return absl::NotFoundError(path);
      for (const auto& [key, value] : patch.as_object()) found->second[key] = value;
      return found->second;
    }
    return ApplyStatus(path, patch.as_object());
  }

  absl::StatusOr<Object> Create(const std::string& path, const Object& object, Deadline) override {
    ++creates;
    if (absl::Status status = Enter("create"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    objects_[path + "/" + std::string(object.at("metadata").at("name").as_string())] = object;
    return object;
  }

  absl::StatusOr<std::vector<Object>> List(const std::string&, Deadline) override { return absl::UnimplementedError("list"); }
  absl::StatusOr<Object> Replace(const std::string&, const Object&, Deadline) override { return absl::UnimplementedError("replace"); }
  absl::Status Delete(const std::string&, const Preconditions&, Deadline) override { return absl::UnimplementedError("delete"); }
  std::unique_ptr<kube::Watch> Watch(const std::string&, WatchHandler) override { return nullptr; }
  absl::StatusOr<ServerVersion> Version(Deadline) override { return ServerVersion{1, 37, "v1.37.2"}; }

  // ---- For the test.

  static std::string PathOf(const std::string& name) { return "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims/" + name; }

  // A claim with these devices of pool node-1 allocated: {driver, device, shareID}.
  void PutClaim(const std::string& name, const std::string& uid, const std::vector<std::array<std::string, 3>>& allocated) {
    boost::json::array results;
    for (const auto& [driver, device, share] : allocated) {
      Object result{{"request", "nic"}, {"driver", driver}, {"pool", "node-1"}, {"device", device}};
      if (!share.empty()) result["shareID"] = share;
      results.push_back(result);
    }
    Object status;
    if (!results.empty()) status["allocation"] = Object{{"devices", Object{{"results", results}}}};
    const std::lock_guard lock(mutex_);
    objects_[PathOf(name)] = Object{{"metadata", {{"name", name}, {"namespace", "team-a"}, {"uid", uid}}}, {"status", status}};
  }
  void Remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    objects_.erase(PathOf(name));
  }
  void AddForeignEntry(const std::string& name, const Object& entry) {
    const std::lock_guard lock(mutex_);
    Object& status = objects_.at(PathOf(name)).at("status").as_object();
    if (!status.contains("devices")) status["devices"] = boost::json::array();
    status.at("devices").as_array().push_back(entry);
  }
  boost::json::array Devices(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(PathOf(name));
    if (found == objects_.end()) return {};
    const boost::json::value* devices = found->second.at("status").as_object().if_contains("devices");
    return devices == nullptr ? boost::json::array() : devices->as_array();
  }
  std::vector<Object> Events() {
    const std::lock_guard lock(mutex_);
    std::vector<Object> events;
    for (const auto& [path, object] : objects_) {
      if (path.starts_with("/apis/events.k8s.io/v1/namespaces/")) events.push_back(object);
    }
    return events;
  }
  // Every state of Enforced that was written for a claim, as a watch would see it.
  std::vector<std::string> SeenEnforced(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return seen_enforced_[PathOf(name)];
  }
  // Answers a call ("get", "patch", "create") in its stead when not OK.
  void FailWith(std::function<absl::Status(const std::string& verb)> failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }

  std::atomic<int> gets = 0, patches = 0, creates = 0, in_flight = 0, most_in_flight = 0;

 private:
  absl::Status Enter(const std::string& verb) {
    const int now = ++in_flight;
    int most = most_in_flight;
    while (most < now && !most_in_flight.compare_exchange_weak(most, now)) {}
    std::function<absl::Status(const std::string&)> failure;
    {
      const std::lock_guard lock(mutex_);
      failure = failure_;
    }
    absl::Status status = failure ? failure(verb) : absl::OkStatus();
    --in_flight;
    return status;
  }

  static std::string KeyOf(const boost::json::value& entry) {
    const Object& object = entry.as_object();
    std::string key;
    for (const char* name : {"driver", "pool", "device", "shareID"}) {
      const boost::json::value* member = object.if_contains(name);
      key += (member == nullptr ? std::string() : std::string(member->as_string())) + "|";
    }
    return key;
  }

  static bool IsAllocated(const Object& claim, const std::string& key) {
    const boost::json::value* allocation = claim.at("status").as_object().if_contains("allocation");
    if (allocation == nullptr) return false;
    const boost::json::array& results = allocation->at("devices").at("results").as_array();
    return std::any_of(results.begin(), results.end(), [&](const boost::json::value& result) { return KeyOf(result) == key; });
  }

  absl::StatusOr<Object> ApplyStatus(const std::string& path, const Object& patch) {
    const std::size_t end = path.find("/status?");
    const std::string query = path.substr(end + 1);
    const auto found = objects_.find(path.substr(0, end));
    if (found == objects_.end()) return absl::NotFoundError(path);
    Object& claim = found->second;
    if (patch.at("metadata").at("uid") != claim.at("metadata").at("uid")) return absl::AbortedError("uid: Precondition failed");
    const boost::json::array& wanted = patch.at("status").at("devices").as_array();
    std::set<std::string> keys;
    for (const boost::json::value& entry : wanted) {
      if (!IsAllocated(claim, KeyOf(entry))) return absl::InvalidArgumentError("status.devices[0]: must be an allocated device in the claim");
      keys.insert(KeyOf(entry));
    }
    Object& status = claim.at("status").as_object();
    boost::json::array devices = status.contains("devices") ? status.at("devices").as_array() : boost::json::array();
    std::set<std::string>& owned = owned_[path.substr(0, end) + query];
    boost::json::array kept;
    for (const boost::json::value& entry : devices) {
      if (!owned.contains(KeyOf(entry)) && !keys.contains(KeyOf(entry))) kept.push_back(entry);
    }
    for (const boost::json::value& entry : wanted) {
      kept.push_back(entry);
      seen_enforced_[path.substr(0, end)].emplace_back(entry.at("conditions").at(1).at("status").as_string());
    }
    owned = keys;
    if (kept.empty()) {
      status.erase("devices");
    } else {
      status["devices"] = kept;
    }
    return claim;
  }

  std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::map<std::string, std::set<std::string>> owned_;  // by claim and manager
  std::map<std::string, std::vector<std::string>> seen_enforced_;
  std::function<absl::Status(const std::string&)> failure_;
};

}  // namespace tranche::kube
