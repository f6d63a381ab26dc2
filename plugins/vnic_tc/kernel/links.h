// Network links over route netlink: veth pairs, bridges and their ports, static forwarding entries, moves between namespaces.
// Every function acts in the network namespace of its socket. A missing link is NOT_FOUND.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/vnic_tc/kernel/address.h"
#include "plugins/vnic_tc/kernel/netlink.h"

namespace vnic {

struct PortFlags {
  bool learning = true, unicast_flood = true, multicast_flood = true, isolated = false;
  friend bool operator==(const PortFlags&, const PortFlags&) = default;
};

struct Link {
  int index = 0;
  std::string name, alias, kind;  // kind: "veth", "bridge", "" for hardware
  Mac mac{};
  std::uint32_t mtu = 0, group = 0;
  int master = 0;  // index of the bridge, 0 for none
  bool up = false;
  std::optional<PortFlags> port;  // set for a port of a bridge
};

// The link of a RTM_NEWLINK or RTM_DELLINK message.
Link ParseLink(const nlmsghdr* header);

Result<Link> GetLink(Socket& socket, std::string_view name);
Result<Link> GetLink(Socket& socket, int index);
// Every link, or the ports of one bridge when `master` is not 0.
Result<std::vector<Link>> ListLinks(Socket& socket, int master);

struct VethPair {
  std::string host, pod;  // names, both ends in the socket's namespace, down
  Mac pod_mac{};
  std::uint32_t mtu = 1500, group = 0;
};
Status CreateVeth(Socket& socket, const VethPair& pair);
Status CreateBridge(Socket& socket, const std::string& name, std::uint32_t group);
Status DeleteLink(Socket& socket, const Link& link);
// One request for every link of the group: 60 times faster than one by one.
Status DeleteGroup(Socket& socket, std::uint32_t group);

Status SetAlias(Socket& socket, const Link& link, const std::string& alias);
Status SetGroup(Socket& socket, const Link& link, std::uint32_t group);
Status SetMaster(Socket& socket, const Link& link, int master);  // 0: none
Status SetPortFlags(Socket& socket, const Link& link, const PortFlags& flags);
enum class AdminState { kDown, kUp };
Status SetAdminState(Socket& socket, const Link& link, AdminState state);
Status SetMacAndMtu(Socket& socket, const Link& link, const Mac& mac, std::uint32_t mtu);
// No IPv6 address by itself on a link that only carries frames. Before it goes up; over netlink, because /proc/sys is read-only in a container.
Status WithoutIpv6Address(Socket& socket, const Link& link);

// Static: `mac` is behind `port`, and stays there whoever sends with it.
Status AddForwarding(Socket& socket, const Link& port, const Mac& mac);
Result<bool> HasForwarding(Socket& socket, const Link& port, const Mac& mac);

// Moves the link and gives it `new_name` there.
Status MoveToNamespace(Socket& socket, const Link& link, int namespace_fd, const std::string& new_name);
Status RenameLink(Socket& socket, const Link& link, const std::string& new_name);

Result<std::vector<InterfaceAddress>> ListAddresses(Socket& socket, const Link& link);
Status AddAddress(Socket& socket, const Link& link, const InterfaceAddress& address);

}  // namespace vnic
