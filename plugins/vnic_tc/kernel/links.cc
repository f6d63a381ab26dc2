#include "plugins/vnic_tc/kernel/links.h"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>

namespace vnic {
namespace {

// A thousand links without their statistics are a third of the size.
constexpr std::uint32_t kSkipStatistics = 1U << 3;  // RTEXT_FILTER_SKIP_STATS

std::string Quoted(std::string_view what, std::string_view name) { return std::string(what) + " " + std::string(name); }

ifinfomsg InterfaceHeader(int index) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = index;
  return header;
}

PortFlags ParsePort(nlattr* data) {
  const auto port = Attributes<IFLA_BRPORT_MAX>::OfNested(data);
  return {port.Get<std::uint8_t>(IFLA_BRPORT_LEARNING) != 0, port.Get<std::uint8_t>(IFLA_BRPORT_UNICAST_FLOOD) != 0,
          port.Get<std::uint8_t>(IFLA_BRPORT_MCAST_FLOOD) != 0, port.Get<std::uint8_t>(IFLA_BRPORT_ISOLATED) != 0};
}

Result<Link> Query(Socket& socket, Message& message, std::string_view what) {
  message.Put(IFLA_EXT_MASK, kSkipStatistics);
  std::optional<Link> found;
  Status status = socket.Run(message, what, [&](const nlmsghdr* header) {
    if (header->nlmsg_type == RTM_NEWLINK) found = ParseLink(header);
  });
  if (!status.ok()) return status.failure();
  if (!found) return Failure{TRANCHE_INTERNAL, std::string(what) + ": the kernel answered without a link"};
  return *found;
}

// One RTM_SETLINK request with what `fill` adds.
template <typename Fill>
Status Change(Socket& socket, const Link& link, std::string_view what, const Fill& fill) {
  Message message(RTM_SETLINK, 0);
  message.Header(InterfaceHeader(link.index));
  fill(message);
  return socket.Run(message, Quoted(what, link.name));
}

void FillEnd(Message& message, const std::string& name, const VethPair& pair) {
  message.PutText(IFLA_IFNAME, name);
  message.Put(IFLA_MTU, pair.mtu);
  message.Put(IFLA_GROUP, pair.group);
  message.Put(IFLA_NUM_TX_QUEUES, std::uint32_t{1});
  message.Put(IFLA_NUM_RX_QUEUES, std::uint32_t{1});
}

}  // namespace

Link ParseLink(const nlmsghdr* header) {
  const auto* info = static_cast<const ifinfomsg*>(nlmsg_data(const_cast<nlmsghdr*>(header)));
  const auto attributes = Attributes<IFLA_MAX>::OfMessage(header, sizeof(ifinfomsg));
  Link link;
  link.index = info->ifi_index;
  link.up = (info->ifi_flags & IFF_UP) != 0;
  link.name = attributes.Text(IFLA_IFNAME);
  link.alias = attributes.Text(IFLA_IFALIAS);
  link.mac = attributes.Get<Mac>(IFLA_ADDRESS);
  link.mtu = attributes.Get<std::uint32_t>(IFLA_MTU);
  link.group = attributes.Get<std::uint32_t>(IFLA_GROUP);
  link.master = attributes.Get<int>(IFLA_MASTER);
  if (attributes.Has(IFLA_LINKINFO)) {
    const auto details = Attributes<IFLA_INFO_MAX>::OfNested(attributes[IFLA_LINKINFO]);
    link.kind = details.Text(IFLA_INFO_KIND);
    if (details.Text(IFLA_INFO_SLAVE_KIND) == "bridge") link.port = ParsePort(details[IFLA_INFO_SLAVE_DATA]);
  }
  return link;
}

Result<Link> GetLink(Socket& socket, std::string_view name) {
  Message message(RTM_GETLINK, 0);
  message.Header(InterfaceHeader(0));
  message.PutText(IFLA_IFNAME, name);
  return Query(socket, message, Quoted("link", name));
}

Result<Link> GetLink(Socket& socket, int index) {
  Message message(RTM_GETLINK, 0);
  message.Header(InterfaceHeader(index));
  return Query(socket, message, "link with index " + std::to_string(index));
}

Result<std::vector<Link>> ListLinks(Socket& socket, int master) {
  std::vector<Link> links;
  Status status = socket.Dump(
      [&](Message& message) {
        message.Header(InterfaceHeader(0));
        message.Put(IFLA_EXT_MASK, kSkipStatistics);
        if (master != 0) message.Put(IFLA_MASTER, master);
      },
      RTM_GETLINK, "list of links", [&] { links.clear(); },
      [&](const nlmsghdr* header) {
        if (header->nlmsg_type != RTM_NEWLINK) return;
        Link link = ParseLink(header);
        if (master == 0 || link.master == master) links.push_back(std::move(link));
      });
  if (!status.ok()) return status.failure();
  return links;
}

Status CreateVeth(Socket& socket, const VethPair& pair) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  message.Header(InterfaceHeader(0));
  FillEnd(message, pair.host, pair);
  nlattr* info = message.Begin(IFLA_LINKINFO);
  message.PutText(IFLA_INFO_KIND, "veth");
  nlattr* data = message.Begin(IFLA_INFO_DATA);
  nlattr* peer = message.Begin(VETH_INFO_PEER);
  message.Header(InterfaceHeader(0));
  FillEnd(message, pair.pod, pair);
  message.Put(IFLA_ADDRESS, pair.pod_mac);
  message.End(peer);
  message.End(data);
  message.End(info);
  return socket.Run(message, "create veth pair " + pair.host + "/" + pair.pod);
}

Status CreateBridge(Socket& socket, const std::string& name, std::uint32_t group) {
  Message message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  message.Header(InterfaceHeader(0));
  message.PutText(IFLA_IFNAME, name);
  message.Put(IFLA_GROUP, group);
  nlattr* info = message.Begin(IFLA_LINKINFO);
  message.PutText(IFLA_INFO_KIND, "bridge");
  nlattr* data = message.Begin(IFLA_INFO_DATA);
  message.Put(IFLA_BR_STP_STATE, std::uint32_t{0});
  message.Put(IFLA_BR_MCAST_SNOOPING, std::uint8_t{0});
  message.End(data);
  message.End(info);
  return socket.Run(message, Quoted("create bridge", name));
}

Status DeleteLink(Socket& socket, const Link& link) {
  Message message(RTM_DELLINK, 0);
  message.Header(InterfaceHeader(link.index));
  return socket.Run(message, Quoted("delete link", link.name));
}

Status DeleteGroup(Socket& socket, std::uint32_t group) {
  Message message(RTM_DELLINK, 0);
  message.Header(InterfaceHeader(0));
  message.Put(IFLA_GROUP, group);
  return socket.Run(message, "delete links of group " + std::to_string(group));
}

Status SetAlias(Socket& socket, const Link& link, const std::string& alias) {
  return Change(socket, link, "name the share of link", [&](Message& message) { message.PutBytes(IFLA_IFALIAS, alias.data(), alias.size()); });
}
Status SetGroup(Socket& socket, const Link& link, std::uint32_t group) {
  return Change(socket, link, "set the group of link", [&](Message& message) { message.Put(IFLA_GROUP, group); });
}
Status SetMaster(Socket& socket, const Link& link, int master) {
  return Change(socket, link, "set the bridge of link", [&](Message& message) { message.Put(IFLA_MASTER, master); });
}

Status SetPortFlags(Socket& socket, const Link& link, const PortFlags& flags) {
  Message message(RTM_NEWLINK, 0);
  message.Header(InterfaceHeader(link.index));
  nlattr* info = message.Begin(IFLA_LINKINFO);
  message.PutText(IFLA_INFO_SLAVE_KIND, "bridge");
  nlattr* data = message.Begin(IFLA_INFO_SLAVE_DATA);
  message.Put(IFLA_BRPORT_LEARNING, static_cast<std::uint8_t>(flags.learning));
  message.Put(IFLA_BRPORT_UNICAST_FLOOD, static_cast<std::uint8_t>(flags.unicast_flood));
  message.Put(IFLA_BRPORT_MCAST_FLOOD, static_cast<std::uint8_t>(flags.multicast_flood));
  message.Put(IFLA_BRPORT_ISOLATED, static_cast<std::uint8_t>(flags.isolated));
  message.End(data);
  message.End(info);
  return socket.Run(message, Quoted("set the bridge port of link", link.name));
}

Status SetAdminState(Socket& socket, const Link& link, AdminState state) {
  Message message(RTM_SETLINK, 0);
  ifinfomsg header = InterfaceHeader(link.index);
  header.ifi_change = IFF_UP;
  header.ifi_flags = state == AdminState::kUp ? IFF_UP : 0;
  message.Header(header);
  return socket.Run(message, Quoted(state == AdminState::kUp ? "raise link" : "lower link", link.name));
}

Status SetMacAndMtu(Socket& socket, const Link& link, const Mac& mac, std::uint32_t mtu) {
  return Change(socket, link, "set MAC and MTU of link", [&](Message& message) {
    if (link.mac != mac) message.Put(IFLA_ADDRESS, mac);
    if (mtu != 0 && link.mtu != mtu) message.Put(IFLA_MTU, mtu);
  });
}

Status WithoutIpv6Address(Socket& socket, const Link& link) {
  Status status = Change(socket, link, "keep IPv6 addresses off link", [](Message& message) {
    nlattr* families = message.Begin(IFLA_AF_SPEC);
    nlattr* family = message.Begin(AF_INET6);
    message.Put(IFLA_INET6_ADDR_GEN_MODE, static_cast<std::uint8_t>(IN6_ADDR_GEN_MODE_NONE));
    message.End(family);
    message.End(families);
  });
  // A kernel or a link without IPv6 has nothing to switch off.
  if (!status.ok() && (status.failure().error == EAFNOSUPPORT || status.failure().error == EOPNOTSUPP)) return {};
  return status;
}

Status AddForwarding(Socket& socket, const Link& port, const Mac& mac) {
  Message message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
  ndmsg header{};
  header.ndm_family = PF_BRIDGE;
  header.ndm_ifindex = port.index;
  header.ndm_state = NUD_NOARP;  // static; NUD_PERMANENT would make the address the bridge's own
  header.ndm_flags = NTF_MASTER;
  message.Header(header);
  message.Put(NDA_LLADDR, mac);
  return socket.Run(message, "add the forwarding entry " + MacText(mac) + " of port " + port.name);
}

Result<bool> HasForwarding(Socket& socket, const Link& port, const Mac& mac) {
  Message message(RTM_GETNEIGH, 0);
  ndmsg header{};
  header.ndm_family = PF_BRIDGE;
  header.ndm_flags = NTF_MASTER;
  header.ndm_ifindex = port.index;
  message.Header(header);
  message.Put(NDA_LLADDR, mac);
  bool found = false;
  Status status = socket.Run(message, "forwarding entry " + MacText(mac), [&](const nlmsghdr* answer) {
    const auto* entry = static_cast<const ndmsg*>(nlmsg_data(const_cast<nlmsghdr*>(answer)));
    if (entry->ndm_ifindex == port.index && (entry->ndm_state & NUD_NOARP) != 0) found = true;
  });
  if (!status.ok() && status.failure().code != TRANCHE_NOT_FOUND) return status.failure();
  return found;
}

Status MoveToNamespace(Socket& socket, const Link& link, int namespace_fd, const std::string& new_name) {
  return Change(socket, link, "move link", [&](Message& message) {
    message.Put(IFLA_NET_NS_FD, namespace_fd);
    message.PutText(IFLA_IFNAME, new_name);
  });
}

Status RenameLink(Socket& socket, const Link& link, const std::string& new_name) {
  return Change(socket, link, "rename link", [&](Message& message) { message.PutText(IFLA_IFNAME, new_name); });
}

Result<std::vector<InterfaceAddress>> ListAddresses(Socket& socket, const Link& link) {
  std::vector<InterfaceAddress> addresses;
  Status status = socket.Dump(
      [&](Message& message) {
        ifaddrmsg header{};
        header.ifa_family = AF_INET;
        message.Header(header);
      },
      RTM_GETADDR, Quoted("addresses of link", link.name), [&] { addresses.clear(); },
      [&](const nlmsghdr* answer) {
        const auto* entry = static_cast<const ifaddrmsg*>(nlmsg_data(const_cast<nlmsghdr*>(answer)));
        if (static_cast<int>(entry->ifa_index) != link.index) return;
        const auto attributes = Attributes<IFA_MAX>::OfMessage(answer, sizeof(ifaddrmsg));
        addresses.push_back({ntohl(attributes.Get<std::uint32_t>(IFA_LOCAL)), entry->ifa_prefixlen});
      });
  if (!status.ok()) return status.failure();
  return addresses;
}

Status AddAddress(Socket& socket, const Link& link, const InterfaceAddress& address) {
  Message message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
  ifaddrmsg header{};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = static_cast<std::uint8_t>(address.prefix);
  header.ifa_index = static_cast<unsigned>(link.index);
  message.Header(header);
  message.Put(IFA_LOCAL, htonl(address.address));
  message.Put(IFA_ADDRESS, htonl(address.address));
  if (address.prefix < 31) {
    const Subnet subnet{address.address & Subnet{0, address.prefix}.mask(), address.prefix};
    message.Put(IFA_BROADCAST, htonl(subnet.broadcast()));
  }
  return socket.Run(message, "add address " + InterfaceAddressText(address) + " to link " + link.name);
}

}  // namespace vnic
