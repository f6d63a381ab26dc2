// Short ways to write the values that capacity tests need.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "capacity/capacity.h"
#include "model/device.h"

namespace tranche::test {

inline Quantity Q(std::string_view text) {
  const absl::StatusOr<Quantity> quantity = Quantity::Parse(text);
  EXPECT_TRUE(quantity.ok()) << text << ": " << quantity.status();
  return quantity.value_or(Quantity());
}

inline std::optional<Quantity> MaybeQ(std::string_view text) { return text.empty() ? std::nullopt : std::optional<Quantity>(Q(text)); }

inline RequestPolicy Default(std::string_view value) { return RequestPolicy{Q(value), {}, std::nullopt}; }

inline RequestPolicy Values(const std::vector<std::string_view>& values, std::string_view default_value) {
  RequestPolicy policy{Q(default_value), {}, std::nullopt};
  for (const std::string_view value : values) policy.valid_values.push_back(Q(value));
  return policy;
}

// Empty text: absent.
inline std::optional<RequestPolicy> Range(std::string_view default_value, std::string_view min, std::string_view max, std::string_view step) {
  return RequestPolicy{Q(default_value), {}, ValidRange{Q(min), MaybeQ(max), MaybeQ(step)}};
}

// A shared device without capacities.
inline PublishedDevice Device(const std::string& name) {
  PublishedDevice device;
  device.driver = "drv.example";
  device.pool = "node1";
  device.name = name;
  device.offer = "offer";
  device.mode = Mode::kShare;
  device.allow_multiple_allocations = true;
  device.enforcement = Enforcement::kHard;
  return device;
}

inline capacity::Grant ShareOf(const PublishedDevice& device, const std::string& claim, const Quantities& consumed) {
  return {{claim, "r0", device.driver, device.pool, device.name, "share-" + claim},
          device.backend,
          device.physical,
          Mode::kShare,
          false,
          consumed,
          device.consumes_counters};
}

inline capacity::Grant WholeOf(const PublishedDevice& device, const std::string& claim) {
  return {{claim, "r0", device.driver, device.pool, device.name, ""}, device.backend, device.physical, device.mode, false, {}, device.consumes_counters};
}

inline std::map<std::string, std::string> Text(const Quantities& quantities) {
  std::map<std::string, std::string> text;
  for (const auto& [name, quantity] : quantities) text[name] = quantity.ToString();
  return text;
}

}  // namespace tranche::test
