#include "proof/counters.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "base/status.h"
#include "proof/netns.h"

namespace tranche::proof {
namespace {

struct SocketFree {
  void operator()(nl_sock* socket) const { nl_socket_free(socket); }
};
using Socket = std::unique_ptr<nl_sock, SocketFree>;

struct Entry {
  Counters counters;
  std::uint64_t direct_packets = 0;
};
// By interface index and class id; class id 0 is the root qdisc.
using Entries = std::map<std::pair<int, std::uint32_t>, Entry>;

template <typename T>
T Payload(nlattr* attribute) {
  T value{};
  std::memcpy(&value, nla_data(attribute), std::min(sizeof value, static_cast<std::size_t>(nla_len(attribute))));
  return value;
}

Counters ParseStatistics(nlattr* attribute) {
  Counters counters;
  nlattr* table[TCA_STATS_MAX + 1] = {};
  if (attribute == nullptr || nla_parse_nested(table, TCA_STATS_MAX, attribute, nullptr) < 0) return counters;
  if (table[TCA_STATS_BASIC] != nullptr) {
    const auto basic = Payload<gnet_stats_basic>(table[TCA_STATS_BASIC]);
    counters.bytes = basic.bytes;
    counters.packets = basic.packets;
  }
  if (table[TCA_STATS_QUEUE] != nullptr) {
    const auto queue = Payload<gnet_stats_queue>(table[TCA_STATS_QUEUE]);
    counters.drops = queue.drops;
    counters.overlimits = queue.overlimits;
    counters.backlog = queue.backlog;
  }
  return counters;
}

std::uint64_t ParseDirectPackets(nlattr* kind, nlattr* options) {
  if (kind == nullptr || options == nullptr || std::strcmp(nla_get_string(kind), "htb") != 0) return 0;
  nlattr* table[TCA_HTB_MAX + 1] = {};
  if (nla_parse_nested(table, TCA_HTB_MAX, options, nullptr) < 0 || table[TCA_HTB_INIT] == nullptr) return 0;
  return Payload<tc_htb_glob>(table[TCA_HTB_INIT]).direct_pkts;
}

int CollectEntry(nl_msg* message, void* argument) {
  nlmsghdr* header = nlmsg_hdr(message);
  if (header->nlmsg_type != RTM_NEWQDISC && header->nlmsg_type != RTM_NEWTCLASS) return NL_SKIP;
  if (nlmsg_datalen(header) < static_cast<int>(sizeof(tcmsg))) return NL_SKIP;
  const auto* tc = static_cast<const tcmsg*>(nlmsg_data(header));
  const bool is_class = header->nlmsg_type == RTM_NEWTCLASS;
  if (!is_class && tc->tcm_parent != TC_H_ROOT) return NL_SKIP;
  nlattr* table[TCA_MAX + 1] = {};
  if (nlmsg_parse(header, sizeof(tcmsg), table, TCA_MAX, nullptr) < 0) return NL_SKIP;
  auto& entries = *static_cast<Entries*>(argument);
  entries[{tc->tcm_ifindex, is_class ? tc->tcm_handle : 0U}] = {ParseStatistics(table[TCA_STATS2]),
                                                                is_class ? 0 : ParseDirectPackets(table[TCA_KIND], table[TCA_OPTIONS])};
  return NL_OK;
}

absl::Status Dump(nl_sock* socket, int type, int interface, Entries& entries) {
  tcmsg request{};
  request.tcm_family = AF_UNSPEC;
  request.tcm_ifindex = interface;
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, CollectEntry, &entries);
  int code = nl_send_simple(socket, type, NLM_F_DUMP, &request, sizeof request);
  if (code >= 0) code = nl_recvmsgs_default(socket);
  if (code >= 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("reading traffic-control counters over netlink failed: ", nl_geterror(code)));
}

std::string Describe(const CounterSource& source) {
  if (source.class_id == 0) return absl::StrCat("root qdisc of ", source.interface);
  return absl::StrFormat("class %x:%x on %s", source.class_id >> 16, source.class_id & 0xffffU, source.interface);
}

}  // namespace

struct CounterReader::State {
  Socket socket;
  std::vector<CounterSource> sources;
  std::vector<int> interfaces;     // index of each source's interface
  std::set<int> class_interfaces;  // those whose classes are read
  bool need_qdiscs = false;
};

CounterReader::CounterReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
CounterReader::CounterReader(CounterReader&&) noexcept = default;
CounterReader& CounterReader::operator=(CounterReader&&) noexcept = default;
CounterReader::~CounterReader() = default;

absl::StatusOr<CounterReader> CounterReader::Open(const std::string& network_namespace, std::vector<CounterSource> sources) {
  auto state = std::make_unique<State>();
  state->sources = std::move(sources);
  TRANCHE_RETURN_IF_ERROR(RunInNamespace(network_namespace, [&]() -> absl::Status {
    state->socket.reset(nl_socket_alloc());
    if (state->socket == nullptr) return absl::ResourceExhaustedError("no memory for a netlink socket");
    if (const int code = nl_connect(state->socket.get(), NETLINK_ROUTE); code < 0) {
      return absl::UnavailableError(absl::StrCat("cannot open a netlink socket: ", nl_geterror(code)));
    }
    const timeval timeout{2, 0};
    setsockopt(nl_socket_get_fd(state->socket.get()), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    nl_socket_set_buffer_size(state->socket.get(), 1 << 20, 0);
    for (const CounterSource& source : state->sources) {
      const unsigned index = if_nametoindex(source.interface.c_str());
      if (index == 0) return absl::NotFoundError(absl::StrCat("no interface ", source.interface, " to read counters of"));
      state->interfaces.push_back(static_cast<int>(index));
      if (source.class_id == 0) {
        state->need_qdiscs = true;
      } else {
        state->class_interfaces.insert(static_cast<int>(index));
      }
    }
    return absl::OkStatus();
  }));
  return CounterReader(std::move(state));
}

absl::StatusOr<Sample> CounterReader::Read() {
  Entries entries;
  const auto before = std::chrono::steady_clock::now();
  for (const int interface : state_->class_interfaces) { TRANCHE_RETURN_IF_ERROR(Dump(state_->socket.get(), RTM_GETTCLASS, interface, entries)); }
  if (state_->need_qdiscs) TRANCHE_RETURN_IF_ERROR(Dump(state_->socket.get(), RTM_GETQDISC, 0, entries));
  Sample sample;
  sample.uncertainty = (std::chrono::steady_clock::now() - before) / 2;
  sample.at = before + sample.uncertainty;
  for (std::size_t i = 0; i < state_->sources.size(); ++i) {
    const auto entry = entries.find({state_->interfaces[i], state_->sources[i].class_id});
    if (entry == entries.end()) return absl::NotFoundError(absl::StrCat(Describe(state_->sources[i]), " is gone"));
    sample.values.push_back(entry->second.counters);
  }
  return sample;
}

absl::StatusOr<std::uint64_t> CounterReader::DirectPackets() {
  Entries entries;
  TRANCHE_RETURN_IF_ERROR(Dump(state_->socket.get(), RTM_GETQDISC, 0, entries));
  const std::set<int> interfaces(state_->interfaces.begin(), state_->interfaces.end());
  std::uint64_t sum = 0;
  for (const auto& [key, entry] : entries) {
    if (key.second == 0 && interfaces.contains(key.first)) sum += entry.direct_packets;
  }
  return sum;
}

absl::StatusOr<InterfaceBytes> ReadInterfaceBytes(const std::string& network_namespace, const std::string& interface) {
  InterfaceBytes bytes;
  TRANCHE_RETURN_IF_ERROR(RunInNamespace(network_namespace, [&]() -> absl::Status {
    std::ifstream file("/proc/thread-self/net/dev");
    for (std::string line; std::getline(file, line);) {
      const std::size_t colon = line.find(':');
      const std::size_t start = line.find_first_not_of(' ');
      if (colon == std::string::npos || line.substr(start, colon - start) != interface) continue;
      std::istringstream fields(line.substr(colon + 1));
      std::uint64_t ignored = 0;
      fields >> bytes.received;
      for (int i = 0; i < 7; ++i) fields >> ignored;
      fields >> bytes.sent;
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat("no interface ", interface, " in the network namespace ", network_namespace));
  }));
  return bytes;
}

}  // namespace tranche::proof
