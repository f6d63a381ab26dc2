// Traffic control over route netlink: the HTB tree of an uplink, the TBF of a share's host end, the tag at its port.
// Rates are bytes per second, as the kernel keeps them. Facts behind each number: plugins/vnic_tc/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/vnic_tc/kernel/address.h"
#include "plugins/vnic_tc/kernel/netlink.h"

namespace vnic {

constexpr std::uint32_t kMajor = 0x7a6U << 16;            // the handle of our root; also how we know it
constexpr std::uint32_t kRootClass = kMajor | 0xffff;     // holds the whole bandwidth
constexpr std::uint32_t kDefaultClass = kMajor | 0xfffe;  // where traffic without a tag goes: small and real
constexpr std::uint32_t kLastShareMinor = 0xfff0;
constexpr std::uint32_t kTop = 0xffffffffU;  // parent of the root class, as the kernel writes it

struct Counters {
  std::uint64_t bytes = 0, packets = 0, drops = 0, overlimits = 0;
};

struct Qdisc {
  int index = 0;  // of the link
  std::string kind;
  std::uint32_t handle = 0, parent = 0;
  std::uint32_t default_class = 0;   // htb: the minor
  std::uint64_t direct_packets = 0;  // htb: packets that went out unshaped
  std::uint64_t rate = 0;            // tbf
  std::uint32_t limit = 0;           // tbf, bfifo
  Counters counters;
};

struct TrafficClass {
  std::uint32_t handle = 0, parent = 0, leaf = 0;
  std::uint64_t rate = 0, ceil = 0;
  Counters counters;
};

// What stands at the root; nothing for a link without a queue. A qdisc with handle 0 is the kernel's own choice.
Result<std::optional<Qdisc>> GetRoot(Socket& socket, int index);
Result<std::vector<Qdisc>> ListQdiscs(Socket& socket);

Status AddHtbRoot(Socket& socket, int index);
Status DeleteRoot(Socket& socket, int index);
// Makes the class or changes its rates live. The kernel answers success to a changed parent and ignores it: read back.
Status SetClass(Socket& socket, int index, std::uint32_t handle, std::uint32_t parent, std::uint64_t rate);
// The leaf queue, 20–25 ms of the rate: HTB's own default is the device's queue length in packets, megabytes with GSO.
Status SetLeaf(Socket& socket, int index, std::uint32_t class_handle, std::uint64_t rate);
Status DeleteClass(Socket& socket, int index, std::uint32_t handle);
Result<TrafficClass> GetClass(Socket& socket, int index, std::uint32_t handle);
Result<std::vector<TrafficClass>> ListClasses(Socket& socket, int index);

// TBF as root of a host end: what the pod receives.
Status SetTbf(Socket& socket, int index, std::uint64_t rate, std::uint32_t mtu);
Status AddClsact(Socket& socket, int index);

// What may enter at a share's port, and the class it is charged to.
struct PortTag {
  Mac mac{};
  std::uint32_t address = 0;
  std::uint32_t class_handle = 0;
  std::string name;  // ≤ 255 bytes, reads back
};
Status SetTag(Socket& socket, int index, const PortTag& tag);
Result<std::optional<std::string>> GetTagName(Socket& socket, int index);

}  // namespace vnic
