#include "slices/dropped.h"

#include <algorithm>

namespace tranche::slices {
namespace {

bool LosesPolicy(const SliceDevice& sent, const SliceDevice& stored) {
  return std::any_of(sent.capacity.begin(), sent.capacity.end(), [&](const auto& capacity) {
    const auto kept = stored.capacity.find(capacity.first);
    return capacity.second.request_policy.has_value() && kept != stored.capacity.end() && !kept->second.request_policy.has_value();
  });
}

void Compare(const SliceDevice& sent, const SliceDevice& stored, Dropped& dropped) {
  SliceDevice rest = sent;  // what is left to differ once the fields of known gates are taken as stored
  if (stored.taints.empty() && !sent.taints.empty()) {
    dropped.taints = true;
    rest.taints.clear();
  }
  if (stored.consumes_counters.empty() && !sent.consumes_counters.empty()) {
    dropped.counters = true;
    rest.consumes_counters.clear();
  }
  if ((sent.allow_multiple_allocations && !stored.allow_multiple_allocations) || LosesPolicy(sent, stored)) {
    dropped.sharing = true;
    rest.allow_multiple_allocations = stored.allow_multiple_allocations;
    rest.capacity = stored.capacity;
  }
  if (!SameDevice(rest, stored)) dropped.other = true;
}

}  // namespace

Dropped FindDropped(const SliceContent& sent, const SliceContent& stored) {
  Dropped dropped;
  if (SameContent(sent, stored)) return dropped;
  if (sent.shared_counters != stored.shared_counters) (stored.shared_counters.empty() ? dropped.counters : dropped.other) = true;
  if (sent.devices.size() != stored.devices.size()) {
    dropped.other = true;
    return dropped;
  }
  for (std::size_t i = 0; i < sent.devices.size(); ++i) Compare(sent.devices[i], stored.devices[i], dropped);
  return dropped;
}

Slice GateProbe(const std::string& driver, const std::string& node, const NodeOwner& owner, int minor) {
  SliceDevice device;
  device.name = "probe";
  device.allow_multiple_allocations = true;
  device.capacity["probe"].value = Quantity::FromInt64(1);
  device.taints.push_back({"tranche.dev/probe", "", "NoSchedule", std::nullopt});
  device.consumes_counters.push_back({"probe", {{"probe", Quantity::FromInt64(1)}}});
  SliceContent content;
  content.devices.push_back(std::move(device));
  if (minor <= 34) content.shared_counters.push_back({"probe", {{"probe", Quantity::FromInt64(1)}}});
  Slice probe;
  probe.generate_name = GenerateName(0, driver, node);
  probe.owner = owner;
  probe.driver = driver;
  probe.node_name = probe.pool_name = node;
  probe.generation = probe.slice_count = 1;
  probe.content = std::make_shared<const SliceContent>(std::move(content));
  return probe;
}

ServerFeatures Without(ServerFeatures features, const Dropped& dropped) {
  features.taints = features.taints && !dropped.taints;
  features.partitionable = features.partitionable && !dropped.counters;
  features.consumable_capacity = features.consumable_capacity && !dropped.sharing;
  return features;
}

}  // namespace tranche::slices
