// What the ResourceSlices of a driver on this node should say. Pure: the same input gives the same slices, names included, in any process, so that
// the old and the new host of a rolling update agree without talking. What an API server would refuse or misread is repaired, left out or
// withheld here, and reported: one bad attribute never costs a device, one bad device never costs a slice.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inventory/inventory.h"
#include "slices/slice.h"

namespace tranche::slices {

inline constexpr int kNewestMinor = 37;  // Kubernetes 1.37: taken for granted where a server does not tell
inline constexpr std::string_view kDrainingTaint = "tranche.dev/draining";

// What the API server keeps of a slice.
struct ServerFeatures {
  int minor = kNewestMinor;                   // layout: 34 puts counters and devices in one slice, later ones apart
  bool consumable_capacity = true;            // DRAConsumableCapacity: allowMultipleAllocations, requestPolicy
  bool partitionable = true;                  // DRAPartitionableDevices: sharedCounters, consumesCounters
  bool taints = true;                         // DRADeviceTaints
  static ServerFeatures Defaults(int minor);  // the three gates are on from 1.36
  friend bool operator==(const ServerFeatures&, const ServerFeatures&) = default;
};

enum class ProblemKind { kRepaired, kOmitted, kWithheld };  // published otherwise; a field is missing; a device is missing
std::string_view ProblemKindName(ProblemKind kind);

// Equal problems of several devices are one: `device` is the first of them.
struct Problem {
  ProblemKind kind = ProblemKind::kOmitted;
  std::string device, field, message;
  std::size_t devices = 1;
  friend bool operator==(const Problem&, const Problem&) = default;
};

using DeviceTaints = std::map<std::string, std::vector<DeviceTaint>>;  // by published device name

// Slices in the order of allocation preference, at least one; each with generateName, driver, node, pool, count and content, without generation.
struct SlicePlan {
  std::vector<Slice> slices;
  std::vector<Problem> problems;
};
SlicePlan Plan(const std::string& driver, const std::string& node, const inventory::Snapshot& snapshot, const DeviceTaints& taints,
               const ServerFeatures& features);

// "<index, 5 hex digits>-<driver>-<node>-": allocators take slices in the order of their names.
std::string GenerateName(std::size_t index, const std::string& driver, const std::string& node);
// The index in the name of a slice that was created with our generateName; nullopt for any other name.
std::optional<std::size_t> IndexOf(const std::string& name, const std::string& driver, const std::string& node);

// Repairs; the same text where nothing is wrong. Stable: they depend on the text alone.
std::optional<std::string> RepairAttributeName(std::string_view text);  // [domain/]C identifier; nullopt: nothing to make a name of
std::string RepairText(std::string_view text);                          // UTF-8 of at most 64 bytes
std::optional<std::string> RepairVersion(std::string_view text);        // semantic version 2.0.0; nullopt: it begins with no number

}  // namespace tranche::slices
