#include "admin/views.h"

#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/json.h"

namespace tranche::admin {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMaxAuditRecords = 10'000;

// A text member of params, empty when absent.
absl::StatusOr<std::string> TextOf(const json::value& params, const char* key) {
  const json::object* object = params.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains(key);
  if (found == nullptr || found->is_null()) return std::string();
  if (!found->is_string()) return absl::InvalidArgumentError(Cat("parameter ", key, " is not text"));
  return std::string(found->get_string().data(), found->get_string().size());
}

absl::StatusOr<std::int64_t> NumberOf(const json::value& params, const char* key, std::int64_t otherwise) {
  const json::object* object = params.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains(key);
  if (found == nullptr || found->is_null()) return otherwise;
  if (!found->is_int64() || found->get_int64() < 0) return absl::InvalidArgumentError(Cat("parameter ", key, " is not a number from 0"));
  return found->get_int64();
}

json::array EncodeTexts(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

json::value EncodeClaimView(const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares) {
  json::array views;
  for (const store::ShareRow& share : shares) views.push_back(EncodeShareView(claim, share));
  return json::object{{"namespace", claim.namespace_name},
                      {"name", claim.name},
                      {"uid", claim.claim_uid},
                      {"driver", claim.driver},
                      {"state", store::ClaimStateName(claim.state)},
                      {"reason", claim.reason},
                      {"epoch", claim.epoch},
                      {"allocationVersion", claim.allocation_version},
                      {"podUIDs", EncodeTexts(claim.pod_uids)},
                      {"createdAt", FormatTime(claim.created_at)},
                      {"updatedAt", FormatTime(claim.updated_at)},
                      {"shares", std::move(views)}};
}

// Calls `take` for each matching claim with its shares, in one snapshot of the store.
template <typename Take>
absl::Status ForEachClaim(store::Store& store, const ClaimFilter& filter, const Take& take) {
  return store.Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ClaimRow> claims, transaction.Claims());
    for (const store::ClaimRow& claim : claims) {
      if (!Matches(filter, claim)) continue;
      TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ShareRow> shares, transaction.SharesOfClaim(claim.driver, claim.claim_uid));
      take(claim, shares);
    }
    return absl::OkStatus();
  });
}

json::value ParsedOrText(const std::string& text) {
  absl::StatusOr<json::value> parsed = ParseJson(text);
  return parsed.ok() ? *std::move(parsed) : json::value(text);
}

}  // namespace

absl::StatusOr<ClaimFilter> DecodeClaimFilter(const json::value& params) {
  ClaimFilter filter;
  TRANCHE_ASSIGN_OR_RETURN(filter.claim, TextOf(params, "claim"));
  TRANCHE_ASSIGN_OR_RETURN(filter.tenant, TextOf(params, "tenant"));
  return filter;
}

bool Matches(const ClaimFilter& filter, const store::ClaimRow& row) {
  if (!filter.tenant.empty() && filter.tenant != row.namespace_name) return false;
  if (filter.claim.empty() || filter.claim == row.claim_uid || filter.claim == row.name) return true;
  return filter.claim == Cat(row.namespace_name, "/", row.name);
}

json::value EncodeShareView(const store::ClaimRow& claim, const store::ShareRow& share) {
  json::object view{{"namespace", claim.namespace_name},
                    {"claim", claim.name},
                    {"claimUID", share.key.claim_uid},
                    {"request", share.key.request},
                    {"driver", share.key.driver},
                    {"pool", share.key.pool},
                    {"device", share.key.device},
                    {"shareID", share.key.share_id},
                    {"id", ShortId(share.key)},
                    {"backend", share.backend},
                    {"physical", share.physical},
                    {"offer", share.offer},
                    {"class", share.device_class},
                    {"mode", ModeName(share.mode)},
                    {"state", store::ShareStateName(share.state)},
                    {"consumedCapacity", EncodeQuantities(share.consumed)},
                    {"policyVersion", share.policy_version},
                    {"configuration", ParsedOrText(share.configuration)}};
  if (share.applied.has_value()) view["applied"] = EncodeAppliedShare(*share.applied);
  return view;
}

namespace {

// What a disk may have done to a row: SQLite has no checksum, so this finds what no host writes. "" when nothing is wrong.
std::string DamageOf(const AuditRecord& record) {
  constexpr std::int64_t kFirstSecond = 1'577'836'800, kLastSecond = 7'258'118'400;  // 2020 and 2200
  const std::int64_t second = std::chrono::duration_cast<std::chrono::seconds>(record.at.time_since_epoch()).count();
  if (second < kFirstSecond || second > kLastSecond) return "its time cannot be";
  const std::pair<const char*, const std::string*> texts[] = {{"actor", &record.actor},
                                                              {"action", &record.action},
                                                              {"tenant", &record.tenant},
                                                              {"claim", &record.claim},
                                                              {"claimUID", &record.claim_uid},
                                                              {"request", &record.request},
                                                              {"driver", &record.driver},
                                                              {"pool", &record.pool},
                                                              {"device", &record.device},
                                                              {"shareID", &record.share_id},
                                                              {"capacity", &record.capacity},
                                                              {"policyVersion", &record.policy_version},
                                                              {"allocationVersion", &record.allocation_version},
                                                              {"outcome", &record.outcome},
                                                              {"message", &record.message}};
  for (const auto& [name, text] : texts) {
    if (!IsUtf8(*text)) return Cat("its ", name, " is no text");
  }
  if (record.actor.empty() || record.action.empty()) return "it names no actor or no action";
  if (!record.capacity.empty() && !ParsedOrText(record.capacity).is_object()) return "its capacity is no JSON object";
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    if (record.outcome == CodeName(static_cast<absl::StatusCode>(code))) return "";
  }
  return "its outcome is none of the canonical codes";
}

// Bytes that no reader of JSON takes are shown as '?'.
std::string Readable(const std::string& text) {
  if (IsUtf8(text)) return text;
  std::string readable = text;
  for (char& byte : readable) {
    if (static_cast<unsigned char>(byte) >= 0x80) byte = '?';
  }
  return readable;
}

}  // namespace

json::value EncodeAuditRecord(const AuditRecord& stored) {
  AuditRecord record = stored;
  const std::string damage = DamageOf(stored);
  if (!damage.empty()) {
    for (std::string* text :
         {&record.actor, &record.action, &record.tenant, &record.claim, &record.claim_uid, &record.request, &record.driver, &record.pool, &record.device,
          &record.share_id, &record.capacity, &record.policy_version, &record.allocation_version, &record.outcome, &record.message}) {
      *text = Readable(*text);
    }
  }
  return json::object{{"id", record.id},
                      {"problem", damage.empty() ? json::value(nullptr) : json::value(Cat("record ", record.id, " is damaged: ", damage))},
                      {"at", FormatTime(record.at)},
                      {"actor", record.actor},
                      {"action", record.action},
                      {"tenant", record.tenant},
                      {"claim", record.claim},
                      {"claimUID", record.claim_uid},
                      {"request", record.request},
                      {"driver", record.driver},
                      {"pool", record.pool},
                      {"device", record.device},
                      {"shareID", record.share_id},
                      {"capacity", record.capacity.empty() ? json::value(json::object()) : ParsedOrText(record.capacity)},
                      {"policyVersion", record.policy_version},
                      {"allocationVersion", record.allocation_version},
                      {"outcome", record.outcome},
                      {"message", record.message}};
}

absl::StatusOr<json::value> ViewClaims(store::Store& store, const ClaimFilter& filter) {
  json::array views;
  TRANCHE_RETURN_IF_ERROR(ForEachClaim(
      store, filter, [&](const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares) { views.push_back(EncodeClaimView(claim, shares)); }));
  return json::object{{"claims", std::move(views)}};
}

absl::StatusOr<json::value> ViewShares(store::Store& store, const ClaimFilter& filter) {
  json::array views;
  TRANCHE_RETURN_IF_ERROR(ForEachClaim(store, filter, [&](const store::ClaimRow& claim, const std::vector<store::ShareRow>& shares) {
    for (const store::ShareRow& share : shares) views.push_back(EncodeShareView(claim, share));
  }));
  return json::object{{"shares", std::move(views)}};
}

absl::StatusOr<json::value> ViewAudit(store::Store& store, const json::value& params) {
  store::AuditQuery query;
  TRANCHE_ASSIGN_OR_RETURN(const std::string claim, TextOf(params, "claim"));
  TRANCHE_ASSIGN_OR_RETURN(query.tenant, TextOf(params, "tenant"));
  TRANCHE_ASSIGN_OR_RETURN(query.after_id, NumberOf(params, "after", 0));
  TRANCHE_ASSIGN_OR_RETURN(query.limit, NumberOf(params, "limit", query.limit));
  if (query.limit > kMaxAuditRecords) return absl::InvalidArgumentError(Cat("parameter limit is above ", kMaxAuditRecords, "; page with after"));
  const std::size_t slash = claim.find('/');
  const std::string name = slash == std::string::npos ? "" : claim.substr(slash + 1);
  if (slash == std::string::npos) {
    query.claim_uid = claim;
  } else {
    query.tenant = claim.substr(0, slash);
  }
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<AuditRecord> records, store.Audit(query));
  json::array views;
  for (const AuditRecord& record : records) {
    if (name.empty() || record.claim == name) views.push_back(EncodeAuditRecord(record));
  }
  return json::object{{"records", std::move(views)}};
}

}  // namespace tranche::admin
