// What a tenant can do with all its means from inside its pod: nothing to its own limit, to another's class, to another's downlink. Counters of the
// kernel decide, never time. Each attempt runs without NET_RAW/NET_ADMIN, with NET_RAW, and with both.
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "integration/vnic_harness.h"

namespace vnic_test {
namespace {

constexpr std::int64_t kMega = 1'000'000;
constexpr int kFrames = 200;
constexpr std::uint32_t kPeer = (10U << 24) | (99U << 16) | 1U;

enum class Power { kNone, kRaw, kRawAndAdmin };

void KeepOnly(Power power) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (power != Power::kNone) data[0].effective |= 1U << CAP_NET_RAW;
  if (power == Power::kRawAndAdmin) data[0].effective |= 1U << CAP_NET_ADMIN;
  data[0].permitted = data[0].effective;
  if (syscall(SYS_capset, &header, data) != 0) _exit(90);
}

// Runs `body` in the pod as its tenant: a child process with just these powers. Its exit code comes back.
int AsTenant(const Namespace& pod, Power power, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    pod.Enter();
    KeepOnly(power);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

struct Frame {
  vnic::Mac destination{}, source{};
  std::uint16_t type = ETH_P_IP;
  std::vector<std::uint8_t> body = {};
};

std::vector<std::uint8_t> Ipv4Body(std::uint32_t source, std::uint32_t destination) {
  std::vector<std::uint8_t> body(200, 0);
  body[0] = 0x45;
  body[3] = 200;
  body[8] = 64;
  body[9] = 253;  // an experimental protocol: nobody answers it
  const std::uint32_t addresses[] = {htonl(source), htonl(destination)};
  std::memcpy(&body[12], addresses, sizeof addresses);
  std::uint32_t sum = 0;
  for (std::size_t word = 0; word < 20; word += 2) sum += static_cast<std::uint32_t>(body[word] << 8 | body[word + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  body[10] = static_cast<std::uint8_t>(~sum >> 8 & 0xff);
  body[11] = static_cast<std::uint8_t>(~sum & 0xff);
  return body;
}

std::vector<std::uint8_t> ArpBody(const vnic::Mac& mac, std::uint32_t sender, std::uint32_t target) {
  std::vector<std::uint8_t> body = {0, 1, 8, 0, 6, 4, 0, 2};
  const auto append = [&](const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    body.insert(body.end(), bytes, bytes + size);
  };
  const std::uint32_t sender_network = htonl(sender), target_network = htonl(target);
  append(mac.data(), mac.size());
  append(&sender_network, 4);
  append(mac.data(), mac.size());
  append(&target_network, 4);
  body.resize(46);
  return body;
}

// Sends the frame `count` times from `interface` in the calling namespace, with a priority. 0: sent.
int SendFrames(const char* interface, const Frame& frame, int count, std::uint32_t priority) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  if (fd < 0) return 1;
  if (priority != 0) (void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
  std::vector<std::uint8_t> bytes(14);
  std::memcpy(bytes.data(), frame.destination.data(), 6);
  std::memcpy(bytes.data() + 6, frame.source.data(), 6);
  bytes[12] = static_cast<std::uint8_t>(frame.type >> 8);
  bytes[13] = static_cast<std::uint8_t>(frame.type & 0xff);
  bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
  vnic::Result<vnic::Socket> netlink = vnic::Socket::Open();
  const vnic::Result<vnic::Link> link = vnic::GetLink(*netlink, interface);
  if (!link.ok()) return 2;
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = link->index;
  to.sll_halen = 6;
  for (int index = 0; index < count; ++index) {
    if (sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0) return 3;
  }
  close(fd);
  return 0;
}

// UDP from the pod's own stack to the peer, with a priority where the tenant may set one.
int SendUdp(int count, std::uint32_t priority, std::uint32_t source, unsigned pause_microseconds = 2000) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return 1;
  if (priority != 0) (void)setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof priority);
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(source);
  to.sin_addr.s_addr = htonl(kPeer);
  to.sin_port = htons(9);
  if (source != 0 && bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) return 2;
  const char text[400] = {};
  for (int index = 0; index < count; ++index) {
    (void)sendto(fd, text, sizeof text, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (index % 50 == 49) usleep(pause_microseconds);
  }
  close(fd);
  return 0;
}

class VnicIsolation : public testing::TestWithParam<Power> {
 protected:
  void SetUp() override {
    VNIC_NEEDS_ROOT();
    world_ = std::make_unique<World>();
    host_ = std::make_unique<Host>(Config("1G"), world_->directory());
    ASSERT_TRUE(host_->created()) << host_->error();
    for (const char* claim : {"a", "b"}) {
      const Outcome outcome = host_->Prepare({ShareRequest(claim, 100 * kMega)}).at(claim);
      ASSERT_EQ(outcome.code, TRANCHE_OK) << outcome.message;
      shares_.push_back(outcome.share);
      requests_.push_back(AttachRequestOf(outcome.share));
      pods_.push_back(Namespace::New());
      ASSERT_TRUE(world_->Attach(outcome.share, pods_.back()).ok());
    }
    world_->peer().Run([this] { peer_mac_ = vnic::GetLink(*vnic::Socket::Open(), "wan0")->mac; });
    ASSERT_EQ(AsTenant(pods_[0], Power::kRaw, [] { return SendUdp(1, 0, 0); }), 0);  // learns the peer's address
    ASSERT_TRUE(WaitUntil([this] { return Packets(ClassOf(0)) >= 2; }));             // the ARP request and what waited for its answer
  }
  vnic::Mac MacOf(int pod) const { return requests_[static_cast<std::size_t>(pod)].mac; }
  std::uint32_t AddressOf(int pod) const { return requests_[static_cast<std::size_t>(pod)].address.address; }
  const Namespace& Pod(int pod) const { return pods_[static_cast<std::size_t>(pod)]; }
  std::uint32_t ClassOf(int pod) const { return vnic::kMajor | MinorOf(shares_[static_cast<std::size_t>(pod)]); }

  static bool WaitUntil(const std::function<bool()>& condition) {
    for (int tries = 0; tries < 500 && !condition(); ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  }
  static void Settle() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }
  std::uint64_t Packets(std::uint32_t handle) { return vnic::GetClass(world_->socket(), world_->Link("up0").index, handle)->counters.packets; }
  std::uint64_t DirectPackets() { return (**vnic::GetRoot(world_->socket(), world_->Link("up0").index)).direct_packets; }
  // Frames that pod's own root qdisc on the host end let through to it.
  std::uint64_t Delivered(int pod) {
    return (**vnic::GetRoot(world_->socket(), world_->Link(requests_[static_cast<std::size_t>(pod)].host_end).index)).counters.packets;
  }
  void ExpectFrames(const char* what, const Frame& frame, std::uint64_t passed) {
    SCOPED_TRACE(what);
    const std::uint64_t own = Packets(ClassOf(0)), other = Packets(ClassOf(1)), rest = Packets(vnic::kDefaultClass), neighbour = Delivered(1);
    const int sent = AsTenant(Pod(0), GetParam(), [&] { return SendFrames("net1", frame, kFrames, ClassOf(1)); });
    EXPECT_EQ(sent, GetParam() == Power::kNone ? 1 : 0);
    Settle();
    if (GetParam() == Power::kNone || passed == 0) {
      EXPECT_LE(Packets(ClassOf(0)) - own, 3U);  // the pod's own ARP
    } else {
      EXPECT_TRUE(WaitUntil([&] { return Packets(ClassOf(0)) - own >= passed; }));
    }
    EXPECT_EQ(Packets(ClassOf(1)), other);
    EXPECT_LE(Packets(vnic::kDefaultClass) - rest, 1U);
    EXPECT_EQ(DirectPackets(), 0U);
    EXPECT_LE(Delivered(1) - neighbour, 3U);
  }

  std::unique_ptr<World> world_;
  std::unique_ptr<Host> host_;
  std::vector<json::object> shares_;
  std::vector<vnic::AttachRequest> requests_;
  std::vector<Namespace> pods_;
  vnic::Mac peer_mac_{};
};

TEST_P(VnicIsolation, APriorityDoesNotChooseAnotherClass) {
  const std::uint64_t own = Packets(ClassOf(0)), other = Packets(ClassOf(1)), root = Packets(vnic::kDefaultClass);
  for (const std::uint32_t priority : {ClassOf(1), vnic::kRootClass, vnic::kDefaultClass, vnic::kMajor}) {
    EXPECT_EQ(AsTenant(Pod(0), GetParam(), [&] { return SendUdp(kFrames, priority, 0); }), 0);
  }
  EXPECT_TRUE(WaitUntil([&] { return Packets(ClassOf(0)) - own >= 4U * kFrames / 2; }));
  EXPECT_EQ(Packets(ClassOf(1)), other);
  EXPECT_LE(Packets(vnic::kDefaultClass) - root, 2U);
  EXPECT_EQ(DirectPackets(), 0U);
}

TEST_P(VnicIsolation, FramesPassOnlyWithTheOwnAddresses) {
  const std::uint32_t stranger = (10U << 24) | (99U << 16) | 77U;
  ExpectFrames("own MAC and IP, another's priority", {peer_mac_, MacOf(0), ETH_P_IP, Ipv4Body(AddressOf(0), kPeer)}, kFrames);
  ExpectFrames("neighbour's MAC", {peer_mac_, MacOf(1), ETH_P_IP, Ipv4Body(AddressOf(0), kPeer)}, 0);
  ExpectFrames("neighbour's MAC and IP", {peer_mac_, MacOf(1), ETH_P_IP, Ipv4Body(AddressOf(1), kPeer)}, 0);
  ExpectFrames("neighbour's IP", {peer_mac_, MacOf(0), ETH_P_IP, Ipv4Body(AddressOf(1), kPeer)}, 0);
  ExpectFrames("nobody's IP", {peer_mac_, MacOf(0), ETH_P_IP, Ipv4Body(stranger, kPeer)}, 0);
  ExpectFrames("ARP with the neighbour's IP", {peer_mac_, MacOf(0), ETH_P_ARP, ArpBody(MacOf(0), AddressOf(1), kPeer)}, 0);
  ExpectFrames("ARP with the neighbour's MAC inside", {peer_mac_, MacOf(0), ETH_P_ARP, ArpBody(MacOf(1), AddressOf(0), kPeer)}, 0);
  ExpectFrames("own ARP", {peer_mac_, MacOf(0), ETH_P_ARP, ArpBody(MacOf(0), AddressOf(0), kPeer)}, kFrames);
  ExpectFrames("IPv6", {peer_mac_, MacOf(0), ETH_P_IPV6, std::vector<std::uint8_t>(60, 0)}, 0);
  std::vector<std::uint8_t> tagged = {0, 7, 8, 0};
  const std::vector<std::uint8_t> inner = Ipv4Body(AddressOf(0), kPeer);
  tagged.insert(tagged.end(), inner.begin(), inner.end());
  ExpectFrames("VLAN tag", {peer_mac_, MacOf(0), ETH_P_8021Q, tagged}, 0);
  ExpectFrames("to the neighbour on the same bridge", {MacOf(1), MacOf(0), ETH_P_IP, Ipv4Body(AddressOf(0), AddressOf(1))}, 0);
}

TEST_P(VnicIsolation, ASpoofedMacDoesNotTakeTheNeighboursDownlink) {
  const int spoofed = AsTenant(Pod(0), GetParam(), [&] {
    return SendFrames("net1", {peer_mac_, MacOf(1), ETH_P_IP, Ipv4Body(AddressOf(1), kPeer)}, kFrames, 0);
  });
  EXPECT_EQ(spoofed, GetParam() == Power::kNone ? 1 : 0);
  const std::uint64_t mine = Delivered(0), neighbours = Delivered(1);
  world_->peer().Run([&] { EXPECT_EQ(SendFrames("wan0", {MacOf(1), peer_mac_, ETH_P_IP, Ipv4Body(kPeer, AddressOf(1))}, 100, 0), 0); });
  EXPECT_TRUE(WaitUntil([&] { return Delivered(1) - neighbours >= 100U; }));
  EXPECT_LE(Delivered(0) - mine, 3U);
}

TEST_P(VnicIsolation, WhatATenantDoesToItsOwnEndChangesNoLimit) {
  const auto act = [&] {
    vnic::Socket socket = std::move(*vnic::Socket::Open());
    const vnic::Result<vnic::Link> link = vnic::GetLink(socket, "net1");
    if (!link.ok()) return 50;
    int done = 0;
    if (vnic::SetTbf(socket, link->index, 1'000'000'000, 1500).ok()) done |= 1;
    if (vnic::AddAddress(socket, *link, {AddressOf(1), 24}).ok()) done |= 2;
    if (vnic::SetMacAndMtu(socket, *link, link->mac, 9000).ok()) done |= 4;
    return done;
  };
  const int done = AsTenant(Pod(0), GetParam(), act);
  EXPECT_EQ(done, GetParam() == Power::kRawAndAdmin ? 7 : 0);
  json::object found;
  ASSERT_EQ(host_->Verify(shares_[0], &found), TRANCHE_OK);
  EXPECT_EQ(found.at("applied").as_string(), "complete");
  EXPECT_EQ(LimitOf(found, "egress"), 100 * kMega);
  EXPECT_EQ(LimitOf(found, "ingress"), 100 * kMega);
  // The address it gave itself is of no use, whether it could take it or not.
  const std::uint64_t own = Packets(ClassOf(0)), other = Packets(ClassOf(1));
  (void)AsTenant(Pod(0), GetParam(), [&] { return SendUdp(kFrames, 0, AddressOf(1)); });
  Settle();
  EXPECT_LE(Packets(ClassOf(0)) - own, 3U);
  EXPECT_EQ(Packets(ClassOf(1)), other);
}

// A flood beyond the limit is dropped by the kernel and charged to its own class alone.
TEST_P(VnicIsolation, AFloodIsDroppedAndChargedToItsOwnClass) {
  const std::uint64_t other = Packets(ClassOf(1));
  const auto flood = [&] {
    int result = 0;
    for (int round = 0; round < 40 && result == 0; ++round) result = SendUdp(kFrames, ClassOf(1), 0, 0);
    return result;
  };
  EXPECT_EQ(AsTenant(Pod(0), GetParam(), flood), 0);
  Settle();
  json::object found;
  ASSERT_EQ(host_->Verify(shares_[0], &found), TRANCHE_OK);
  EXPECT_GT(found.at("usage").at(0).at("overlimits").to_number<std::uint64_t>(), 0U);
  EXPECT_EQ(Packets(ClassOf(1)), other);
}

INSTANTIATE_TEST_SUITE_P(Powers, VnicIsolation, testing::Values(Power::kNone, Power::kRaw, Power::kRawAndAdmin), [](const auto& instance) {
  return std::string(instance.param == Power::kNone ? "WithoutCapabilities" : instance.param == Power::kRaw ? "NetRaw" : "NetRawAndNetAdmin");
});

}  // namespace
}  // namespace vnic_test
