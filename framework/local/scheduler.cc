#include "local/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/str_join.h>

#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "local/kubelet.h"
#include "local/manifest.h"

namespace tranche::local {
namespace {

// Obstacles that a message shows; Explain shows all.
constexpr std::size_t kObstaclesInMessage = 5;

std::string Describe(const Claim& claim) { return Cat("claim ", claim.namespace_name, "/", claim.name); }

bool SameSpec(const Claim& left, const Claim& right) {
  return left.requests == right.requests && left.constraints == right.constraints && left.config == right.config;
}

// ---- Authority: what admission decides in a cluster.

absl::Status CheckRequestAuthority(const Claim& claim, const DeviceRequest& request, const std::map<std::string, LocalClass>& classes) {
  if (request.admin_access) {
    return absl::PermissionDeniedError(
        Cat(Describe(claim), ": request \"", request.name, "\" asks for adminAccess, which needs a labelled namespace; local mode has none"));
  }
  const auto found = classes.find(request.device_class);
  if (found == classes.end()) return absl::OkStatus();  // placement says which class is missing
  const std::vector<std::string>& allowed = found->second.namespaces;
  if (config::MatchesAny(allowed, claim.namespace_name)) return absl::OkStatus();
  return absl::PermissionDeniedError(Cat(Describe(claim), ": request \"", request.name, "\": device class \"", request.device_class,
                                         "\" does not allow namespace \"", claim.namespace_name, "\" (allowed: ", absl::StrJoin(allowed, ", "),
                                         "): use a class that allows it, or add the namespace to namespaces.allow of the class"));
}

absl::Status CheckAuthority(const Claim& claim, const std::map<std::string, LocalClass>& classes) {
  for (const DeviceRequest& request : claim.requests) {
    if (request.first_available.empty()) TRANCHE_RETURN_IF_ERROR(CheckRequestAuthority(claim, request, classes));
    for (const DeviceRequest& alternative : request.first_available) TRANCHE_RETURN_IF_ERROR(CheckRequestAuthority(claim, alternative, classes));
  }
  return absl::OkStatus();
}

// ---- Placement.

// Everything that a decision depends on, read under the lock.
struct World {
  Published published;
  std::map<std::string, LocalClass> classes;
  std::vector<Claim> claims;
};

absl::StatusOr<World> ReadWorld(const Directory& directory) {
  World world;
  TRANCHE_ASSIGN_OR_RETURN(world.published, directory.ReadSlices());
  TRANCHE_ASSIGN_OR_RETURN(world.classes, directory.ReadClasses());
  TRANCHE_ASSIGN_OR_RETURN(world.claims, directory.ReadClaims());
  return world;
}

using DeviceIndex = std::map<std::string, const PublishedDevice*>;  // by address

DeviceIndex IndexDevices(const Published& published) {
  DeviceIndex index;
  for (const PublishedDevice& device : published.devices) index.emplace(DeviceAddress(device), &device);
  return index;
}

capacity::Grant ToGrant(const Claim& claim, const AllocationResult& result, const DeviceIndex& index) {
  capacity::Grant grant;
  grant.key = {claim.uid, result.request, result.driver, result.pool, result.device, result.share_id.value_or("")};
  grant.admin_access = result.admin_access;
  grant.consumed = result.consumed_capacity;
  grant.mode = result.share_id.has_value() ? Mode::kShare : Mode::kWhole;
  const auto found = index.find(Cat(result.driver, "/", result.pool, "/", result.device));
  if (found == index.end()) return grant;  // withdrawn meanwhile: it takes nothing from what is published
  grant.backend = found->second->backend;
  grant.physical = found->second->physical;
  grant.mode = found->second->mode;
  grant.counters = found->second->consumes_counters;
  return grant;
}

std::vector<capacity::Grant> LiveGrants(const World& world) {
  const DeviceIndex index = IndexDevices(world.published);
  std::vector<capacity::Grant> grants;
  for (const Claim& claim : world.claims) {
    if (!claim.allocation.has_value()) continue;
    for (const AllocationResult& result : claim.allocation->results) grants.push_back(ToGrant(claim, result, index));
  }
  return grants;
}

absl::StatusOr<capacity::PlacementResult> PlaceClaim(const Claim& claim, const World& world) {
  TRANCHE_RETURN_IF_ERROR(CheckAuthority(claim, world.classes));
  std::map<std::string, capacity::ClassView> views;
  for (const auto& [name, device_class] : world.classes) views.emplace(name, device_class.view);
  return capacity::Place(claim, world.published.devices, world.published.counter_sets, views, LiveGrants(world), NewUuid);
}

// ---- Explanation.

// A reason that is about a capacity names the device and the amounts itself.
std::string DescribeObstacle(const capacity::Obstacle& obstacle) {
  const std::string where = obstacle.device.empty() || !obstacle.capacity.empty() ? "" : Cat(", device ", obstacle.device);
  return Cat("request ", obstacle.request, where, ": ", obstacle.reason);
}

std::vector<std::string> DescribeObstacles(const std::vector<capacity::Obstacle>& obstacles, std::size_t limit) {
  std::vector<std::string> lines;
  for (const capacity::Obstacle& obstacle : obstacles) {
    if (lines.size() == limit) {
      lines.push_back(Cat("and ", obstacles.size() - limit, " more"));
      break;
    }
    lines.push_back(DescribeObstacle(obstacle));
  }
  return lines;
}

// Whether no change of what is left could ever let this request have this device: it asks for more than the device gives to one request.
bool IsAboveMaximum(const capacity::Obstacle& obstacle, const DeviceIndex& devices) {
  const auto device = devices.find(obstacle.device);
  if (device == devices.end() || !obstacle.asked.has_value()) return false;
  const auto capacity = device->second->capacity.find(obstacle.capacity);
  return capacity != device->second->capacity.end() && absl::IsOutOfRange(capacity::Consumed(obstacle.capacity, capacity->second, obstacle.asked).status());
}

absl::Status Misfit(const Claim& claim, const std::vector<capacity::Obstacle>& obstacles, const Published& published) {
  const std::string message = Cat(Describe(claim), " does not fit: ", absl::StrJoin(DescribeObstacles(obstacles, kObstaclesInMessage), "; "));
  const DeviceIndex devices = IndexDevices(published);
  const bool never = !obstacles.empty() && std::all_of(obstacles.begin(), obstacles.end(),
                                                       [&devices](const capacity::Obstacle& obstacle) { return IsAboveMaximum(obstacle, devices); });
  return never ? absl::OutOfRangeError(message) : absl::ResourceExhaustedError(message);
}

std::string DescribeAllocation(const Allocation& allocation) {
  std::vector<std::string> lines;
  for (const AllocationResult& result : allocation.results) {
    std::vector<std::string> amounts;
    for (const auto& [name, amount] : result.consumed_capacity) amounts.push_back(Cat(name, " ", amount.ToString()));
    lines.push_back(Cat("request ", result.request, ": device ", result.driver, "/", result.pool, "/", result.device,
                        amounts.empty() ? "" : Cat(" (", absl::StrJoin(amounts, ", "), ")")));
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace

absl::StatusOr<std::vector<AppliedClaim>> Scheduler::Apply(std::string_view manifest) const {
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Claim> wanted, ParseManifests(manifest));
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory_.Lock());
  std::vector<AppliedClaim> applied;
  for (Claim& claim : wanted) {
    const absl::StatusOr<Claim> existing = directory_.ReadClaim(claim.namespace_name, claim.name);
    if (!existing.ok() && !absl::IsNotFound(existing.status())) return existing.status();
    if (existing.ok() && !SameSpec(*existing, claim)) {
      return absl::FailedPreconditionError(Cat(Describe(claim), " exists with another spec, which cannot change: delete it first or choose another name"));
    }
    claim.uid = existing.ok() ? existing->uid : NewUuid();
    applied.push_back({claim.namespace_name, claim.name, claim.uid, !existing.ok()});
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (applied[i].created) TRANCHE_RETURN_IF_ERROR(directory_.WriteClaim(wanted[i]));
  }
  return applied;
}

absl::StatusOr<Claim> Scheduler::Allocate(const std::string& namespace_name, const std::string& name) const {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory_.Lock());
  TRANCHE_ASSIGN_OR_RETURN(Claim claim, directory_.ReadClaim(namespace_name, name));
  if (claim.allocation.has_value()) return claim;
  TRANCHE_ASSIGN_OR_RETURN(const World world, ReadWorld(directory_));
  TRANCHE_ASSIGN_OR_RETURN(const capacity::PlacementResult placement, PlaceClaim(claim, world));
  if (!placement.allocation.has_value()) return Misfit(claim, placement.obstacles, world.published);
  claim.allocation = placement.allocation;
  claim.reserved_for = {{"pods", claim.name, NewUuid()}};
  TRANCHE_RETURN_IF_ERROR(directory_.WriteClaim(claim));
  return claim;
}

absl::Status Scheduler::Deallocate(const std::string& namespace_name, const std::string& name) const {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory_.Lock());
  TRANCHE_ASSIGN_OR_RETURN(Claim claim, directory_.ReadClaim(namespace_name, name));
  TRANCHE_ASSIGN_OR_RETURN(const bool prepared, IsPrepared(directory_, claim.uid));
  if (prepared) { return absl::FailedPreconditionError(Cat(Describe(claim), " is still prepared on the node: unprepare it first")); }
  if (!claim.allocation.has_value() && claim.reserved_for.empty()) return absl::OkStatus();
  claim.allocation.reset();
  claim.reserved_for.clear();
  return directory_.WriteClaim(claim);
}

absl::Status Scheduler::Delete(const std::string& namespace_name, const std::string& name) const {
  const absl::Status status = Deallocate(namespace_name, name);
  if (absl::IsNotFound(status)) return absl::OkStatus();
  TRANCHE_RETURN_IF_ERROR(status);
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory_.Lock());
  const absl::StatusOr<Claim> claim = directory_.ReadClaim(namespace_name, name);
  if (absl::IsNotFound(claim.status())) return absl::OkStatus();
  // Between the two locks somebody may have allocated it again.
  if (claim.ok() && claim->allocation.has_value()) return absl::AbortedError(Cat(Describe(*claim), " was allocated again meanwhile: repeat"));
  return directory_.RemoveClaim(namespace_name, name);
}

absl::StatusOr<Explanation> Scheduler::Explain(const std::string& namespace_name, const std::string& name) const {
  TRANCHE_ASSIGN_OR_RETURN(const FileLock lock, directory_.Lock());
  Explanation explanation;
  TRANCHE_ASSIGN_OR_RETURN(explanation.claim, directory_.ReadClaim(namespace_name, name));
  if (explanation.claim.allocation.has_value()) {
    explanation.fits = true;
    explanation.allocation = explanation.claim.allocation;
    explanation.text = Cat(Describe(explanation.claim), " is allocated:\n", DescribeAllocation(*explanation.allocation));
    return explanation;
  }
  TRANCHE_ASSIGN_OR_RETURN(const World world, ReadWorld(directory_));
  const absl::StatusOr<capacity::PlacementResult> placement = PlaceClaim(explanation.claim, world);
  if (!placement.ok()) {
    explanation.refused = placement.status();
    explanation.text = Cat(CodeName(placement.status().code()), ": ", std::string(placement.status().message()));
    return explanation;
  }
  explanation.fits = placement->allocation.has_value();
  explanation.allocation = placement->allocation;
  explanation.obstacles = placement->obstacles;
  explanation.text = explanation.fits ? Cat(Describe(explanation.claim), " fits now:\n", DescribeAllocation(*explanation.allocation))
                                      : Cat(Describe(explanation.claim), " does not fit:\n",
                                            absl::StrJoin(DescribeObstacles(explanation.obstacles, explanation.obstacles.size() + 1), "\n"));
  return explanation;
}

}  // namespace tranche::local
