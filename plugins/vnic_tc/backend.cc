#include "plugins/vnic_tc/backend.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "plugins/vnic_tc/convert.h"

namespace vnic {
namespace sdk = tranche::sdk;

namespace {

constexpr std::int64_t kMinimumBits = 64'000;
constexpr std::size_t kGroupDelete = 4;  // from here on one group delete beats deleting one by one

std::string MinorText(std::uint32_t minor) {
  char text[16];
  std::snprintf(text, sizeof text, "7a6:%x", minor);
  return text;
}

std::optional<std::int64_t> NumaNode(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/device/numa_node");
  std::int64_t node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return node;
}

sdk::Capacity Bandwidth(const Parent& parent) {
  sdk::Capacity capacity;
  capacity.value = parent.bandwidth_bits;
  capacity.unit = "bitsPerSecond";
  capacity.shareable = true;
  capacity.enforcement = "hard";
  capacity.overhead = sdk::Amount{parent.default_bits, ""};
  return capacity;
}

sdk::Capacity Shares() {
  sdk::Capacity capacity;
  capacity.value = static_cast<std::int64_t>(kMaximumShares);
  capacity.unit = "count";
  capacity.shareable = true;
  capacity.enforcement = "hard";
  capacity.request_policy = sdk::RequestPolicy{"1", {"1"}, "", "", ""};
  return capacity;
}

std::int64_t RequestedBits(const Parent& parent, const sdk::PrepareRequest& request) {
  const auto consumed = request.consumed.find("bandwidth");
  if (consumed == request.consumed.end()) {
    if (request.mode != "whole") throw sdk::Error(TRANCHE_INVALID_ARGUMENT, "the share on " + parent.interface + " says no bandwidth");
    return parent.bandwidth_bits - parent.default_bits;
  }
  const std::int64_t bits = consumed->second.value;
  if (bits < kMinimumBits) {
    throw sdk::Error(TRANCHE_INVALID_ARGUMENT, "bandwidth " + std::to_string(bits) + " bit/s is below " + std::to_string(kMinimumBits) +
                                                   " bit/s, the least that " + parent.interface + " can limit");
  }
  return bits;
}

}  // namespace

struct Backend::Planned {
  const sdk::PrepareRequest* request = nullptr;
  ShareSetup setup;
  ShareParameters parameters;
  std::int64_t requested_bits = 0;
  std::optional<Link> existing;  // repaired in place
  std::optional<Link> leftover;  // of this share but unusable: made again
};

struct Backend::Listing {
  std::vector<sdk::Share> shares;
  std::map<int, std::size_t> nameless;  // host ends without a name, by index: under how many uplinks' locks they were seen
};

struct Backend::Released {
  const sdk::ShareRef* ref = nullptr;
  std::optional<Link> host_end;
  std::string interface;  // "" when nothing says which uplink
  std::optional<std::uint32_t> minor;
  std::optional<Failure> failure;
};

namespace {
std::vector<std::string> Interfaces(const Config& config) {
  std::vector<std::string> interfaces;
  for (const Parent& parent : config.parents) interfaces.push_back(parent.interface);
  return interfaces;
}
}  // namespace

Backend::Backend(sdk::Host host, const boost::json::object& config, const std::string& runtime_directory)
    : host_(host),
      config_(ReadConfig(config)),
      runtime_directory_(runtime_directory),
      claimant_(Take(Claimant::Claim(Interfaces(config_), runtime_directory))),
      socket_(Take(Socket::Open())) {
  std::set<std::string> uplinks;
  for (const Parent& parent : config_.parents) uplinks.insert(parent.interface);
  monitor_ =
      Take(Monitor::Start(std::move(uplinks), {[host](const Identity& identity) { host.ShareLost(KeyOf(identity)); }, [host] { host.DevicesChanged(); }}));
}

const Parent* Backend::FindParent(const std::string& device) const {
  const auto found = std::find_if(config_.parents.begin(), config_.parents.end(), [&](const Parent& parent) { return parent.device == device; });
  return found == config_.parents.end() ? nullptr : &*found;
}

std::string Backend::BridgeNameFor(const std::string& interface) const {
  const auto found = std::find_if(config_.parents.begin(), config_.parents.end(), [&](const Parent& parent) { return parent.interface == interface; });
  return found == config_.parents.end() ? "" : found->bridge;
}

UplinkLock Backend::Lock(sdk::Call& call, const std::string& interface) const {
  return Take(UplinkLock::Acquire(runtime_directory_, interface, [&] { return call.Cancelled(); }));
}

std::vector<sdk::Device> Backend::Discover(sdk::Call&) {
  std::vector<sdk::Device> devices;
  for (const Parent& parent : config_.parents) {
    Result<Link> link = GetLink(socket_, parent.interface);
    if (!link.ok()) {
      host_.Warn("uplink " + parent.interface + " is not offered: " + link.failure().message);
      continue;
    }
    sdk::Device device;
    device.name = parent.device;
    device.identity = {{"interface", parent.interface}};
    device.silicon = sdk::Silicon{"nic-" + parent.interface, {{"link", 1}}, {{"link", 1}}};
    device.modes = {"share", "whole"};
    device.attributes = {{"parent", parent.interface},
                         {"subnet", SubnetText(parent.subnet)},
                         {"enforcementEgress", std::string("hard")},
                         {"enforcementIngress", std::string("hard")}};
    device.capacities = {{"bandwidth", Bandwidth(parent)}, {"shares", Shares()}};
    device.metadata = {"parent", "subnet"};
    device.numa_node = NumaNode(parent.interface);
    devices.push_back(std::move(device));
  }
  return devices;
}

void Backend::Prepare(sdk::Call& call, const std::vector<sdk::PrepareRequest>& requests) {
  std::map<const Parent*, std::vector<const sdk::PrepareRequest*>> by_parent;
  for (const sdk::PrepareRequest& request : requests) {
    const Parent* parent = FindParent(request.physical);
    if (parent != nullptr) {
      by_parent[parent].push_back(&request);
    } else {
      call.AddResult(request.key, TRANCHE_FAILED_PRECONDITION, "device " + request.physical + " is not configured; it takes no new share");
    }
  }
  for (const auto& [parent, group] : by_parent) {
    try {
      PrepareOn(call, *parent, group);
    } catch (const sdk::Error& error) {
      for (const sdk::PrepareRequest* request : group) call.AddResult(request->key, error.code(), error.what());
    }
  }
}

Backend::Planned Backend::Plan(const Parent& parent, const Uplink& uplink, Ledger& ledger, const sdk::PrepareRequest& request) {
  if (request.pod_uids.size() > 1) {
    throw sdk::Error(TRANCHE_FAILED_PRECONDITION, "claim " + request.claim_namespace + "/" + request.claim_name + " is reserved for " +
                                                      std::to_string(request.pod_uids.size()) + " pods; a share serves one pod: give each pod its own claim");
  }
  Planned planned;
  planned.request = &request;
  planned.parameters = ReadParameters(request.configuration, parent, request.result_index);
  planned.requested_bits = RequestedBits(parent, request);
  const State state = ReadState(request.state);
  planned.setup.mtu = planned.parameters.mtu != 0 ? planned.parameters.mtu : uplink.link->mtu;
  if (planned.setup.mtu > uplink.link->mtu) {
    throw sdk::Error(TRANCHE_INVALID_ARGUMENT, "parameters.mtu " + std::to_string(planned.setup.mtu) + " is more than " + std::to_string(uplink.link->mtu) +
                                                   ", the MTU of uplink " + parent.interface);
  }
  planned.setup.rate = static_cast<std::uint64_t>(planned.requested_bits) / 8;

  const std::string host_end = HostEndName(IdentityOf(request.key));
  for (const Link& port : uplink.ports) {
    if (port.name == host_end) planned.existing = port;
  }
  Wish wish = state.wish;
  if (!planned.existing) {
    if (Result<Link> leftover = GetLink(socket_, host_end); leftover.ok()) {
      std::optional<ShareRecord> record = PartialRecordOf(leftover->alias);
      if (record) record->identity = IdentityOf(request.key);
      if (record && AliasOf(*record) != leftover->alias) {
        throw sdk::Error(TRANCHE_FAILED_PRECONDITION,
                         "interface " + host_end + " belongs to another share whose key has the same hash; delete one of the claims");
      }
      if (record && !wish.mac) wish = {record->mac, record->address.address, record->minor};
      // Its pod may hold the other end: put back rather than made again, where that is possible.
      (ledger.Adopt(*leftover) ? planned.existing : planned.leftover) = *leftover;
    }
  }
  planned.setup.record = Take(ledger.Book({IdentityOf(request.key), planned.setup.rate, planned.parameters.range, wish}));
  return planned;
}

sdk::Share Backend::Apply(const Parent& parent, const Uplink& uplink, const Planned& planned) {
  const ShareRecord& record = planned.setup.record;
  if (planned.leftover) {
    monitor_->Forget(planned.leftover->name);
    Check(DeleteLink(socket_, *planned.leftover));
  }
  ShareReading reading = Take(ApplyShare(socket_, uplink, planned.setup, planned.existing));
  sdk::Share share = Describe(uplink, record, reading, planned.requested_bits);
  share.key = planned.request->key;
  share.network->interface_name = planned.parameters.interface_name;
  sdk::Hook hook;
  hook.hook_name = "createRuntime";
  hook.path = config_.attach_hook;
  hook.args = {"vnic-attach",
               "--host-end",
               reading.host_end.name,
               "--pod-end",
               PodEndName(record.identity),
               "--name",
               planned.parameters.interface_name,
               "--address",
               InterfaceAddressText(record.address),
               "--mac",
               MacText(record.mac),
               "--mtu",
               std::to_string(planned.setup.mtu)};
  hook.timeout_seconds = 10;
  share.edits.hooks.push_back(std::move(hook));
  share.attributes["parent"] = parent.interface;
  share.attributes["subnet"] = SubnetText(planned.parameters.range);
  share.state = WriteState(record, planned.setup.mtu);
  monitor_->Watch(record.identity);
  return share;
}

void Backend::PrepareOn(sdk::Call& call, const Parent& parent, const std::vector<const sdk::PrepareRequest*>& requests) {
  const UplinkLock lock = Lock(call, parent.interface);
  Uplink uplink = Take(Inspect(socket_, parent.interface, parent.bridge));
  Check(CheckUsable(socket_, uplink));
  Ledger ledger(parent, uplink);
  std::vector<Planned> plans;
  std::set<std::string> seen;
  const auto guarded = [&](const sdk::PrepareRequest& request, const auto& body) {
    try {
      call.ThrowIfCancelled();
      body();
    } catch (const sdk::Error& error) { call.AddResult(request.key, error.code(), error.what()); }
  };
  for (const sdk::PrepareRequest* request : requests) {
    try {
      ledger.Expect(IdentityOf(request->key), static_cast<std::uint64_t>(RequestedBits(parent, *request)) / 8);
    } catch (const sdk::Error&) {
      continue;  // Plan refuses it with the reason
    }
  }
  for (const sdk::PrepareRequest* request : requests) {
    guarded(*request, [&] {
      if (!seen.insert(HostEndName(IdentityOf(request->key))).second) throw sdk::Error(TRANCHE_INVALID_ARGUMENT, "the same share is in the list twice");
      plans.push_back(Plan(parent, uplink, ledger, *request));
    });
  }
  if (plans.empty()) return;
  // From here on the kernel changes.
  const TreeShape shape{parent.bridge, static_cast<std::uint64_t>(parent.bandwidth_bits) / 8, static_cast<std::uint64_t>(parent.default_bits) / 8};
  if (Status tree = EnsureTree(socket_, uplink, shape); !tree.ok()) {
    for (const Planned& planned : plans) call.AddResult(planned.request->key, tree.failure().code, tree.failure().message);
    (void)RemoveTreeIfUnused(socket_, parent.interface, parent.bridge).ok();
    return;
  }
  std::size_t applied = 0;
  for (const Planned& planned : plans) {
    guarded(*planned.request, [&] {
      const sdk::Share share = Apply(parent, uplink, planned);
      ++applied;
      call.AddShare(share);
      call.AddResult(planned.request->key, TRANCHE_OK);
    });
  }
  if (applied == 0) (void)RemoveTreeIfUnused(socket_, parent.interface, parent.bridge).ok();
}

sdk::Share Backend::Describe(const Uplink& uplink, const ShareRecord& record, const ShareReading& reading, std::int64_t requested) const {
  sdk::Share share;
  share.key = KeyOf(record.identity);
  share.applied = reading.complete ? "complete" : "partial";
  const auto now = host_.Now();
  if (reading.egress) {
    // A class may send at its ceil; they are equal unless somebody changed it.
    const auto in_force = static_cast<std::int64_t>(std::max(reading.egress->rate, reading.egress->ceil) * 8);
    share.limits.push_back({"bandwidth", "egress", requested != 0 ? requested : in_force, in_force, reading.complete ? "hard" : "none", now,
                            "htb class " + MinorText(record.minor) + " on " + uplink.interface});
    const Counters& counters = reading.egress->counters;
    share.usage.push_back(
        {"bandwidth", "egress", counters.bytes, counters.drops, counters.overlimits, sdk::CounterSource{uplink.interface, kMajor | record.minor}});
  }
  if (reading.ingress && reading.ingress->kind == "tbf") {
    const auto in_force = static_cast<std::int64_t>(reading.ingress->rate * 8);
    share.limits.push_back(
        {"bandwidth", "ingress", requested != 0 ? requested : in_force, in_force, reading.complete ? "hard" : "none", now, "tbf on " + reading.host_end.name});
    const Counters& counters = reading.ingress->counters;
    share.usage.push_back({"bandwidth", "ingress", counters.bytes, counters.drops, counters.overlimits, sdk::CounterSource{reading.host_end.name, 0}});
  }
  share.network = sdk::NetworkData{"", {InterfaceAddressText(record.address)}, MacText(record.mac)};
  share.attributes["parent"] = record.parent;
  share.state = WriteState(record, reading.host_end.mtu);
  return share;
}

sdk::Share Backend::Verify(sdk::Call&, const sdk::ShareRef& ref) {
  const Identity identity = IdentityOf(ref.key);
  const Link host_end = Take(GetLink(socket_, HostEndName(identity)));
  std::optional<ShareRecord> record = PartialRecordOf(host_end.alias);
  if (record) record->identity = identity;
  if (!record || AliasOf(*record) != host_end.alias) {
    throw sdk::Error(TRANCHE_NOT_FOUND, "interface " + host_end.name + " does not carry this share; prepare it again");
  }
  Uplink uplink;  // only what ReadShare looks at: no dump for one share
  uplink.interface = record->parent;
  if (Result<Link> link = GetLink(socket_, record->parent); link.ok()) uplink.link = *link;
  uplink.has_root = true;
  if (uplink.link && uplink.link->master != 0) uplink.bridge = Take(GetLink(socket_, uplink.link->master));
  return Describe(uplink, *record, Take(ReadShare(socket_, uplink, *record, host_end)), 0);
}

void Backend::CheckHealth(sdk::Call&) {
  for (const Parent& parent : config_.parents) {
    sdk::Health health;
    health.device = parent.device;
    health.identity = {{"interface", parent.interface}};
    health.source = kName;
    health.sequence = ++health_sequence_;
    health.observed_at = host_.Now();
    Result<Uplink> uplink = Inspect(socket_, parent.interface, parent.bridge);
    const Status usable = uplink.ok() ? CheckUsable(socket_, *uplink) : Status(uplink.failure());
    health.verdict = usable.ok() ? "healthy" : "unhealthy";
    if (!usable.ok()) health.message = usable.failure().message;
    host_.ReportHealth(health);
  }
}

// ---- Taking away. Nothing here needs the configuration: names follow from keys, everything else is written in the kernel.

void Backend::Unprepare(sdk::Call& call, const std::vector<sdk::ShareRef>& refs) {
  std::map<std::string, std::vector<Released>> by_interface;
  for (const sdk::ShareRef& ref : refs) {
    Released released;
    released.ref = &ref;
    const State state = ReadState(ref.state);
    released.interface = state.parent;
    released.minor = state.wish.minor;
    if (Result<Link> host_end = GetLink(socket_, HostEndName(IdentityOf(ref.key))); host_end.ok()) {
      released.host_end = *host_end;
      if (const auto record = PartialRecordOf(host_end->alias)) {
        released.interface = record->parent;
        released.minor = record->minor;
      }
    }
    by_interface[released.interface].push_back(std::move(released));
  }
  for (auto& [interface, shares] : by_interface) {
    try {
      UnprepareOn(call, interface, shares);
      for (const Released& released : shares) {
        if (released.failure) {
          call.AddResult(released.ref->key, released.failure->code, released.failure->message);
        } else {
          call.AddResult(released.ref->key, TRANCHE_OK);
        }
      }
    } catch (const sdk::Error& error) {
      for (const Released& released : shares) call.AddResult(released.ref->key, error.code(), error.what());
    }
  }
}

void Backend::UnprepareOn(sdk::Call& call, const std::string& interface, std::vector<Released>& shares) {
  if (interface.empty() || interface.find('/') != std::string::npos) {  // no uplink known: there is at most a half-made pair
    DeleteHostEnds(shares);
    return;
  }
  const UplinkLock lock = Lock(call, interface);
  DeleteHostEnds(shares);
  const std::string bridge_name = BridgeNameFor(interface);
  const Uplink uplink = Take(Inspect(socket_, interface, bridge_name));
  std::set<std::uint32_t> live;  // a minor may have passed to another share since the state was stored
  for (const Link& port : uplink.ports) {
    if (const auto record = PartialRecordOf(port.alias)) live.insert(record->minor);
  }
  for (Released& released : shares) {
    if (released.failure || !released.minor || live.contains(*released.minor)) continue;
    if (*released.minor == 0 || *released.minor > kLastShareMinor || !uplink.has_root) continue;
    if (Status status = DeleteClass(socket_, uplink.link->index, kMajor | *released.minor); !status.ok()) released.failure = status.failure();
  }
  if (Status status = RemoveTreeIfUnused(socket_, interface, bridge_name); !status.ok()) Throw(status.failure());
}

void Backend::DeleteHostEnds(std::vector<Released>& shares) {
  // Looked at again: before the lock was ours another host may have re-made or removed them.
  std::vector<Released*> present;
  for (Released& released : shares) {
    const std::string name = HostEndName(IdentityOf(released.ref->key));
    monitor_->Forget(name);
    Result<Link> host_end = GetLink(socket_, name);
    released.host_end.reset();
    if (host_end.ok()) {
      released.host_end = *host_end;
      present.push_back(&released);
    } else if (host_end.failure().code != TRANCHE_NOT_FOUND) {
      released.failure = host_end.failure();
    }
  }
  if (present.size() >= kGroupDelete) {
    for (Released* released : present) (void)SetGroup(socket_, *released->host_end, kDyingGroup).ok();
    if (DeleteGroup(socket_, kDyingGroup).ok()) return;
  }
  for (Released* released : present) {
    Status status = DeleteLink(socket_, *released->host_end);
    if (!status.ok() && status.failure().code != TRANCHE_NOT_FOUND) released->failure = status.failure();
  }
}

// ---- What the kernel has.

std::vector<sdk::Share> Backend::ListPrepared(sdk::Call& call) {
  std::set<std::string> interfaces;
  for (const Parent& parent : config_.parents) interfaces.insert(parent.interface);
  for (const Link& link : Take(ListLinks(socket_, 0))) {
    if (link.group != kGroup && link.group != kDyingGroup) continue;
    if (const auto bridge = BridgeRecordOf(link.alias)) interfaces.insert(bridge->parent);
  }
  Listing listing;
  for (const std::string& interface : interfaces) ListUplink(call, interface, listing);
  // A pair without a name under every uplink's lock is not in the making anywhere: a crash left it.
  for (const auto& [index, views] : listing.nameless) {
    Result<Link> link = GetLink(socket_, index);
    if (views != interfaces.size() || !link.ok() || !IsHostEndName(link->name)) continue;
    host_.Warn("interface " + link->name + " is a half-made share without a name; it is removed");
    Check(DeleteLink(socket_, *link));
  }
  return std::move(listing.shares);
}

void Backend::ListUplink(sdk::Call& call, const std::string& interface, Listing& listing) {
  const UplinkLock lock = Lock(call, interface);
  Uplink uplink = Take(Inspect(socket_, interface, BridgeNameFor(interface)));
  std::vector<Link> host_ends = uplink.ports;
  for (Link& link : Take(ListLinks(socket_, 0))) {  // made but not yet on the bridge: a crash came between
    if (!IsHostEndName(link.name) || link.master != 0 || (link.group != kGroup && link.group != kDyingGroup)) continue;
    const auto record = PartialRecordOf(link.alias);
    if (!record) ++listing.nameless[link.index];
    if (record && record->parent == interface) host_ends.push_back(std::move(link));
  }
  std::set<std::uint32_t> live;
  for (const Link& host_end : host_ends) {
    call.ThrowIfCancelled();
    const auto partial = PartialRecordOf(host_end.alias);
    if (!partial) continue;
    live.insert(partial->minor);
    Result<std::optional<std::string>> tag = GetTagName(socket_, host_end.index);
    const auto record = RecordOf(host_end.name, host_end.alias, tag.ok() ? tag->value_or("") : "");
    if (!record && host_end.master == 0) {
      host_.Warn("interface " + host_end.name + " is a half-made share without a readable name; it is removed");
      Check(DeleteLink(socket_, host_end));
      live.erase(partial->minor);
    } else if (!record) {
      host_.Warn("interface " + host_end.name + " carries a share whose key is too long to read back; it stays, its claim is known to the host alone");
    }
    if (!record) continue;
    Result<ShareReading> reading = ReadShare(socket_, uplink, *record, host_end);
    if (!reading.ok()) continue;  // gone meanwhile
    monitor_->Watch(record->identity);
    listing.shares.push_back(Describe(uplink, *record, *reading, 0));
  }
  std::erase_if(uplink.classes, [&](const TrafficClass& entry) { return live.contains(entry.handle & 0xffffU); });
  Check(RemoveOrphanClasses(uplink));
  if (live.empty()) Check(RemoveTreeIfUnused(socket_, interface, BridgeNameFor(interface)));
}

// A class that no host end tags into carries no traffic: what is left of a crash, or of a share whose link vanished and which is made again with
// its class. Whether that share still fits is the host's store to say, which never forgot it.
Status Backend::RemoveOrphanClasses(Uplink& uplink) {
  for (const TrafficClass& entry : uplink.classes) {
    host_.Warn("class " + MinorText(entry.handle & 0xffffU) + " on " + uplink.interface + " belongs to no share; it is removed");
    if (Status status = DeleteClass(socket_, uplink.link->index, entry.handle); !status.ok()) return status;
  }
  return {};
}

}  // namespace vnic

using VnicBackend = vnic::Backend;
TRANCHE_BACKEND(VnicBackend)
