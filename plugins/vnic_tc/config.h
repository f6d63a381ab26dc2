// The backend's configuration and the parameters of one share, read from JSON. Errors are thrown as sdk::Error (INVALID_ARGUMENT) and
// name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tranche/backend.hpp>

#include "plugins/vnic_tc/kernel/address.h"

namespace vnic {

struct Parent {
  std::string interface, device;  // device: the name that the host knows it by
  std::int64_t bandwidth_bits = 0, default_bits = 0;
  Subnet subnet;
  std::uint32_t reserved = 0;  // the gateway, or the first address where none is configured
  std::string bridge;
};

struct Config {
  std::vector<Parent> parents;
  std::string attach_hook;
};

Config ReadConfig(const boost::json::object& config);

// Parameters of a share: `direction` (only "both"), `interfaceName`, `subnet` (a range inside the parent's), `mtu`.
struct ShareParameters {
  std::string interface_name;
  Subnet range;
  std::uint32_t mtu = 0;  // 0: the uplink's
};
ShareParameters ReadParameters(const boost::json::object& configuration, const Parent& parent, int result_index);

// "10G", "1500M", "2.5G", "64Ki", "9600": whole bits per second. Nothing when it is not such a text, negative, or beyond 64 bits.
std::optional<std::int64_t> ParseBits(std::string_view text);

}  // namespace vnic
