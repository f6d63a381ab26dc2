// What a backend answers: shares and devices. A decoded payload is encoded and read back equal.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <boost/json.hpp>

#include "model/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const absl::StatusOr<boost::json::value> value = tranche::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!value.ok()) return 0;
  if (const absl::StatusOr<tranche::AppliedShare> share = tranche::DecodeAppliedShare(*value); share.ok()) {
    if (!tranche::DecodeAppliedShare(tranche::EncodeAppliedShare(*share)).ok()) std::abort();
  }
  if (const absl::StatusOr<tranche::PhysicalDevice> device = tranche::DecodePhysicalDevice(*value); device.ok()) {
    const absl::StatusOr<tranche::PhysicalDevice> again = tranche::DecodePhysicalDevice(tranche::EncodePhysicalDevice(*device));
    if (!again.ok() || !(*again == *device)) std::abort();
  }
  return 0;
}
