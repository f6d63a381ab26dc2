// A share: one (claim UID, request, driver, pool, device, shareID) allocation, and what a backend applied for it.
// A whole device or a partition has no shareID and is described by the same values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "model/device.h"

namespace tranche {

struct ShareKey {
  std::string claim_uid, request, driver, pool, device;
  std::string share_id;  // empty for whole and partition
  friend bool operator==(const ShareKey&, const ShareKey&) = default;
  friend auto operator<=>(const ShareKey&, const ShareKey&) = default;
};

// Unique within a node and safe in file, CDI and interface names: 16 hexadecimal characters of the SHA-256 over every field.
std::string ShortId(const ShareKey& key);
// For messages: "claim 6f…, request gpu, device D, share 2b…".
std::string Describe(const ShareKey& key);

struct LimitInForce {
  std::string capacity;                      // "bandwidth"
  std::string direction;                     // "egress" | "ingress" | "" where it has none
  std::int64_t requested = 0, in_force = 0;  // base units
  Enforcement enforcement = Enforcement::kNone;
  WallTime verified_at{};
  std::string mechanism;  // "htb class 7a6:1 on eth1"
  friend bool operator==(const LimitInForce&, const LimitInForce&) = default;
};

// Where the kernel counts what a share uses, so that a proof can read it without the host: a traffic-control class or root qdisc.
struct CounterSource {
  std::string interface;       // in the host's network namespace
  std::uint32_t class_id = 0;  // tc classid (major<<16 | minor); 0: the root qdisc of the interface
  friend bool operator==(const CounterSource&, const CounterSource&) = default;
};

struct Usage {
  std::string capacity, direction;
  std::uint64_t used = 0;  // bytes passed (bandwidth) or bytes held (memory)
  std::uint64_t drops = 0, overlimits = 0;
  std::optional<CounterSource> source;
  friend bool operator==(const Usage&, const Usage&) = default;
};

struct DeviceNode {
  std::string path, host_path, type, permissions;
  std::optional<std::int64_t> major, minor;
  friend bool operator==(const DeviceNode&, const DeviceNode&) = default;
};
struct Mount {
  std::string host_path, container_path;
  std::vector<std::string> options;
  friend bool operator==(const Mount&, const Mount&) = default;
};
struct Hook {
  std::string hook_name, path;         // "createRuntime", absolute path
  std::vector<std::string> args, env;  // args[0] is the program's name
  std::optional<std::int64_t> timeout_seconds;
  friend bool operator==(const Hook&, const Hook&) = default;
};
struct NetDevice {
  std::string host_name, name;
  friend bool operator==(const NetDevice&, const NetDevice&) = default;
};
struct ContainerEdits {
  std::vector<std::string> env;  // "NAME=value"
  std::vector<DeviceNode> device_nodes;
  std::vector<Mount> mounts;
  std::vector<Hook> hooks;
  std::vector<NetDevice> net_devices;
  friend bool operator==(const ContainerEdits&, const ContainerEdits&) = default;
};

struct NetworkData {
  std::string interface_name;
  std::vector<std::string> ips;  // CIDR
  std::string hardware_address;
  friend bool operator==(const NetworkData&, const NetworkData&) = default;
};

enum class AppliedState { kComplete, kPartial, kForeign };
std::string_view AppliedStateName(AppliedState state);  // complete | partial | foreign

// `add_share`: what is really applied for one key.
struct AppliedShare {
  ShareKey key;
  std::vector<LimitInForce> limits;
  std::vector<Usage> usage;
  ContainerEdits edits;
  Attributes attributes;
  std::optional<NetworkData> network;
  AppliedState applied = AppliedState::kComplete;
  std::string state;  // the backend's own, opaque, ≤ 4 KiB
  friend bool operator==(const AppliedShare&, const AppliedShare&) = default;
};

}  // namespace tranche
