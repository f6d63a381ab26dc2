// A ResourceSlice (resource.k8s.io/v1) of one node and driver: a plain value with its JSON codec and the comparison that decides whether the API
// server's copy says what we want. Fields that this code does not know are kept as text, so that an object written back loses nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "base/clock.h"
#include "model/device.h"

namespace tranche::slices {

// spec.devices[].taints[]. The server keeps whole seconds of the time and sets one that is missing.
struct DeviceTaint {
  std::string key, value, effect;  // effect: None | NoSchedule | NoExecute
  std::optional<WallTime> time_added;
  friend bool operator==(const DeviceTaint&, const DeviceTaint&) = default;
};

struct SliceCapacity {
  Quantity value;
  std::optional<RequestPolicy> request_policy;
  friend bool operator==(const SliceCapacity&, const SliceCapacity&) = default;
};

struct SliceDevice {
  std::string name;
  Attributes attributes;
  std::map<std::string, SliceCapacity> capacity;
  std::vector<CounterUse> consumes_counters;
  std::vector<DeviceTaint> taints;
  bool allow_multiple_allocations = false;
  std::string unknown;  // JSON object of the other fields and of attributes that are lists; empty: none
  friend bool operator==(const SliceDevice&, const SliceDevice&) = default;
};

// What a slice offers. Immutable once shared, so that copies of a slice are cheap.
struct SliceContent {
  std::vector<SliceDevice> devices;
  std::vector<CounterSet> shared_counters;
};

// The Node object, owner of every slice of its node.
struct NodeOwner {
  std::string name, uid;
  friend bool operator==(const NodeOwner&, const NodeOwner&) = default;
};

struct Slice {
  std::string name;  // empty before creation
  std::string generate_name;
  std::string uid, resource_version;
  std::map<std::string, std::string> labels;
  NodeOwner owner;  // empty: no Node owns it
  std::string driver, node_name, pool_name;
  std::int64_t generation = 0;
  std::int64_t slice_count = 0;                                                          // resourceSliceCount
  std::shared_ptr<const SliceContent> content = std::make_shared<const SliceContent>();  // never null
  std::string unknown_metadata, unknown_spec;  // JSON objects; empty: none. managedFields are left out: the server keeps its own
};

// The whole object and its inverse. Decoding tolerates unknown fields and names the path of what is wrong.
absl::StatusOr<Slice> DecodeSlice(const boost::json::value& value);
boost::json::object EncodeSlice(const Slice& slice);

// Equal for the scheduler: order counts, quantities compare as numbers, times of taints and unknown fields do not count.
bool SameContent(const SliceContent& left, const SliceContent& right);
bool SameDevice(const SliceDevice& left, const SliceDevice& right);

}  // namespace tranche::slices
