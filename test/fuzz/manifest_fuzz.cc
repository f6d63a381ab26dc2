// Any bytes as a manifest, and a manifest that parses as the judge of a configuration: both end in a value or an error.
#include <cstdint>
#include <string_view>

#include "backend/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = tranche::backend::ParseManifest(text);
  if (manifest.ok()) { static_cast<void>(tranche::backend::CheckConfiguration(*manifest, R"({"devices": 1, "name": "x", "list": [1, "a", null]})")); }
  static_cast<void>(tranche::backend::CheckConfiguration(tranche::backend::Manifest(), text));
  return 0;
}
