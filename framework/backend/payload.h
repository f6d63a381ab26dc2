// Payloads between host and backend: text to values and back. Bounds, JSON, schema, model codec: in this order, each with its message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "backend/backend.h"

namespace tranche::backend {

absl::StatusOr<PhysicalDevice> ReadDevice(std::string_view text);
absl::StatusOr<AppliedShare> ReadShare(std::string_view text);
absl::StatusOr<ShareKey> ReadKey(std::string_view text);
absl::Status CheckHealthText(std::string_view text);

// InvalidArgument when an item's configuration is not a JSON object or a consumed amount does not fit.
absl::Status CheckPrepareItem(const PrepareItem& item);
// Items must have passed CheckPrepareItem.
std::string WritePrepareList(const std::vector<const PrepareItem*>& items);
std::string WriteUnprepareList(const std::vector<UnprepareItem>& items);
std::string WriteReference(const ShareKey& key, const std::string& state);
// The argument of create; `config` is a JSON object.
absl::StatusOr<std::string> WriteCreate(const std::string& config, const std::string& runtime_directory);

// A backend's words for people: valid UTF-8 without control characters, at most 4 KiB.
std::string CleanText(std::string_view text);

}  // namespace tranche::backend
