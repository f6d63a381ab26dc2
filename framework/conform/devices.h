// Which published devices an examination may use, and what is asked of them. Plain values and functions.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/device.h"
#include "slices/slice.h"

namespace tranche::dra_conform {

// A device of the driver's slices that no claim of the cluster uses.
struct Candidate {
  std::string pool;
  slices::SliceDevice device;
};

// One result of an allocation that is to be forged.
struct Want {
  std::string request;  // "r0", or "r0/sub" for a subrequest
  std::string driver, pool, device, device_class;
  std::string share_id;  // empty: the whole device
  Quantities consumed;   // of a share
};

using DeviceKey = std::pair<std::string, std::string>;  // pool, device

// Untainted devices without binding conditions, as the slices list them: those in `taken` are left out, and so is what draws on the counters of one.
std::vector<Candidate> FreeDevices(const std::vector<slices::Slice>& slices, const std::set<DeviceKey>& taken);

// At most `most` devices of which no two draw on one counter set: they can be held side by side. Exclusive ones, or those that allow several allocations.
std::vector<Candidate> SideBySide(const std::vector<Candidate>& devices, bool several, std::size_t most);
inline std::vector<Candidate> Exclusive(const std::vector<Candidate>& devices, std::size_t most) { return SideBySide(devices, false, most); }
inline std::vector<Candidate> Shareable(const std::vector<Candidate>& devices, std::size_t most) { return SideBySide(devices, true, most); }

// What a share of the device consumes when it asks for as little, or as much, as the request policies let it. Every capacity has an entry.
Quantities Least(const Candidate& candidate);
Quantities Most(const Candidate& candidate);
// How many shares of `consumed` the device has room for; `bound` at most.
std::size_t Room(const Candidate& candidate, const Quantities& consumed, std::size_t bound);

}  // namespace tranche::dra_conform
