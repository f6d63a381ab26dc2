// The host's YAML configuration: any text is read or refused with errors, never a crash, and what is read has a policy snapshot.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const tranche::config::ParseOutcome outcome = tranche::config::ParseConfigurationDetailed(text);
  if (outcome.configuration.has_value() != outcome.errors.empty()) std::abort();
  if (!outcome.configuration.has_value()) return 0;
  for (const tranche::config::DriverConfiguration& driver : outcome.configuration->drivers) {
    for (const tranche::config::ClassConfiguration& device_class : driver.classes) {
      if (tranche::config::SnapshotPolicy(driver, device_class).json.empty()) std::abort();
      if (!tranche::config::MergeParameters(device_class, {}).ok()) std::abort();
    }
  }
  return 0;
}
