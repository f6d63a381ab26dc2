// What a claim may bring: the object itself, and its opaque parameters merged over a class's. A decoded claim survives encoding.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "config/config.h"
#include "model/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  tranche::config::ClassConfiguration device_class;
  device_class.name = "c";
  device_class.parameters = R"({"direction":"both","nested":{"a":1}})";
  device_class.claim_parameters = {"direction", "nested"};
  const absl::StatusOr<std::string> merged = tranche::config::MergeParameters(device_class, {text});
  if (merged.ok() && !tranche::ParseJson(*merged).ok()) std::abort();

  const absl::StatusOr<boost::json::value> value = tranche::ParseJson(text);
  if (!value.ok()) return 0;
  const absl::StatusOr<tranche::Claim> claim = tranche::DecodeClaim(*value);
  if (!claim.ok()) return 0;
  if (!tranche::DecodeClaim(tranche::EncodeClaim(*claim)).ok()) std::abort();
  if (claim->allocation.has_value()) tranche::AllocationVersion(*claim->allocation, "vnic.tranche.dev", 1);
  return 0;
}
