// One uplink: its HTB tree, its bridge and the shares on it. Everything here is done under UplinkLock, which two hosts on one node share: what
// is read (rates, minors, addresses) then still holds when it is acted on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins/vnic_tc/kernel/identity.h"
#include "plugins/vnic_tc/kernel/links.h"
#include "plugins/vnic_tc/kernel/traffic.h"

namespace vnic {

// An exclusive flock(2) on a file of the runtime directory, released by the destructor and by the kernel when the process dies.
class UplinkLock {
 public:
  // Waits until `cancelled` says stop (DEADLINE_EXCEEDED).
  static Result<UplinkLock> Acquire(const std::string& directory, const std::string& interface, const std::function<bool()>& cancelled);
  UplinkLock(UplinkLock&& other) noexcept;
  UplinkLock& operator=(UplinkLock&&) = delete;
  ~UplinkLock();

 private:
  explicit UplinkLock(int fd) : fd_(fd) {}
  int fd_;
};

struct Uplink {
  std::string interface;
  std::optional<Link> link;           // nothing: the interface is gone
  std::optional<Link> bridge;         // ours
  std::string foreign_bridge;         // the interface belongs to this one, which is not ours
  bool has_root = false;              // our HTB root stands
  std::string foreign_root;           // kind of a root qdisc that somebody else put there
  std::vector<TrafficClass> classes;  // of shares, without the root and default class
  std::optional<TrafficClass> root_class, default_class;
  std::vector<Link> ports;  // host ends on the bridge
};

// What the kernel has. A missing interface is no error here.
Result<Uplink> Inspect(Socket& socket, const std::string& interface, const std::string& bridge_name);

// FAILED_PRECONDITION where the uplink belongs to somebody else, NOT_FOUND (UNAVAILABLE) where it is missing.
Status CheckUsable(Socket& socket, const Uplink& uplink);

struct TreeShape {
  std::string bridge_name;
  std::uint64_t bandwidth = 0, default_rate = 0;  // bytes per second
};
// Makes what is missing of bridge, root, root class and default class; brings their rates to `shape`. Updates `uplink`.
Status EnsureTree(Socket& socket, Uplink& uplink, const TreeShape& shape);

// With no share port and no share class left: removes bridge and root and leaves the interface as it was found.
Status RemoveTreeIfUnused(Socket& socket, const std::string& interface, const std::string& bridge_name);

// ---- One share.

struct ShareSetup {
  ShareRecord record;
  std::uint64_t rate = 0;  // bytes per second
  std::uint32_t mtu = 1500;
};

// What is in force for a share, as the kernel says it.
struct ShareReading {
  Link host_end;
  std::optional<TrafficClass> egress;
  std::optional<Qdisc> ingress;
  bool complete = false;
  std::string missing;  // for people, "" when complete
};
Result<ShareReading> ReadShare(Socket& socket, const Uplink& uplink, const ShareRecord& record, const Link& host_end);

// Makes a share, or repairs and changes one that has its host end: class → shaper → filter → bridge port → up, so that no frame passes before
// all of it is in force. A failure removes everything of this share.
Result<ShareReading> ApplyShare(Socket& socket, const Uplink& uplink, const ShareSetup& setup, const std::optional<Link>& existing);

}  // namespace vnic
