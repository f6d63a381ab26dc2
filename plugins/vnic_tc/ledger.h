// What an uplink has left, and the choice of class, address and MAC for one share. Pure: values in, values out, nothing of the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/vnic_tc/config.h"
#include "plugins/vnic_tc/kernel/uplink.h"

namespace vnic {

constexpr std::size_t kMaximumShares = 1000;  // the kernel allows 1023 ports a bridge

// What a share should keep when it is made again: from the host's stored state or from what was left in the kernel.
struct Wish {
  std::optional<Mac> mac;
  std::optional<std::uint32_t> address;
  std::optional<std::uint32_t> minor;
};

struct ShareRequest {
  Identity identity;
  std::uint64_t rate = 0;  // bytes per second
  Subnet range;
  Wish wish;
};

class Ledger {
 public:
  Ledger(const Parent& parent, const Uplink& uplink);

  // The record that this share has on the uplink already, if it has.
  std::optional<ShareRecord> Find(const Identity& identity) const;
  // Takes in a host end that is not on the bridge, so that Book finds it. False: another share has its class or addresses now.
  bool Adopt(const Link& host_end);
  // This share's class is about to be `rate` again, whatever somebody made of it by hand: it counts as no more.
  void Expect(const Identity& identity, std::uint64_t rate);
  // Chooses and books. RESOURCE_EXHAUSTED (bandwidth, ports, addresses, classes), with what is missing.
  Result<ShareRecord> Book(const ShareRequest& request);
  std::uint64_t capacity() const { return capacity_; }
  std::uint64_t used() const;

 private:
  void Enter(const std::string& host_end, const std::string& alias, const ShareRecord& record);
  Result<std::uint32_t> ChooseAddress(const ShareRequest& request) const;
  Result<std::uint32_t> ChooseMinor(const ShareRequest& request) const;
  Mac ChooseMac(const ShareRequest& request) const;
  bool Assignable(const Subnet& range, std::uint32_t address) const;

  const Parent& parent_;
  const std::uint64_t capacity_;                  // bytes per second, without the default class
  std::map<std::uint32_t, std::uint64_t> rates_;  // by minor; classes without a share included
  std::map<std::string, ShareRecord> shares_;     // by host end
  std::map<std::string, std::string> aliases_;    // by host end, as read
  std::set<std::uint32_t> minors_, addresses_;    // of shares
  std::set<Mac> macs_;
};

}  // namespace vnic
