// The vnic_tc backend: shares of a network interface's bandwidth, each a veth pair that the kernel limits in both directions. "Shape first,
// attach later": everything is in force before vnic-attach moves the pod's end. How and why: README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <tranche/backend.hpp>

#include "plugins/vnic_tc/config.h"
#include "plugins/vnic_tc/kernel/claimant.h"
#include "plugins/vnic_tc/kernel/uplink.h"
#include "plugins/vnic_tc/ledger.h"
#include "plugins/vnic_tc/monitor.h"

namespace vnic {

class Backend {
 public:
  static constexpr const char* kName = "vnic_tc";
  static constexpr const char* kVersion = "0.1.0";

  Backend(tranche::sdk::Host host, const boost::json::object& config, const std::string& runtime_directory);
  std::vector<tranche::sdk::Device> Discover(tranche::sdk::Call& call);
  void Prepare(tranche::sdk::Call& call, const std::vector<tranche::sdk::PrepareRequest>& requests);
  void Unprepare(tranche::sdk::Call& call, const std::vector<tranche::sdk::ShareRef>& shares);
  std::vector<tranche::sdk::Share> ListPrepared(tranche::sdk::Call& call);
  tranche::sdk::Share Verify(tranche::sdk::Call& call, const tranche::sdk::ShareRef& share);
  void CheckHealth(tranche::sdk::Call& call);

 private:
  struct Planned;   // a share that passed every check, before the kernel is touched
  struct Released;  // a share to be taken away
  struct Listing;   // what list_prepared has found so far

  void PrepareOn(tranche::sdk::Call& call, const Parent& parent, const std::vector<const tranche::sdk::PrepareRequest*>& requests);
  Planned Plan(const Parent& parent, const Uplink& uplink, Ledger& ledger, const tranche::sdk::PrepareRequest& request);
  tranche::sdk::Share Apply(const Parent& parent, const Uplink& uplink, const Planned& planned);
  void UnprepareOn(tranche::sdk::Call& call, const std::string& interface, std::vector<Released>& shares);
  void DeleteHostEnds(std::vector<Released>& shares);
  void ListUplink(tranche::sdk::Call& call, const std::string& interface, Listing& listing);
  Status RemoveOrphanClasses(Uplink& uplink);

  const Parent* FindParent(const std::string& device) const;
  std::string BridgeNameFor(const std::string& interface) const;  // as configured, "" where it is not
  UplinkLock Lock(tranche::sdk::Call& call, const std::string& interface) const;
  tranche::sdk::Share Describe(const Uplink& uplink, const ShareRecord& record, const ShareReading& reading, std::int64_t requested) const;

  const tranche::sdk::Host host_;
  const Config config_;
  const std::string runtime_directory_;
  const Claimant claimant_;
  Socket socket_;
  std::unique_ptr<Monitor> monitor_;
  std::uint64_t health_sequence_ = 0;
};

}  // namespace vnic
