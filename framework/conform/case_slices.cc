#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/ids.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;
using slices::Slice;

std::string PoolProblem(const std::vector<Slice>& all) {
  std::map<std::string, std::vector<const Slice*>> pools;
  for (const Slice& slice : all) pools[slice.pool_name].push_back(&slice);
  for (const auto& [pool, members] : pools) {
    for (const Slice* slice : members) {
      if (slice->generation != members.front()->generation)
        return Cat("pool ", pool, ": generations ", members.front()->generation, " and ", slice->generation);
      if (slice->slice_count != static_cast<std::int64_t>(members.size())) {
        return Cat("pool ", pool, ": resourceSliceCount is ", slice->slice_count, " of ", slice->name, ", and there are ", members.size());
      }
    }
  }
  return "";
}

std::string NameProblem(const std::vector<Slice>& all) {
  std::set<DeviceKey> seen;
  for (const Slice& slice : all) {
    for (const slices::SliceDevice& device : slice.content->devices) {
      if (!IsDnsLabel(device.name)) return Cat("\"", device.name, "\" is no DNS label");
      if (!seen.emplace(slice.pool_name, device.name).second) return Cat("device ", device.name, " is there twice in pool ", slice.pool_name);
    }
  }
  return "";
}

std::set<DeviceKey> DevicesOf(const std::vector<Slice>& all) {
  std::set<DeviceKey> devices;
  for (const Slice& slice : all) {
    for (const slices::SliceDevice& device : slice.content->devices) devices.emplace(slice.pool_name, device.name);
  }
  return devices;
}

std::map<std::string, std::string> VersionsOf(const std::vector<Slice>& all) {
  std::map<std::string, std::string> versions;
  for (const Slice& slice : all) versions[slice.name] = slice.resource_version;
  return versions;
}

// A driver that has just started gets the time to publish.
absl::StatusOr<std::vector<Slice>> Published(Session& session) {
  const Deadline patience = DeadlineIn(session.options.patience.publish);
  while (true) {
    absl::StatusOr<std::vector<Slice>> all = session.cluster->Slices(session.info.name);
    if (!all.ok() || Passed(patience) || (!all->empty() && PoolProblem(*all).empty())) return all;
    std::this_thread::sleep_for(200ms);
  }
}

void JudgeOwner(Session& session, const std::vector<Slice>& all) {
  const absl::StatusOr<std::string> node = session.cluster->NodeUid();
  if (!node.ok()) return session.Skip({"D-48"}, std::string(node.status().message()));
  std::string problem;
  for (const Slice& slice : all) {
    if (slice.owner.uid != *node) problem = Cat("slice ", slice.name, " is owned by ", slice.owner.uid.empty() ? "no Node" : "another Node");
  }
  session.report.Judge("D-48", problem);
}

void FindFreeDevices(Session& session, const std::vector<Slice>& all) {
  const absl::StatusOr<std::set<DeviceKey>> taken = session.cluster->Taken(session.info.name);
  if (!taken.ok()) {
    session.no_claims = std::string(taken.status().message());
    return;
  }
  session.devices = FreeDevices(all, *taken);
  if (session.devices.empty()) session.no_claims = "the driver publishes no device that is free";
}

}  // namespace

void ExamineSlices(Session& session) {
  if (session.cluster == nullptr) return;
  const absl::StatusOr<std::vector<Slice>> all = Published(session);
  if (!all.ok() || all->empty()) {
    session.no_claims =
        all.ok() ? Cat("there is no slice of driver ", session.info.name, " on node ", session.options.node) : std::string(all.status().message());
    session.report.Fail("D-45", session.no_claims);
    return session.Skip({"D-46", "D-47", "D-48", "D-49"}, session.no_claims);
  }
  const bool named = std::none_of(all->begin(), all->end(), [](const Slice& slice) { return slice.pool_name.empty(); });
  named ? session.report.Pass("D-45", Cat(all->size(), " slices with ", DevicesOf(*all).size(), " devices"))
        : session.report.Fail("D-45", "a slice names no pool");
  session.report.Judge("D-46", PoolProblem(*all));
  session.report.Judge("D-47", NameProblem(*all));
  JudgeOwner(session, *all);
  FindFreeDevices(session, *all);
  std::this_thread::sleep_for(session.options.patience.quiet);
  const absl::StatusOr<std::vector<Slice>> later = session.cluster->Slices(session.info.name);
  if (!later.ok()) return session.Skip({"D-49"}, std::string(later.status().message()));
  session.report.Judge("D-49", VersionsOf(*all) == VersionsOf(*later) ? "" : Cat("slices were written within ", session.options.patience.quiet.count(), " ms"));
}

void ExamineSliceDeletion(Session& session) {
  if (session.cluster == nullptr) return;
  if (session.options.leave_slices) return session.Skip({"D-50", "D-51"}, "--leave-slices");
  const absl::StatusOr<std::vector<Slice>> before = session.cluster->Slices(session.info.name);
  if (!before.ok() || before->empty()) return session.Skip({"D-50", "D-51"}, "there is no slice to delete");
  const std::set<DeviceKey> devices = DevicesOf(*before);
  const Slice& victim = before->front();
  if (const absl::Status deleted = session.cluster->DeleteSlice(victim.name); !deleted.ok())
    return session.Skip({"D-50", "D-51"}, std::string(deleted.message()));
  const auto begin = std::chrono::steady_clock::now();
  std::string problem = "not looked for";
  while (!problem.empty() && std::chrono::steady_clock::now() - begin < session.options.patience.slice_return && !session.options.is_interrupted()) {
    std::this_thread::sleep_for(20ms);
    const absl::StatusOr<std::vector<Slice>> now = session.cluster->Slices(session.info.name);
    if (!now.ok()) {
      problem = std::string(now.status().message());
      continue;
    }
    const bool is_gone = std::none_of(now->begin(), now->end(), [&](const Slice& slice) { return slice.uid == victim.uid; });
    problem = PoolProblem(*now);
    if (problem.empty() && (!is_gone || DevicesOf(*now) != devices)) problem = Cat(DevicesOf(*now).size(), " of ", devices.size(), " devices are published");
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  if (!problem.empty()) {
    session.report.Fail("D-50", Cat("after ", took.count(), " ms: ", problem));
    return session.Skip({"D-51"}, "it did not come back");
  }
  session.report.Pass("D-50");
  const std::string seen = Cat("after ", took.count(), " ms");
  took <= session.options.patience.quick_return ? session.report.Pass("D-51", seen) : session.report.Fail("D-51", seen);
}

}  // namespace tranche::dra_conform
