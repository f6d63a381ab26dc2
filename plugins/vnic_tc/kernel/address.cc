#include "plugins/vnic_tc/kernel/address.h"

#include <arpa/inet.h>
#include <charconv>
#include <cstdio>

namespace vnic {
namespace {

std::optional<int> ParsePrefix(std::string_view text) {
  int prefix = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), prefix);
  if (error != std::errc() || end != text.data() + text.size() || prefix < 0 || prefix > 32) return std::nullopt;
  return prefix;
}

}  // namespace

std::string MacText(const Mac& mac) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  return text;
}

std::optional<Mac> ParseMac(std::string_view text) {
  if (text.size() != 17) return std::nullopt;
  Mac mac{};
  for (std::size_t octet = 0; octet < mac.size(); ++octet) {
    const char* begin = text.data() + octet * 3;
    const auto [end, error] = std::from_chars(begin, begin + 2, mac[octet], 16);
    if (error != std::errc() || end != begin + 2 || (octet < 5 && begin[2] != ':')) return std::nullopt;
  }
  return mac;
}

std::string Ipv4Text(std::uint32_t address) {
  char text[INET_ADDRSTRLEN] = {};
  const in_addr network{htonl(address)};
  inet_ntop(AF_INET, &network, text, sizeof text);
  return text;
}

std::optional<std::uint32_t> ParseIpv4(std::string_view text) {
  in_addr network{};
  if (inet_pton(AF_INET, std::string(text).c_str(), &network) != 1) return std::nullopt;
  return ntohl(network.s_addr);
}

std::string InterfaceAddressText(const InterfaceAddress& address) { return Ipv4Text(address.address) + "/" + std::to_string(address.prefix); }

std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto address = ParseIpv4(text.substr(0, slash));
  const auto prefix = ParsePrefix(text.substr(slash + 1));
  if (!address || !prefix) return std::nullopt;
  return InterfaceAddress{*address, *prefix};
}

std::string SubnetText(const Subnet& subnet) { return InterfaceAddressText({subnet.base, subnet.prefix}); }

std::optional<Subnet> ParseSubnet(std::string_view text) {
  const auto address = ParseInterfaceAddress(text);
  if (!address) return std::nullopt;
  const Subnet subnet{address->address, address->prefix};
  if ((subnet.base & ~subnet.mask()) != 0) return std::nullopt;
  return subnet;
}

}  // namespace vnic
