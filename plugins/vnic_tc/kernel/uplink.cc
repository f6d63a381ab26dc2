#include "plugins/vnic_tc/kernel/uplink.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace vnic {
namespace {

constexpr PortFlags kUplinkPort{false, true, true, false};
constexpr PortFlags kSharePort{false, false, false, true};

// The first failure of a chain of steps; later steps are not run.
class Steps {
 public:
  template <typename Step>
  Steps& Then(const Step& step) {
    if (status_.ok()) status_ = step();
    return *this;
  }
  Status Take() const { return status_; }

 private:
  Status status_;
};

bool IsKernelDefault(const Qdisc& root) { return root.handle == 0; }

Result<std::optional<Link>> FindLink(Socket& socket, const std::string& name) {
  Result<Link> link = GetLink(socket, name);
  if (link.ok()) return std::optional<Link>(*link);
  if (link.failure().code == TRANCHE_NOT_FOUND) return std::optional<Link>();
  return link.failure();
}

bool IsOurBridge(const Link& link, const std::string& interface) {
  if (link.kind != "bridge" || link.group != kGroup) return false;
  const auto record = BridgeRecordOf(link.alias);
  return !record || record->parent == interface;  // without an alias: a crash came before it was named
}

Status FindBridge(Socket& socket, Uplink& uplink, const std::string& bridge_name) {
  if (uplink.link && uplink.link->master != 0) {
    Result<Link> master = GetLink(socket, uplink.link->master);
    if (!master.ok()) return master.failure();
    if (IsOurBridge(*master, uplink.interface)) {
      uplink.bridge = *master;
    } else {
      uplink.foreign_bridge = master->name;
    }
    return {};
  }
  for (const std::string& name : {bridge_name, BridgeNameOf(uplink.interface)}) {
    if (name.empty()) continue;
    Result<std::optional<Link>> found = FindLink(socket, name);
    if (!found.ok()) return found.failure();
    if (!found->has_value()) continue;
    if (IsOurBridge(**found, uplink.interface)) {
      uplink.bridge = **found;
      return {};
    }
    uplink.foreign_bridge = name;
  }
  return {};
}

Status FindTree(Socket& socket, Uplink& uplink) {
  Result<std::optional<Qdisc>> root = GetRoot(socket, uplink.link->index);
  if (!root.ok()) return root.failure();
  if (!root->has_value() || IsKernelDefault(**root)) return {};
  if ((*root)->kind != "htb" || (*root)->handle != kMajor || (*root)->default_class != (kDefaultClass & 0xffffU)) {
    uplink.foreign_root = (*root)->kind;
    return {};
  }
  uplink.has_root = true;
  Result<std::vector<TrafficClass>> classes = ListClasses(socket, uplink.link->index);
  if (!classes.ok()) return classes.failure();
  for (const TrafficClass& entry : *classes) {
    if (entry.handle == kRootClass) {
      uplink.root_class = entry;
    } else if (entry.handle == kDefaultClass) {
      uplink.default_class = entry;
    } else {
      uplink.classes.push_back(entry);
    }
  }
  return {};
}

bool ClassIs(const std::optional<TrafficClass>& found, std::uint32_t parent, std::uint64_t rate) {
  return found && found->parent == parent && found->rate == rate && found->ceil == rate;
}

Status EnsureBridge(Socket& socket, Uplink& uplink, const TreeShape& shape) {
  const std::string name = shape.bridge_name.empty() ? BridgeNameOf(uplink.interface) : shape.bridge_name;
  if (!uplink.bridge) {
    if (Status status = CreateBridge(socket, name, kGroup); !status.ok()) return status;
    Result<Link> bridge = GetLink(socket, name);
    if (!bridge.ok()) return bridge.failure();
    uplink.bridge = *bridge;
  }
  if (uplink.bridge->alias.empty()) {
    const std::string alias = AliasOf(BridgeRecord{uplink.interface, uplink.link->up});
    if (Status status = WithoutIpv6Address(socket, *uplink.bridge); !status.ok()) return status;
    if (Status status = SetAlias(socket, *uplink.bridge, alias); !status.ok()) return status;
    uplink.bridge->alias = alias;
  }
  return {};
}

// Order matters to a crash: the bridge is first and last, so that an unfinished tree is always found by it.
Status EnsureQueues(Socket& socket, Uplink& uplink, const TreeShape& shape) {
  const int index = uplink.link->index;
  Steps steps;
  if (!uplink.has_root) steps.Then([&] { return AddHtbRoot(socket, index); });
  if (!ClassIs(uplink.root_class, kTop, shape.bandwidth)) {
    steps.Then([&] { return SetClass(socket, index, kRootClass, kTop, shape.bandwidth); });
  }
  if (!ClassIs(uplink.default_class, kRootClass, shape.default_rate)) {
    steps.Then([&] { return SetClass(socket, index, kDefaultClass, kRootClass, shape.default_rate); });
    steps.Then([&] { return SetLeaf(socket, index, kDefaultClass, shape.default_rate); });
  }
  if (Status status = steps.Take(); !status.ok()) return status;
  uplink.has_root = true;
  return {};
}

Status EnsurePort(Socket& socket, Uplink& uplink) {
  Steps steps;
  if (uplink.link->master != uplink.bridge->index) steps.Then([&] { return SetMaster(socket, *uplink.link, uplink.bridge->index); });
  if (uplink.link->port != kUplinkPort) steps.Then([&] { return SetPortFlags(socket, *uplink.link, kUplinkPort); });
  if (!uplink.link->up) steps.Then([&] { return SetAdminState(socket, *uplink.link, AdminState::kUp); });
  if (!uplink.bridge->up) steps.Then([&] { return SetAdminState(socket, *uplink.bridge, AdminState::kUp); });
  return steps.Take();
}

std::string Missing(const Uplink& uplink, const ShareRecord& record, const ShareReading& reading) {
  if (!reading.egress) return "its class on " + uplink.interface;
  if (reading.egress->parent != kRootClass) return "its class under the root class";
  if (!reading.ingress || reading.ingress->kind != "tbf") return "the receive limit on " + reading.host_end.name;
  if (reading.ingress->rate != reading.egress->rate || reading.egress->ceil != reading.egress->rate) return "the same rate in both directions";
  if (!uplink.bridge || reading.host_end.master != uplink.bridge->index) return "its place on the bridge";
  if (reading.host_end.port != kSharePort) return "the settings of its bridge port";
  if (!reading.host_end.up) return "its host end being up";
  if (reading.host_end.alias != AliasOf(record)) return "its name on " + reading.host_end.name;
  return {};
}

Status MakeHostEnd(Socket& socket, const ShareSetup& setup) {
  const ShareRecord& record = setup.record;
  const std::string name = HostEndName(record.identity);
  if (Status status = CreateVeth(socket, {name, PodEndName(record.identity), record.mac, setup.mtu, kGroup}); !status.ok()) return status;
  Result<Link> made = GetLink(socket, name);
  if (!made.ok()) return made.failure();
  if (Status status = WithoutIpv6Address(socket, *made); !status.ok()) return status;
  return SetAlias(socket, *made, AliasOf(record));
}

// Every step is idempotent; repair repeats them all but spares a running share what is right already.
Status Converge(Socket& socket, const Uplink& uplink, const ShareSetup& setup, const Link& host_end) {
  const ShareRecord& record = setup.record;
  const int index = uplink.link->index;
  const std::uint32_t handle = kMajor | record.minor;
  std::optional<TrafficClass> current;
  for (const TrafficClass& entry : uplink.classes) {
    if (entry.handle == handle) current = entry;
  }
  Steps steps;
  if (current && current->parent != kRootClass) {  // the kernel cannot move a class
    steps.Then([&] { return DeleteClass(socket, index, handle); });
    current.reset();
  }
  if (!ClassIs(current, kRootClass, setup.rate)) {
    steps.Then([&] { return SetClass(socket, index, handle, kRootClass, setup.rate); });
    steps.Then([&] { return SetLeaf(socket, index, handle, setup.rate); });
  }
  if (host_end.alias != AliasOf(record)) steps.Then([&] { return SetAlias(socket, host_end, AliasOf(record)); });
  steps.Then([&] { return SetTbf(socket, host_end.index, setup.rate, setup.mtu); });
  steps.Then([&] { return AddClsact(socket, host_end.index); });
  steps.Then([&]() -> Status {
    Result<std::optional<std::string>> name = GetTagName(socket, host_end.index);
    if (name.ok() && *name == TagNameOf(record)) return {};
    return SetTag(socket, host_end.index, {record.mac, record.address.address, handle, TagNameOf(record)});
  });
  if (host_end.master != uplink.bridge->index) steps.Then([&] { return SetMaster(socket, host_end, uplink.bridge->index); });
  if (host_end.port != kSharePort) steps.Then([&] { return SetPortFlags(socket, host_end, kSharePort); });
  steps.Then([&] { return AddForwarding(socket, host_end, record.mac); });
  if (!host_end.up) steps.Then([&] { return SetAdminState(socket, host_end, AdminState::kUp); });
  return steps.Take();
}

Result<ShareReading> ConvergeAndRead(Socket& socket, const Uplink& uplink, const ShareSetup& setup) {
  const std::string name = HostEndName(setup.record.identity);
  Result<Link> host_end = GetLink(socket, name);
  if (!host_end.ok()) return host_end.failure();
  if (Status status = Converge(socket, uplink, setup, *host_end); !status.ok()) return status.failure();
  host_end = GetLink(socket, name);
  if (!host_end.ok()) return host_end.failure();
  Result<ShareReading> reading = ReadShare(socket, uplink, setup.record, *host_end);
  if (!reading.ok()) return reading;
  if (reading->complete && reading->egress->rate == setup.rate) return reading;
  const std::string what = reading->complete ? "its rate" : reading->missing;
  return Failure{TRANCHE_INTERNAL, "share on " + uplink.interface + " (" + name + "): the kernel accepted the set-up but " + what +
                                       " is not what was asked; the share was removed"};
}

}  // namespace

Result<UplinkLock> UplinkLock::Acquire(const std::string& directory, const std::string& interface, const std::function<bool()>& cancelled) {
  const std::string path = directory + "/uplink-" + interface + ".lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Failure{TRANCHE_UNAVAILABLE, "lock file " + path + ": " + std::strerror(errno), errno};
  UplinkLock lock(fd);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Failure{TRANCHE_UNAVAILABLE, "lock " + path + ": " + std::strerror(errno), errno};
    if (cancelled()) return Failure{TRANCHE_DEADLINE_EXCEEDED, "uplink " + interface + " is held by another host process; the host retries"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return lock;
}
UplinkLock::UplinkLock(UplinkLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
UplinkLock::~UplinkLock() {
  if (fd_ >= 0) close(fd_);
}

Result<Uplink> Inspect(Socket& socket, const std::string& interface, const std::string& bridge_name) {
  Uplink uplink;
  uplink.interface = interface;
  Result<std::optional<Link>> link = FindLink(socket, interface);
  if (!link.ok()) return link.failure();
  uplink.link = *link;
  if (Status status = FindBridge(socket, uplink, bridge_name); !status.ok()) return status.failure();
  if (uplink.link) {
    if (Status status = FindTree(socket, uplink); !status.ok()) return status.failure();
  }
  if (uplink.bridge) {
    Result<std::vector<Link>> ports = ListLinks(socket, uplink.bridge->index);
    if (!ports.ok()) return ports.failure();
    for (Link& port : *ports) {
      if (IsHostEndName(port.name)) uplink.ports.push_back(std::move(port));
    }
  }
  return uplink;
}

Status CheckUsable(Socket& socket, const Uplink& uplink) {
  const std::string who = "uplink " + uplink.interface;
  if (!uplink.link) return Failure{TRANCHE_UNAVAILABLE, who + " does not exist now; check the cable, the driver and the configuration"};
  if (!uplink.foreign_root.empty()) {
    return Failure{TRANCHE_FAILED_PRECONDITION, who + " has a root qdisc (" + uplink.foreign_root +
                                                    ") that somebody else set; it is left alone: give the driver another interface or remove that qdisc"};
  }
  if (!uplink.foreign_bridge.empty()) {
    return Failure{TRANCHE_FAILED_PRECONDITION,
                   who + ": bridge " + uplink.foreign_bridge + " is not the driver's; give the driver an interface and a bridge name of its own"};
  }
  if (uplink.bridge && uplink.link->master == uplink.bridge->index) return {};
  Result<std::vector<InterfaceAddress>> addresses = ListAddresses(socket, *uplink.link);
  if (!addresses.ok()) return addresses.failure();
  if (addresses->empty()) return {};
  return Failure{TRANCHE_FAILED_PRECONDITION, who + " has the address " + InterfaceAddressText(addresses->front()) +
                                                  ": the node uses it itself and would lose it as a bridge port; give the driver another interface"};
}

Status EnsureTree(Socket& socket, Uplink& uplink, const TreeShape& shape) {
  return Steps()
      .Then([&] { return EnsureBridge(socket, uplink, shape); })
      .Then([&] { return EnsureQueues(socket, uplink, shape); })
      .Then([&] { return EnsurePort(socket, uplink); })
      .Take();
}

Status RemoveTreeIfUnused(Socket& socket, const std::string& interface, const std::string& bridge_name) {
  Result<Uplink> uplink = Inspect(socket, interface, bridge_name);
  if (!uplink.ok()) return uplink.failure();
  if (!uplink->ports.empty() || !uplink->classes.empty()) return {};
  const bool was_down = uplink->bridge && BridgeRecordOf(uplink->bridge->alias).value_or(BridgeRecord{}).parent_was_up == false;
  Steps steps;
  if (uplink->has_root) steps.Then([&] { return DeleteRoot(socket, uplink->link->index); });
  if (uplink->link && was_down) steps.Then([&] { return SetAdminState(socket, *uplink->link, AdminState::kDown); });
  if (uplink->bridge) steps.Then([&] { return DeleteLink(socket, *uplink->bridge); });
  return steps.Take();
}

Result<ShareReading> ReadShare(Socket& socket, const Uplink& uplink, const ShareRecord& record, const Link& host_end) {
  ShareReading reading;
  reading.host_end = host_end;
  if (uplink.link && uplink.has_root) {
    Result<TrafficClass> egress = GetClass(socket, uplink.link->index, kMajor | record.minor);
    if (egress.ok()) reading.egress = *egress;
    if (!egress.ok() && egress.failure().code != TRANCHE_NOT_FOUND) return egress.failure();
  }
  Result<std::optional<Qdisc>> ingress = GetRoot(socket, host_end.index);
  if (!ingress.ok()) return ingress.failure();
  reading.ingress = *ingress;
  Result<std::optional<std::string>> tag = GetTagName(socket, host_end.index);
  if (!tag.ok()) return tag.failure();
  Result<bool> forwarding = host_end.master == 0 ? Result<bool>(false) : HasForwarding(socket, host_end, record.mac);
  if (!forwarding.ok()) return forwarding.failure();
  reading.missing = Missing(uplink, record, reading);
  if (reading.missing.empty() && *tag != TagNameOf(record)) reading.missing = "the port filter on " + host_end.name;
  if (reading.missing.empty() && !*forwarding) reading.missing = "the forwarding entry of " + MacText(record.mac);
  reading.complete = reading.missing.empty();
  return reading;
}

Result<ShareReading> ApplyShare(Socket& socket, const Uplink& uplink, const ShareSetup& setup, const std::optional<Link>& existing) {
  Status made = existing ? Status() : MakeHostEnd(socket, setup);
  Result<ShareReading> reading = made.ok() ? ConvergeAndRead(socket, uplink, setup) : Result<ShareReading>(made.failure());
  if (reading.ok()) return reading;
  // Nothing of a failed share stays: first what carries traffic, then the class.
  if (Result<Link> host_end = GetLink(socket, HostEndName(setup.record.identity)); host_end.ok()) (void)DeleteLink(socket, *host_end).ok();
  (void)DeleteClass(socket, uplink.link->index, kMajor | setup.record.minor).ok();
  return reading;
}

}  // namespace vnic
