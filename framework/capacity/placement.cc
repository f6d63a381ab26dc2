#include "capacity/placement.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>

#include "base/ids.h"
#include "base/status.h"
#include "capacity/fit.h"

namespace tranche::capacity {

namespace {
constexpr std::size_t kMaxRequests = 32;  // of a claim, and results of an allocation, as in the API
constexpr std::size_t kMaxAlternatives = 8;
constexpr std::size_t kMaxSteps = 100000;
constexpr std::size_t kGrantsPerStep = 64;  // a step over many live grants costs more than one

using Devices = std::vector<const PublishedDevice*>;

struct Alternative {
  std::string name;  // "req" or "req/sub"
  const DeviceRequest* request = nullptr;
  const ClassView* device_class = nullptr;
  Devices candidates;
};

struct Choice {
  const Alternative* alternative = nullptr;
  const PublishedDevice* device = nullptr;
  Quantities consumed;
};

absl::Status Invalid(const Claim& claim, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("claim ", claim.namespace_name, "/", claim.name, ": ", std::string(what)));
}

const AttributeValue* FindAttribute(const PublishedDevice& device, const std::string& name) {
  if (const auto found = device.attributes.find(name); found != device.attributes.end()) return &found->second;
  const std::string own = device.driver + "/";
  if (!name.starts_with(own)) return nullptr;
  const auto found = device.attributes.find(name.substr(own.size()));
  return found == device.attributes.end() ? nullptr : &found->second;
}

bool Covers(const DeviceConstraint& constraint, std::string_view request) {
  if (constraint.requests.empty()) return true;
  return std::any_of(constraint.requests.begin(), constraint.requests.end(),
                     [&](const std::string& name) { return name == request || name == BaseRequest(request); });
}

absl::Status CheckRequest(const Claim& claim, const DeviceRequest& request, const std::map<std::string, ClassView>& classes) {
  const std::string where = absl::StrCat("request ", request.name, ": ");
  if (!classes.contains(request.device_class)) {
    return Invalid(claim, absl::StrCat(where, "device class ", request.device_class, " is not configured on this node"));
  }
  if (!request.selectors.empty()) return Invalid(claim, absl::StrCat(where, "CEL selectors are not supported here; let a device class name the offer"));
  if (request.allocation_mode == AllocationMode::kExactCount && request.count <= 0) {
    return Invalid(claim, absl::StrCat(where, "count ", request.count, " is not positive"));
  }
  for (const auto& [name, quantity] : request.capacity) {
    if (quantity.IsNegative()) return Invalid(claim, absl::StrCat(where, "capacity ", name, " asks for the negative amount ", quantity.ToString()));
  }
  return absl::OkStatus();
}

// All names that a constraint or a result may use; also checks each request.
absl::StatusOr<std::set<std::string>> RequestNames(const Claim& claim, const std::map<std::string, ClassView>& classes) {
  if (claim.requests.empty()) return Invalid(claim, "it has no request");
  if (claim.requests.size() > kMaxRequests) return Invalid(claim, "it has more than 32 requests");
  std::set<std::string> names;
  for (const DeviceRequest& request : claim.requests) {
    if (request.name.empty() || !names.insert(request.name).second) {
      return Invalid(claim, absl::StrCat("request name \"", request.name, "\" is empty or used twice"));
    }
    if (request.first_available.empty()) TRANCHE_RETURN_IF_ERROR(CheckRequest(claim, request, classes));
    if (request.first_available.size() > kMaxAlternatives) return Invalid(claim, absl::StrCat("request ", request.name, " has more than 8 alternatives"));
    for (const DeviceRequest& sub : request.first_available) {
      TRANCHE_RETURN_IF_ERROR(CheckRequest(claim, sub, classes));
      if (sub.name.empty() || !names.insert(absl::StrCat(request.name, "/", sub.name)).second) {
        return Invalid(claim, absl::StrCat("alternative name \"", request.name, "/", sub.name, "\" is empty or used twice"));
      }
    }
  }
  return names;
}

absl::Status CheckConstraints(const Claim& claim, const std::set<std::string>& names) {
  for (const DeviceConstraint& constraint : claim.constraints) {
    if (constraint.match_attribute.has_value() == constraint.distinct_attribute.has_value()) {
      return Invalid(claim, "a constraint needs one of matchAttribute and distinctAttribute");
    }
    const std::string& attribute = constraint.match_attribute ? *constraint.match_attribute : *constraint.distinct_attribute;
    if (!IsQualifiedName(attribute) || attribute.find('/') == std::string::npos) {
      return Invalid(claim, absl::StrCat("constraint attribute \"", attribute, "\" is not written as domain/name"));
    }
    for (const std::string& request : constraint.requests) {
      if (!names.contains(request)) return Invalid(claim, absl::StrCat("constraint on ", attribute, " names the unknown request ", request));
    }
  }
  return absl::OkStatus();
}

Allocation MakeAllocation(const Claim& claim, const std::vector<Choice>& choices, const std::function<std::string()>& new_share_id) {
  Allocation allocation;
  std::set<std::string> configured;
  for (const Choice& choice : choices) {
    AllocationResult result;
    result.request = choice.alternative->name;
    result.driver = choice.device->driver;
    result.pool = choice.device->pool;
    result.device = choice.device->name;
    result.admin_access = choice.alternative->request->admin_access;
    if (choice.device->allow_multiple_allocations) {
      result.share_id = new_share_id();
      result.consumed_capacity = choice.consumed;
    }
    allocation.results.push_back(std::move(result));
    const ClassView& device_class = *choice.alternative->device_class;
    if (device_class.parameters.empty() || !configured.insert(choice.alternative->name).second) continue;
    allocation.config.push_back(OpaqueConfig{ConfigSource::kClass, {choice.alternative->name}, device_class.driver, device_class.parameters});
  }
  for (OpaqueConfig config : claim.config) {
    config.source = ConfigSource::kClaim;
    allocation.config.push_back(std::move(config));
  }
  return allocation;
}

// One depth-first search. Devices of a request are taken in rising order, so that a set is tried once and not in every order.
class Search {
 public:
  Search(const Claim& claim, const std::vector<PublishedDevice>& devices, const std::vector<CounterSet>& counter_sets,
         const std::map<std::string, ClassView>& classes, const std::vector<Grant>& live)
      : claim_(claim), counter_sets_(counter_sets) {
    for (const DeviceRequest& request : claim.requests) AddRequest(request, devices, classes);
    KeepRelevant(live);
  }

  bool Run() { return PlaceFrom(0); }
  bool GaveUp() const { return steps_ > kMaxSteps; }
  const std::vector<Choice>& choices() const { return choices_; }
  std::vector<Obstacle> TakeObstacles() { return std::move(obstacles_); }

 private:
  void AddRequest(const DeviceRequest& request, const std::vector<PublishedDevice>& devices, const std::map<std::string, ClassView>& classes) {
    std::vector<Alternative>& alternatives = requests_.emplace_back();
    if (request.first_available.empty()) { alternatives.push_back({request.name, &request, &classes.at(request.device_class), {}}); }
    for (const DeviceRequest& sub : request.first_available) {
      alternatives.push_back({absl::StrCat(request.name, "/", sub.name), &sub, &classes.at(sub.device_class), {}});
    }
    for (Alternative& alternative : alternatives) alternative.candidates = CandidatesOf(alternative, devices);
  }

  Devices CandidatesOf(const Alternative& alternative, const std::vector<PublishedDevice>& devices) {
    const ClassView& device_class = *alternative.device_class;
    Devices candidates;
    bool offered = false;
    for (const PublishedDevice& device : devices) {
      if (device.driver != device_class.driver || device.offer != device_class.offer) continue;
      offered = true;
      if (device.draining) {
        Note(alternative, &device, {}, "the device drains: its offer was removed from the configuration");
      } else if (device.enforcement < device_class.minimum_enforcement) {
        Note(alternative, &device, {},
             absl::StrCat("the device enforces ", std::string(EnforcementName(device.enforcement)), ", class ", device_class.name, " demands ",
                          std::string(EnforcementName(device_class.minimum_enforcement))));
      } else {
        candidates.push_back(&device);
      }
    }
    if (!offered) { Note(alternative, nullptr, {}, absl::StrCat("driver ", device_class.driver, " publishes no device of offer ", device_class.offer)); }
    std::stable_sort(candidates.begin(), candidates.end(), [](const PublishedDevice* left, const PublishedDevice* right) {
      return std::tie(left->driver, left->pool) < std::tie(right->driver, right->pool);
    });
    return candidates;
  }

  void KeepRelevant(const std::vector<Grant>& live) {
    std::set<std::pair<std::string, std::string>> pools;
    for (const auto& alternatives : requests_) {
      for (const Alternative& alternative : alternatives) {
        for (const PublishedDevice* device : alternative.candidates) pools.emplace(device->driver, device->pool);
      }
    }
    for (const Grant& grant : live) {
      if (!grant.admin_access && pools.contains({grant.key.driver, grant.key.pool})) grants_.push_back(grant);
    }
    committed_ = grants_;
  }

  bool PlaceFrom(std::size_t index) {
    if (index == requests_.size()) return true;
    for (const Alternative& alternative : requests_[index]) {
      const bool all = alternative.request->allocation_mode == AllocationMode::kAll;
      const Devices set = all ? AllDevices(alternative) : alternative.candidates;
      const std::size_t count = all ? set.size() : static_cast<std::size_t>(alternative.request->count);
      if (set.empty()) continue;  // its obstacles are noted
      if (count > set.size()) {
        Note(alternative, nullptr, {}, absl::StrCat("it asks for ", count, " different devices, ", set.size(), " can be chosen from"));
        continue;
      }
      if (Take(index, alternative, set, 0, count)) return true;
      if (GaveUp()) return false;
    }
    return false;
  }

  // Chooses `left` more devices of `set` from position `from` on, then places the requests after `index`.
  bool Take(std::size_t index, const Alternative& alternative, const Devices& set, std::size_t from, std::size_t left) {
    if (left == 0) return PlaceFrom(index + 1);
    for (std::size_t i = from; i + left <= set.size(); ++i) {
      if (!TryDevice(alternative, *set[i])) {
        if (GaveUp()) return false;
        continue;
      }
      if (Take(index, alternative, set, i + 1, left - 1)) return true;
      choices_.pop_back();
      grants_.pop_back();
      if (GaveUp()) return false;
    }
    return false;
  }

  // Devices that are short of capacity before this claim are left out of All, as the scheduler does.
  Devices AllDevices(const Alternative& alternative) {
    Devices set;
    for (const PublishedDevice* device : alternative.candidates) {
      const Demand demand = DemandOf(*device, alternative.request->capacity);
      std::optional<Misfit> misfit = demand.misfit;
      if (!misfit && !alternative.request->admin_access) { misfit = FindCapacityMisfit(*device, demand.consumed, KeyOf(alternative, *device), committed_); }
      if (misfit) {
        Note(alternative, device, *misfit, misfit->status.message());
      } else {
        set.push_back(device);
      }
    }
    return set;
  }

  bool TryDevice(const Alternative& alternative, const PublishedDevice& device) {
    steps_ += 1 + grants_.size() / kGrantsPerStep;
    if (GaveUp()) return false;
    if (choices_.size() >= kMaxRequests) return Refuse(alternative, device, "the allocation would have more than 32 results");
    Demand demand = DemandOf(device, alternative.request->capacity);
    if (demand.misfit) return Refuse(alternative, device, *demand.misfit);
    if (!device.allow_multiple_allocations) {
      // A device of its own is filtered by the request and records nothing.
      if (const auto misfit = FindCapacityMisfit(device, demand.consumed, KeyOf(alternative, device), {})) { return Refuse(alternative, device, *misfit); }
      demand.consumed.clear();
      if (ChosenBefore(device)) return Refuse(alternative, device, "another request of this claim has the device");
    }
    Grant grant{KeyOf(alternative, device),        device.backend,  device.physical,         device.mode,
                alternative.request->admin_access, demand.consumed, device.consumes_counters};
    if (const auto misfit = FindMisfit(device, grant, grants_, counter_sets_)) return Refuse(alternative, device, *misfit);
    if (const std::string clash = ConstraintClash(alternative, device); !clash.empty()) return Refuse(alternative, device, clash);
    choices_.push_back({&alternative, &device, std::move(demand.consumed)});
    grants_.push_back(std::move(grant));
    return true;
  }

  bool ChosenBefore(const PublishedDevice& device) const {
    return std::any_of(choices_.begin(), choices_.end(), [&](const Choice& choice) { return choice.device == &device; });
  }

  // Why the device breaks a constraint next to the devices chosen so far; empty when it breaks none.
  std::string ConstraintClash(const Alternative& alternative, const PublishedDevice& device) const {
    for (const DeviceConstraint& constraint : claim_.constraints) {
      if (!Covers(constraint, alternative.name)) continue;
      const bool match = constraint.match_attribute.has_value();
      const std::string& name = match ? *constraint.match_attribute : *constraint.distinct_attribute;
      const std::string label = absl::StrCat("constraint ", match ? "matchAttribute " : "distinctAttribute ", name, ": ");
      const AttributeValue* value = FindAttribute(device, name);
      if (value == nullptr) return label + "the device has no such attribute";
      for (const Choice& choice : choices_) {
        if (!Covers(constraint, choice.alternative->name)) continue;
        const bool equal = *FindAttribute(*choice.device, name) == *value;  // chosen, so it has the attribute
        if (equal != match) {
          return absl::StrCat(label, "its value ", match ? "differs from" : "is also", " that of ", DeviceAddress(*choice.device), " (request ",
                              choice.alternative->name, ")");
        }
      }
    }
    return "";
  }

  ShareKey KeyOf(const Alternative& alternative, const PublishedDevice& device) const {
    // No live grant has such a share id, so the candidate is never taken for its own retry.
    return {claim_.uid, alternative.name, device.driver, device.pool, device.name, device.allow_multiple_allocations ? "being placed" : ""};
  }

  bool Refuse(const Alternative& alternative, const PublishedDevice& device, const Misfit& misfit) {
    Note(alternative, &device, misfit, misfit.status.message());
    return false;
  }
  bool Refuse(const Alternative& alternative, const PublishedDevice& device, std::string_view reason) {
    Note(alternative, &device, {}, reason);
    return false;
  }

  // The first reason stays: later ones come from devices that backtracking gave back.
  template <typename Text>
  void Note(const Alternative& alternative, const PublishedDevice* device, const Misfit& misfit, const Text& reason) {
    const std::string address = device == nullptr ? "" : DeviceAddress(*device);
    if (!noted_.emplace(alternative.name, address).second) return;
    obstacles_.push_back(
        {alternative.name, address, misfit.capacity, misfit.asked, misfit.available, misfit.missing, std::string(reason.data(), reason.size())});
  }
  void Note(const Alternative& alternative, const PublishedDevice* device, const Misfit& misfit, const char* reason) {
    Note(alternative, device, misfit, std::string_view(reason));
  }

  const Claim& claim_;
  const std::vector<CounterSet>& counter_sets_;
  std::vector<std::vector<Alternative>> requests_;
  std::vector<Grant> committed_;  // live grants of the pools in question
  std::vector<Grant> grants_;     // those and the choices so far
  std::vector<Choice> choices_;
  std::vector<Obstacle> obstacles_;
  std::set<std::pair<std::string, std::string>> noted_;
  std::size_t steps_ = 0;
};
}  // namespace

absl::StatusOr<PlacementResult> Place(const Claim& claim, const std::vector<PublishedDevice>& devices, const std::vector<CounterSet>& counter_sets,
                                      const std::map<std::string, ClassView>& classes, const std::vector<Grant>& live,
                                      const std::function<std::string()>& new_share_id) {
  const absl::StatusOr<std::set<std::string>> names = RequestNames(claim, classes);
  if (!names.ok()) return names.status();
  TRANCHE_RETURN_IF_ERROR(CheckConstraints(claim, *names));
  Search search(claim, devices, counter_sets, classes, live);
  PlacementResult result;
  if (search.Run()) {
    result.allocation = MakeAllocation(claim, search.choices(), new_share_id);
    return result;
  }
  if (search.GaveUp()) {
    return absl::ResourceExhaustedError(absl::StrCat("claim ", claim.namespace_name, "/", claim.name, ": placement gave up after ", kMaxSteps,
                                                     " steps without an answer; ask for fewer requests, devices or constraints"));
  }
  result.obstacles = search.TakeObstacles();
  return result;
}

}  // namespace tranche::capacity
