// Devices, snapshots and checks for the tests of slices.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/text.h"
#include "inventory/inventory.h"
#include "slices/planner.h"
#include "slices/slice.h"

namespace tranche::slices {

inline const std::string kDriver = "vnic.tranche.dev";
inline const std::string kNode = "node-1";

struct Shape {
  std::size_t devices = 0;
  bool taints = false, counters = false;
  std::size_t sets = 3;       // where there are counters
  std::int64_t revision = 1;  // an attribute, so that contents differ
};

inline PublishedDevice MakePublished(const std::string& name, Mode mode = Mode::kWhole) {
  PublishedDevice device;
  device.driver = kDriver;
  device.pool = kNode;
  device.name = name;
  device.offer = std::string(ModeName(mode));
  device.backend = "null";
  device.physical = name;
  device.mode = mode;
  device.allow_multiple_allocations = mode == Mode::kShare;
  device.attributes["offer"] = device.offer;
  device.attributes["enforcement"] = std::string("hard");
  PublishedCapacity capacity{Quantity::FromInt64(1000), std::nullopt, Enforcement::kHard};
  if (mode == Mode::kShare)
    capacity.request_policy = RequestPolicy{Quantity::FromInt64(10), {}, ValidRange{Quantity::FromInt64(10), std::nullopt, Quantity::FromInt64(10)}};
  device.capacity["bandwidth"] = capacity;
  return device;
}

inline inventory::Snapshot MakeSnapshot(const Shape& shape) {
  inventory::Snapshot snapshot;
  for (std::size_t set = 0; shape.counters && shape.devices > 0 && set < shape.sets; ++set) {
    snapshot.counter_sets[kDriver].push_back({Cat("silicon-", set), {{"units", Quantity::FromInt64(1000)}}});
  }
  for (std::size_t i = 0; i < shape.devices; ++i) {
    PublishedDevice device = MakePublished(Cat("dev-", i));
    device.attributes["revision"] = shape.revision;
    if (shape.counters) device.consumes_counters.push_back({Cat("silicon-", i % shape.sets), {{"units", Quantity::FromInt64(1)}}});
    device.draining = shape.taints && i % 7 == 0;
    snapshot.devices.push_back(std::move(device));
  }
  return snapshot;
}

inline std::shared_ptr<const inventory::Snapshot> Shared(const Shape& shape) { return std::make_shared<const inventory::Snapshot>(MakeSnapshot(shape)); }

// Within 20 s, which is for ever; most waits take milliseconds.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

// The API has exactly the planned slices: one a place, one generation, the right count and content.
inline bool IsExactly(const std::vector<Slice>& stored, const SlicePlan& plan) {
  if (stored.size() != plan.slices.size()) return false;
  std::set<std::size_t> seen;
  for (const Slice& slice : stored) {
    const std::optional<std::size_t> index = IndexOf(slice.name, kDriver, kNode);
    if (!index.has_value() || *index >= plan.slices.size() || !seen.insert(*index).second) return false;
    if (slice.generation != stored.front().generation || slice.slice_count != static_cast<std::int64_t>(stored.size())) return false;
    if (slice.owner.uid.empty() || !SameContent(*slice.content, *plan.slices[*index].content)) return false;
  }
  return true;
}

}  // namespace tranche::slices
