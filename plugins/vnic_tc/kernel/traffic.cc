#include "plugins/vnic_tc/kernel/traffic.h"

#include <algorithm>
#include <limits>

#include <arpa/inet.h>
#include <linux/gen_stats.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include "plugins/vnic_tc/kernel/port_program.h"

namespace vnic {
namespace {

constexpr std::uint64_t kNanoseconds = 1'000'000'000;
constexpr std::uint32_t kTagPriority = 1, kTagHandle = 1;
constexpr std::uint32_t kTbfHandle = 0x7a7U << 16;

tcmsg Header(int index, std::uint32_t handle, std::uint32_t parent) {
  tcmsg header{};
  header.tcm_family = AF_UNSPEC;
  header.tcm_ifindex = index;
  header.tcm_handle = handle;
  header.tcm_parent = parent;
  return header;
}

std::string On(std::string_view what, int index) { return std::string(what) + " on link " + std::to_string(index); }

std::string HandleText(std::uint32_t handle) {
  char text[16];
  std::snprintf(text, sizeof text, "%x:%x", handle >> 16, handle & 0xffffU);
  return text;
}

std::uint32_t Low(std::uint64_t rate) { return static_cast<std::uint32_t>(std::min<std::uint64_t>(rate, std::numeric_limits<std::uint32_t>::max())); }

// The time that `bytes` take at `rate`, in the kernel's ticks of 64 ns.
std::uint32_t Ticks(std::uint64_t bytes, std::uint64_t rate) {
  const std::uint64_t ticks = bytes * kNanoseconds / rate >> 6;
  return Low(std::max<std::uint64_t>(ticks, 1));
}

// LINKLAYER_ETHERNET also tells the kernel that no rate table follows.
tc_ratespec RateSpec(std::uint64_t rate) {
  tc_ratespec spec{};
  spec.rate = Low(rate);
  spec.linklayer = TC_LINKLAYER_ETHERNET;
  return spec;
}

Counters ParseCounters(nlattr* nested) {
  const auto statistics = Attributes<TCA_STATS_MAX>::OfNested(nested);
  Counters counters;
  const auto basic = statistics.Get<gnet_stats_basic>(TCA_STATS_BASIC);
  counters.bytes = basic.bytes;
  counters.packets = statistics.Get<std::uint64_t>(TCA_STATS_PKT64, basic.packets);
  const auto queue = statistics.Get<gnet_stats_queue>(TCA_STATS_QUEUE);
  counters.drops = queue.drops;
  counters.overlimits = queue.overlimits;
  return counters;
}

const tcmsg* TcHeader(const nlmsghdr* header) { return static_cast<const tcmsg*>(nlmsg_data(const_cast<nlmsghdr*>(header))); }

Qdisc ParseQdisc(const nlmsghdr* header) {
  const tcmsg* tc = TcHeader(header);
  const auto attributes = Attributes<TCA_MAX>::OfMessage(header, sizeof(tcmsg));
  Qdisc qdisc;
  qdisc.index = tc->tcm_ifindex;
  qdisc.handle = tc->tcm_handle;
  qdisc.parent = tc->tcm_parent;
  qdisc.kind = attributes.Text(TCA_KIND);
  qdisc.counters = ParseCounters(attributes[TCA_STATS2]);
  if (qdisc.kind == "htb") {
    const auto options = Attributes<TCA_HTB_MAX>::OfNested(attributes[TCA_OPTIONS]);
    const auto global = options.Get<tc_htb_glob>(TCA_HTB_INIT);
    qdisc.default_class = global.defcls;
    qdisc.direct_packets = global.direct_pkts;
  } else if (qdisc.kind == "tbf") {
    const auto options = Attributes<TCA_TBF_MAX>::OfNested(attributes[TCA_OPTIONS]);
    const auto parameters = options.Get<tc_tbf_qopt>(TCA_TBF_PARMS);
    qdisc.rate = options.Get<std::uint64_t>(TCA_TBF_RATE64, parameters.rate.rate);
    qdisc.limit = parameters.limit;
  } else if (qdisc.kind == "bfifo" && attributes.Has(TCA_OPTIONS)) {
    qdisc.limit = attributes.Get<tc_fifo_qopt>(TCA_OPTIONS).limit;
  }
  return qdisc;
}

TrafficClass ParseClass(const nlmsghdr* header) {
  const tcmsg* tc = TcHeader(header);
  const auto attributes = Attributes<TCA_MAX>::OfMessage(header, sizeof(tcmsg));
  const auto options = Attributes<TCA_HTB_MAX>::OfNested(attributes[TCA_OPTIONS]);
  const auto parameters = options.Get<tc_htb_opt>(TCA_HTB_PARMS);
  TrafficClass parsed;
  parsed.handle = tc->tcm_handle;
  parsed.parent = tc->tcm_parent;
  parsed.leaf = tc->tcm_info;
  parsed.rate = options.Get<std::uint64_t>(TCA_HTB_RATE64, parameters.rate.rate);
  parsed.ceil = options.Get<std::uint64_t>(TCA_HTB_CEIL64, parameters.ceil.rate);
  parsed.counters = ParseCounters(attributes[TCA_STATS2]);
  return parsed;
}

}  // namespace

Result<std::optional<Qdisc>> GetRoot(Socket& socket, int index) {
  Message message(RTM_GETQDISC, NLM_F_ECHO);  // without it older kernels answer to listeners only
  message.Header(Header(index, 0, TC_H_ROOT));
  std::optional<Qdisc> root;
  Status status = socket.Run(message, On("root qdisc", index), [&](const nlmsghdr* header) { root = ParseQdisc(header); });
  if (!status.ok() && status.failure().error != ENOENT) return status.failure();
  return root;
}

Result<std::vector<Qdisc>> ListQdiscs(Socket& socket) {
  std::vector<Qdisc> qdiscs;
  Status status = socket.Dump([](Message& message) { message.Header(Header(0, 0, 0)); }, RTM_GETQDISC, "list of qdiscs", [&] { qdiscs.clear(); },
                              [&](const nlmsghdr* header) { qdiscs.push_back(ParseQdisc(header)); });
  if (!status.ok()) return status.failure();
  return qdiscs;
}

Status AddHtbRoot(Socket& socket, int index) {
  Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL);
  message.Header(Header(index, kMajor, TC_H_ROOT));
  message.PutText(TCA_KIND, "htb");
  tc_htb_glob global{};
  global.version = 3;
  global.rate2quantum = 10;
  global.defcls = kDefaultClass & 0xffffU;
  nlattr* options = message.Begin(TCA_OPTIONS);
  message.Put(TCA_HTB_INIT, global);
  message.End(options);
  return socket.Run(message, On("make the HTB root", index));
}

Status DeleteRoot(Socket& socket, int index) {
  Message message(RTM_DELQDISC, 0);
  message.Header(Header(index, kMajor, TC_H_ROOT));
  return socket.Run(message, On("delete the HTB root", index));
}

Status SetClass(Socket& socket, int index, std::uint32_t handle, std::uint32_t parent, std::uint64_t rate) {
  Message message(RTM_NEWTCLASS, NLM_F_CREATE);
  message.Header(Header(index, handle, parent));
  message.PutText(TCA_KIND, "htb");
  // Tokens beyond the burst are lost whenever the kernel's timer comes later than it lasts: with 1 ms, shares of
  // 100 and 200 Mbit/s of small packets fell short on a busy machine. 5 ms stay far below the 15 % that a window of 100 ms may exceed.
  const std::uint64_t burst = std::max({std::uint64_t{16 * 1024}, rate / 1000, std::min<std::uint64_t>(rate / 200, 512 * 1024)});
  tc_htb_opt parameters{};
  parameters.rate = RateSpec(rate);
  parameters.ceil = RateSpec(rate);
  parameters.buffer = Ticks(burst, rate);
  parameters.cbuffer = Ticks(burst, rate);
  parameters.quantum = 60000;  // explicit: the kernel's own is clamped and warns
  nlattr* options = message.Begin(TCA_OPTIONS);
  message.Put(TCA_HTB_PARMS, parameters);
  message.Put(TCA_HTB_RATE64, rate);
  message.Put(TCA_HTB_CEIL64, rate);
  message.End(options);
  return socket.Run(message, On("set class " + HandleText(handle), index));
}

Status SetLeaf(Socket& socket, int index, std::uint32_t class_handle, std::uint64_t rate) {
  Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE);
  message.Header(Header(index, 0, class_handle));
  message.PutText(TCA_KIND, "bfifo");
  const tc_fifo_qopt parameters{Low(std::max<std::uint64_t>(128 * 1024, rate / 40))};
  message.Put(TCA_OPTIONS, parameters);
  return socket.Run(message, On("set the queue of class " + HandleText(class_handle), index));
}

Status DeleteClass(Socket& socket, int index, std::uint32_t handle) {
  Message message(RTM_DELTCLASS, 0);
  message.Header(Header(index, handle, 0));
  Status status = socket.Run(message, On("delete class " + HandleText(handle), index));
  if (!status.ok() && status.failure().code == TRANCHE_NOT_FOUND) return {};
  return status;
}

Result<TrafficClass> GetClass(Socket& socket, int index, std::uint32_t handle) {
  Message message(RTM_GETTCLASS, NLM_F_ECHO);
  message.Header(Header(index, handle, 0));
  std::optional<TrafficClass> found;
  const std::string what = On("class " + HandleText(handle), index);
  Status status = socket.Run(message, what, [&](const nlmsghdr* header) { found = ParseClass(header); });
  if (!status.ok()) return status.failure();
  if (!found) return Failure{TRANCHE_NOT_FOUND, what + ": the kernel answered without a class"};
  return *found;
}

Result<std::vector<TrafficClass>> ListClasses(Socket& socket, int index) {
  std::vector<TrafficClass> classes;
  Status status = socket.Dump([&](Message& message) { message.Header(Header(index, 0, 0)); }, RTM_GETTCLASS, On("list of classes", index),
                              [&] { classes.clear(); }, [&](const nlmsghdr* header) { classes.push_back(ParseClass(header)); });
  if (!status.ok()) return status.failure();
  return classes;
}

Status SetTbf(Socket& socket, int index, std::uint64_t rate, std::uint32_t mtu) {
  // At most 60 KB, so that TBF cuts GSO packets up and acknowledgements of the other direction do not wait behind 64 KB; never below one
  // frame, or nothing would pass.
  const std::uint64_t floor = std::max<std::uint64_t>(8 * 1024, mtu + 64);
  const std::uint64_t burst = std::clamp<std::uint64_t>(rate / 100, floor, std::max<std::uint64_t>(60000, floor));
  Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE);
  message.Header(Header(index, kTbfHandle, TC_H_ROOT));
  message.PutText(TCA_KIND, "tbf");
  tc_tbf_qopt parameters{};
  parameters.rate = RateSpec(rate);
  parameters.limit = Low(std::max<std::uint64_t>(burst + rate / 40, 64 * 1024));
  parameters.buffer = Ticks(burst, rate);
  nlattr* options = message.Begin(TCA_OPTIONS);
  message.Put(TCA_TBF_PARMS, parameters);
  message.Put(TCA_TBF_RATE64, rate);
  message.Put(TCA_TBF_BURST, static_cast<std::uint32_t>(burst));
  message.End(options);
  return socket.Run(message, On("set the receive limit", index));
}

Status AddClsact(Socket& socket, int index) {
  Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL);
  message.Header(Header(index, TC_H_MAKE(TC_H_CLSACT, 0), TC_H_CLSACT));
  message.PutText(TCA_KIND, "clsact");
  Status status = socket.Run(message, On("add clsact", index));
  if (!status.ok() && status.failure().error == EEXIST) return {};
  return status;
}

Status SetTag(Socket& socket, int index, const PortTag& tag) {
  Result<int> program = LoadPortProgram(tag.mac, tag.address, tag.class_handle);
  if (!program.ok()) return program.failure();
  Message message(RTM_NEWTFILTER, NLM_F_CREATE);
  tcmsg header = Header(index, kTagHandle, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS));
  header.tcm_info = TC_H_MAKE(kTagPriority << 16, htons(ETH_P_ALL));
  message.Header(header);
  message.PutText(TCA_KIND, "bpf");
  nlattr* options = message.Begin(TCA_OPTIONS);
  message.Put(TCA_BPF_FD, *program);
  message.PutText(TCA_BPF_NAME, tag.name);
  message.Put(TCA_BPF_FLAGS, std::uint32_t{TCA_BPF_FLAG_ACT_DIRECT});
  message.End(options);
  Status status = socket.Run(message, On("set the port filter", index));
  close(*program);
  return status;
}

Result<std::optional<std::string>> GetTagName(Socket& socket, int index) {
  std::optional<std::string> name;
  Status status = socket.Dump([&](Message& message) { message.Header(Header(index, 0, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS))); }, RTM_GETTFILTER,
                              On("list of filters", index), [&] { name.reset(); },
                              [&](const nlmsghdr* header) {
                                const auto attributes = Attributes<TCA_MAX>::OfMessage(header, sizeof(tcmsg));
                                if (TcHeader(header)->tcm_handle != kTagHandle || attributes.Text(TCA_KIND) != "bpf") return;
                                name = Attributes<TCA_BPF_MAX>::OfNested(attributes[TCA_OPTIONS]).Text(TCA_BPF_NAME);
                              });
  if (!status.ok() && status.failure().code != TRANCHE_NOT_FOUND && status.failure().code != TRANCHE_INVALID_ARGUMENT) return status.failure();
  return name;
}

}  // namespace vnic
