#include "plugins/vnic_tc/ledger.h"

#include <algorithm>

namespace vnic {
namespace {

std::string Bits(std::uint64_t bytes) { return std::to_string(bytes * 8) + " bit/s"; }

}  // namespace

Ledger::Ledger(const Parent& parent, const Uplink& uplink)
    : parent_(parent), capacity_(static_cast<std::uint64_t>(parent.bandwidth_bits - parent.default_bits) / 8) {
  for (const TrafficClass& entry : uplink.classes) rates_[entry.handle & 0xffffU] = entry.rate;
  for (const Link& port : uplink.ports) {
    if (const auto record = PartialRecordOf(port.alias)) Enter(port.name, port.alias, *record);
  }
}

void Ledger::Enter(const std::string& host_end, const std::string& alias, const ShareRecord& record) {
  shares_[host_end] = record;
  aliases_[host_end] = alias;
  minors_.insert(record.minor);
  addresses_.insert(record.address.address);
  macs_.insert(record.mac);
}

bool Ledger::Adopt(const Link& host_end) {
  const auto record = PartialRecordOf(host_end.alias);
  if (!record || record->parent != parent_.interface) return false;
  if (minors_.contains(record->minor) || addresses_.contains(record->address.address) || macs_.contains(record->mac)) return false;
  Enter(host_end.name, host_end.alias, *record);
  return true;
}

std::optional<ShareRecord> Ledger::Find(const Identity& identity) const {
  const auto found = shares_.find(HostEndName(identity));
  if (found == shares_.end()) return std::nullopt;
  ShareRecord record = found->second;
  record.identity = identity;  // an alias may be cut short
  if (AliasOf(record) != aliases_.at(found->first)) return std::nullopt;
  return record;
}

void Ledger::Expect(const Identity& identity, std::uint64_t rate) {
  const std::optional<ShareRecord> existing = Find(identity);
  const auto own = existing ? rates_.find(existing->minor) : rates_.end();
  if (own != rates_.end()) own->second = std::min(own->second, rate);
}

std::uint64_t Ledger::used() const {
  std::uint64_t sum = 0;
  for (const auto& [minor, rate] : rates_) sum += rate;
  return sum;
}

Result<ShareRecord> Ledger::Book(const ShareRequest& request) {
  const std::optional<ShareRecord> existing = Find(request.identity);
  const std::string host_end = HostEndName(request.identity);
  if (!existing && shares_.contains(host_end)) {
    return Failure{TRANCHE_FAILED_PRECONDITION,
                   "interface " + host_end + " belongs to another share whose key has the same hash; delete that claim or this one"};
  }
  ShareRecord record = existing.value_or(ShareRecord{request.identity, {0, parent_.subnet.prefix}, {}, 0, parent_.interface});
  if (!existing) {
    if (shares_.size() >= kMaximumShares) {
      return Failure{TRANCHE_RESOURCE_EXHAUSTED, "uplink " + parent_.interface + " has " + std::to_string(shares_.size()) + " shares; a bridge takes no more"};
    }
    Result<std::uint32_t> minor = ChooseMinor(request);
    if (!minor.ok()) return minor.failure();
    record.minor = *minor;
  }
  const auto own = rates_.find(record.minor);
  const std::uint64_t others = used() - (own == rates_.end() ? 0 : own->second);
  if (others + request.rate > capacity_) {
    const std::uint64_t left = others < capacity_ ? capacity_ - others : 0;
    return Failure{TRANCHE_RESOURCE_EXHAUSTED, "uplink " + parent_.interface + " has " + Bits(left) + " left of " + Bits(capacity_) + "; the share asks " +
                                                   Bits(request.rate) + " (nothing was changed)"};
  }
  if (!existing) {
    Result<std::uint32_t> address = ChooseAddress(request);
    if (!address.ok()) return address.failure();
    record.address.address = *address;
    record.mac = ChooseMac(request);
  }
  rates_[record.minor] = request.rate;
  Enter(host_end, AliasOf(record), record);
  return record;
}

bool Ledger::Assignable(const Subnet& range, std::uint32_t address) const {
  const Subnet& subnet = parent_.subnet;
  if (!range.Contains(address) || address == subnet.base || address == subnet.broadcast() || address == parent_.reserved) return false;
  if (range.prefix <= 30 && (address == range.base || address == range.broadcast())) return false;
  return !addresses_.contains(address);
}

Result<std::uint32_t> Ledger::ChooseAddress(const ShareRequest& request) const {
  // A wish lies anywhere in the subnet: the range of a class may have changed since.
  if (request.wish.address && Assignable(parent_.subnet, *request.wish.address)) return *request.wish.address;
  for (std::uint64_t address = request.range.base; address <= request.range.broadcast(); ++address) {
    if (Assignable(request.range, static_cast<std::uint32_t>(address))) return static_cast<std::uint32_t>(address);
  }
  return Failure{TRANCHE_RESOURCE_EXHAUSTED,
                 "no address is free in " + SubnetText(request.range) + " of uplink " + parent_.interface + "; configure a larger subnet or end other claims"};
}

Result<std::uint32_t> Ledger::ChooseMinor(const ShareRequest& request) const {
  const auto& wish = request.wish.minor;
  if (wish && *wish >= 1 && *wish <= kLastShareMinor && !minors_.contains(*wish)) return *wish;
  for (std::uint32_t minor = 1; minor <= kLastShareMinor; ++minor) {
    if (!minors_.contains(minor) && !rates_.contains(minor)) return minor;
  }
  return Failure{TRANCHE_RESOURCE_EXHAUSTED, "no traffic class is free on uplink " + parent_.interface};
}

Mac Ledger::ChooseMac(const ShareRequest& request) const {
  if (request.wish.mac && !macs_.contains(*request.wish.mac)) return *request.wish.mac;
  std::uint32_t attempt = 0;
  while (macs_.contains(MacOf(request.identity, attempt))) ++attempt;
  return MacOf(request.identity, attempt);
}

}  // namespace vnic
