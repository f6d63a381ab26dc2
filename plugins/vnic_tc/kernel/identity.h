// How a share is written into the kernel, so that everything can be rebuilt from there: interface names from a hash of its key, the whole
// identity in the alias of the host end and, where that is too short, in the name of the port filter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/vnic_tc/kernel/address.h"

namespace vnic {

constexpr std::uint32_t kGroup = 0x7a600;       // every link of ours
constexpr std::uint32_t kDyingGroup = 0x7a6ff;  // host ends about to be deleted together

struct Identity {
  std::string claim_uid, request, driver, pool, device, share_id;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// What is written: who the share belongs to and what it was given.
struct ShareRecord {
  Identity identity;
  InterfaceAddress address;
  Mac mac{};
  std::uint32_t minor = 0;
  std::string parent;  // interface name of the uplink
  friend bool operator==(const ShareRecord&, const ShareRecord&) = default;
};

std::string HostEndName(const Identity& identity);  // "vs" + 12 hexadecimal characters
std::string PodEndName(const Identity& identity);   // "vp" + the same
bool IsHostEndName(std::string_view name);
Mac MacOf(const Identity& identity, std::uint32_t attempt);  // locally administered

// "tranche1|claimUID|shareID|ip/plen|mac|minor@parent|request|device|driver|pool", cut at 255 bytes.
std::string AliasOf(const ShareRecord& record);
// "shareID|minor|mac|ip|" and what the alias could not hold.
std::string TagNameOf(const ShareRecord& record);
// Nothing when the alias is not ours or the identity is incomplete (it must hash to `host_end`).
std::optional<ShareRecord> RecordOf(std::string_view host_end, std::string_view alias, std::string_view tag_name);
// What an alias says without its identity being checked: enough to clean up.
std::optional<ShareRecord> PartialRecordOf(std::string_view alias);

// A bridge of ours names its uplink and how it was found: "tranche1-bridge|eth1|down".
struct BridgeRecord {
  std::string parent;
  bool parent_was_up = true;
};
std::string BridgeNameOf(std::string_view parent);  // "trb" + 8 hexadecimal characters
std::string AliasOf(const BridgeRecord& record);
std::optional<BridgeRecord> BridgeRecordOf(std::string_view alias);

}  // namespace vnic
