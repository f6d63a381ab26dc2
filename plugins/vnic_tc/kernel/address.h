// MAC and IPv4 values and their texts. Addresses are in host byte order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vnic {

using Mac = std::array<std::uint8_t, 6>;
std::string MacText(const Mac& mac);  // 02:00:5e:10:00:01
std::optional<Mac> ParseMac(std::string_view text);

struct Subnet {
  std::uint32_t base = 0;  // network address
  int prefix = 0;
  std::uint32_t mask() const { return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix); }
  std::uint32_t broadcast() const { return base | ~mask(); }
  bool Contains(std::uint32_t address) const { return (address & mask()) == base; }
  friend bool operator==(const Subnet&, const Subnet&) = default;
};
std::string SubnetText(const Subnet& subnet);
std::optional<Subnet> ParseSubnet(std::string_view text);  // refuses host bits: 10.0.0.1/24 is not a subnet

std::string Ipv4Text(std::uint32_t address);
std::optional<std::uint32_t> ParseIpv4(std::string_view text);

// An address with the prefix of its subnet: "10.99.0.2/24".
struct InterfaceAddress {
  std::uint32_t address = 0;
  int prefix = 0;
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};
std::string InterfaceAddressText(const InterfaceAddress& address);
std::optional<InterfaceAddress> ParseInterfaceAddress(std::string_view text);

}  // namespace vnic
