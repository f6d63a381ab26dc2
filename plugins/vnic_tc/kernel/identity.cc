#include "plugins/vnic_tc/kernel/identity.h"

#include <charconv>
#include <cstdio>
#include <vector>

namespace vnic {
namespace {

constexpr std::string_view kShareTag = "tranche1", kBridgeTag = "tranche1-bridge";
constexpr std::size_t kAliasBytes = 255, kTagNameBytes = 255;

// FNV-1a with a final avalanche. Names are no secret: a collision is detected by the alias and refused.
std::uint64_t Hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3ULL;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ (hash >> 33);
}

std::string Hex(std::uint64_t value, int digits) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return std::string(text, static_cast<std::size_t>(digits));
}

std::string Canonical(const Identity& key) {
  return key.claim_uid + "|" + key.request + "|" + key.driver + "|" + key.pool + "|" + key.device + "|" + key.share_id;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator, begin)) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string FullAlias(const ShareRecord& record) {
  char minor[16];
  std::snprintf(minor, sizeof minor, "%x", record.minor);
  const Identity& key = record.identity;
  return std::string(kShareTag) + "|" + key.claim_uid + "|" + key.share_id + "|" + InterfaceAddressText(record.address) + "|" + MacText(record.mac) + "|" +
         minor + "@" + record.parent + "|" + key.request + "|" + key.device + "|" + key.driver + "|" + key.pool;
}

std::string TagHead(const ShareRecord& record) {
  char minor[16];
  std::snprintf(minor, sizeof minor, "%x", record.minor);
  return record.identity.share_id + "|" + minor + "|" + MacText(record.mac) + "|" + Ipv4Text(record.address.address) + "|";
}

}  // namespace

std::string HostEndName(const Identity& identity) { return "vs" + Hex(Hash(Canonical(identity)), 12); }
std::string PodEndName(const Identity& identity) { return "vp" + Hex(Hash(Canonical(identity)), 12); }

bool IsHostEndName(std::string_view name) {
  return name.size() == 14 && name.substr(0, 2) == "vs" && name.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

Mac MacOf(const Identity& identity, std::uint32_t attempt) {
  const std::uint64_t hash = Hash("mac|" + Canonical(identity) + "|" + std::to_string(attempt));
  Mac mac{0x02};
  for (std::size_t octet = 1; octet < mac.size(); ++octet) mac[octet] = static_cast<std::uint8_t>(hash >> (8 * octet));
  return mac;
}

std::string AliasOf(const ShareRecord& record) { return FullAlias(record).substr(0, kAliasBytes); }

std::string TagNameOf(const ShareRecord& record) {
  const std::string full = FullAlias(record);
  const std::string rest = full.size() > kAliasBytes ? full.substr(kAliasBytes) : "";
  return (TagHead(record) + rest).substr(0, kTagNameBytes);
}

std::optional<ShareRecord> PartialRecordOf(std::string_view alias) {
  std::vector<std::string> parts = Split(alias, '|');
  if (parts[0] != kShareTag || parts.size() < 6) return std::nullopt;
  parts.resize(10);
  const auto address = ParseInterfaceAddress(parts[3]);
  const auto mac = ParseMac(parts[4]);
  const std::size_t at = parts[5].find('@');
  if (!address || !mac || at == std::string::npos) return std::nullopt;
  ShareRecord record;
  const auto [end, error] = std::from_chars(parts[5].data(), parts[5].data() + at, record.minor, 16);
  if (error != std::errc() || end != parts[5].data() + at) return std::nullopt;
  record.parent = parts[5].substr(at + 1);
  record.address = *address;
  record.mac = *mac;
  record.identity = {parts[1], parts[6], parts[8], parts[9], parts[7], parts[2]};
  return record;
}

std::optional<ShareRecord> RecordOf(std::string_view host_end, std::string_view alias, std::string_view tag_name) {
  std::string full(alias);
  const std::optional<ShareRecord> head = PartialRecordOf(alias);
  if (!head) return std::nullopt;
  const std::string prefix = TagHead(*head);
  if (full.size() >= kAliasBytes && tag_name.substr(0, prefix.size()) == prefix) full += tag_name.substr(prefix.size());
  std::optional<ShareRecord> record = PartialRecordOf(full);
  if (!record || HostEndName(record->identity) != host_end) return std::nullopt;
  return record;
}

std::string BridgeNameOf(std::string_view parent) { return "trb" + Hex(Hash(parent), 8); }

std::string AliasOf(const BridgeRecord& record) { return std::string(kBridgeTag) + "|" + record.parent + "|" + (record.parent_was_up ? "up" : "down"); }

std::optional<BridgeRecord> BridgeRecordOf(std::string_view alias) {
  const std::vector<std::string> parts = Split(alias, '|');
  if (parts.size() != 3 || parts[0] != kBridgeTag) return std::nullopt;
  return BridgeRecord{parts[1], parts[2] == "up"};
}

}  // namespace vnic
