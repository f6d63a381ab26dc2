#include "backend/payload.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/json.hpp>

#include "backend/schema.h"
#include "base/status.h"
#include "base/utf8.h"
#include "model/json.h"

namespace tranche::backend {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxMessageBytes = 4096;

absl::StatusOr<json::value> ReadChecked(std::string_view text, std::string_view schema) {
  TRANCHE_ASSIGN_OR_RETURN(json::value value, ParseJson(text));
  TRANCHE_RETURN_IF_ERROR(ValidatePayload(schema, value));
  return value;
}

json::value WriteItem(const PrepareItem& item) {
  json::object consumed;
  for (const auto& [name, amount] : item.consumed) { consumed[name] = json::object{{"value", amount.CeilToInt64().value_or(0)}, {"text", amount.ToString()}}; }
  json::array pods;
  for (const std::string& uid : item.pod_uids) pods.emplace_back(uid);
  json::object object{{"key", EncodeShareKey(item.key)}, {"physical", item.physical}, {"mode", std::string(ModeName(item.mode))},
                      {"consumed", std::move(consumed)}, {"state", item.state},       {"policyVersion", item.policy_version},
                      {"resultIndex", item.result_index}};
  object["configuration"] = item.configuration.empty() ? json::value(json::object()) : ParseJson(item.configuration).value_or(json::object());
  object["claim"] = json::object{{"namespace", item.claim_namespace}, {"name", item.claim_name}, {"podUIDs", std::move(pods)}};
  return object;
}

std::string WriteList(json::array shares) { return ToJsonText(json::object{{"schemaVersion", 1}, {"shares", std::move(shares)}}); }

}  // namespace

absl::StatusOr<PhysicalDevice> ReadDevice(std::string_view text) {
  TRANCHE_ASSIGN_OR_RETURN(const json::value value, ReadChecked(text, "device"));
  return DecodePhysicalDevice(value);
}

absl::StatusOr<AppliedShare> ReadShare(std::string_view text) {
  TRANCHE_ASSIGN_OR_RETURN(const json::value value, ReadChecked(text, "share"));
  return DecodeAppliedShare(value);
}

absl::StatusOr<ShareKey> ReadKey(std::string_view text) {
  TRANCHE_ASSIGN_OR_RETURN(const json::value value, ReadChecked(text, "key"));
  return DecodeShareKey(value);
}

absl::Status CheckHealthText(std::string_view text) { return ReadChecked(text, "health").status(); }

absl::Status CheckPrepareItem(const PrepareItem& item) {
  if (!item.configuration.empty()) {
    absl::StatusOr<json::value> configuration = ParseJson(item.configuration);
    if (!configuration.ok()) return Annotate(configuration.status(), "configuration");
    if (!configuration->is_object()) return absl::InvalidArgumentError("configuration must be a JSON object");
  }
  for (const auto& [name, amount] : item.consumed) { TRANCHE_RETURN_IF_ERROR(Annotate(amount.CeilToInt64().status(), absl::StrCat("consumed.", name))); }
  return absl::OkStatus();
}

std::string WritePrepareList(const std::vector<const PrepareItem*>& items) {
  json::array shares;
  for (const PrepareItem* item : items) shares.push_back(WriteItem(*item));
  return WriteList(std::move(shares));
}

std::string WriteUnprepareList(const std::vector<UnprepareItem>& items) {
  json::array shares;
  for (const UnprepareItem& item : items) shares.push_back(json::object{{"key", EncodeShareKey(item.key)}, {"state", item.state}});
  return WriteList(std::move(shares));
}

std::string WriteReference(const ShareKey& key, const std::string& state) {
  return ToJsonText(json::object{{"schemaVersion", 1}, {"key", EncodeShareKey(key)}, {"state", state}});
}

absl::StatusOr<std::string> WriteCreate(const std::string& config, const std::string& runtime_directory) {
  TRANCHE_ASSIGN_OR_RETURN(json::value value, ParseJson(config));
  return ToJsonText(json::object{{"schemaVersion", 1}, {"config", std::move(value)}, {"runtimeDirectory", runtime_directory}});
}

std::string CleanText(std::string_view text) {
  std::string clean;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t length = SequenceLength(text.substr(position));
    if (clean.size() + length > kMaxMessageBytes) break;
    const unsigned char byte = static_cast<unsigned char>(text[position]);
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      clean += length == 0 ? '?' : ' ';
      position += 1;
      continue;
    }
    clean.append(text.substr(position, length));
    position += length;
  }
  return clean;
}

}  // namespace tranche::backend
