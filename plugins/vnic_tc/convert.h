// Between the SDK's values and the kernel layer's.
#pragma once

#include <optional>
#include <string>

#include <tranche/backend.hpp>

#include "plugins/vnic_tc/kernel/uplink.h"
#include "plugins/vnic_tc/ledger.h"

namespace vnic {

Identity IdentityOf(const tranche::sdk::Key& key);
tranche::sdk::Key KeyOf(const Identity& identity);

// What the backend asks the host to keep with a share. Unreadable text is an empty state: the kernel decides.
struct State {
  Wish wish;
  std::string parent;
  std::uint32_t mtu = 0;
};
State ReadState(const std::string& text);
std::string WriteState(const ShareRecord& record, std::uint32_t mtu);

[[noreturn]] void Throw(const Failure& failure);
inline void Check(const Status& status) {
  if (!status.ok()) Throw(status.failure());
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) Throw(result.failure());
  return std::move(*result);
}

}  // namespace vnic
