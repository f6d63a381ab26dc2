#include "model/device.h"

#include "base/text.h"

namespace tranche {

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kWhole: return "whole";
    case Mode::kPartition: return "partition";
    case Mode::kShare: return "share";
  }
  return "unknown";
}

absl::StatusOr<Mode> ParseMode(std::string_view text) {
  for (Mode mode : {Mode::kWhole, Mode::kPartition, Mode::kShare}) {
    if (text == ModeName(mode)) return mode;
  }
  return absl::InvalidArgumentError(Cat("\"", text, "\" is not a mode; use whole, partition or share"));
}

std::string_view EnforcementName(Enforcement level) {
  switch (level) {
    case Enforcement::kNone: return "none";
    case Enforcement::kSoft: return "soft";
    case Enforcement::kStrong: return "strong";
    case Enforcement::kHard: return "hard";
  }
  return "unknown";
}

absl::StatusOr<Enforcement> ParseEnforcement(std::string_view text) {
  for (Enforcement level : {Enforcement::kNone, Enforcement::kSoft, Enforcement::kStrong, Enforcement::kHard}) {
    if (text == EnforcementName(level)) return level;
  }
  return absl::InvalidArgumentError(Cat("\"", text, "\" is not an enforcement level; use none, soft, strong or hard"));
}

std::string DeviceAddress(const PublishedDevice& device) { return Cat(device.driver, "/", device.pool, "/", device.name); }

}  // namespace tranche
