#include "proof/probe.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "base/status.h"
#include "proof/netns.h"

namespace tranche::proof {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLinger(200);

std::int64_t WallNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::uint16_t Checksum(const unsigned char* data, std::size_t size) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < size; i += 2) sum += static_cast<std::uint32_t>(data[i] << 8 | data[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffffU) + (sum >> 16);
  return htons(static_cast<std::uint16_t>(~sum & 0xffffU));
}

class Prober {
 public:
  Prober(int socket, sockaddr_in peer) : socket_(socket), peer_(peer) {
    if (getrandom(&identity_, sizeof identity_, 0) != sizeof identity_) identity_ = static_cast<std::uint16_t>(::getpid());
  }

  void Send() {
    unsigned char packet[sizeof(icmphdr) + 56] = {};
    icmphdr header{};
    header.type = ICMP_ECHO;
    header.un.echo.id = identity_;
    header.un.echo.sequence = htons(sequence_);
    std::memcpy(packet, &header, sizeof header);
    header.checksum = Checksum(packet, sizeof packet);
    std::memcpy(packet, &header, sizeof header);
    sent_at_[sequence_++] = WallNanoseconds();
    ++sent_;
    // An error is a lost probe and shows as one.
    static_cast<void>(sendto(socket_, packet, sizeof packet, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&peer_), sizeof peer_));
  }

  // Takes every answer that has arrived.
  void Receive() {
    while (ReceiveOne()) {}
  }

  bool AllAnswered() const { return sent_at_.empty(); }
  Latency Result() { return Summarise(std::move(round_trips_ms_), sent_); }

 private:
  bool ReceiveOne() {
    unsigned char packet[512];
    alignas(cmsghdr) char control[128];
    iovec part{packet, sizeof packet};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(socket_, &message, MSG_DONTWAIT);
    if (size < 0) return false;
    const std::int64_t arrived = ArrivalTime(message);
    const std::size_t offset = static_cast<std::size_t>(packet[0] & 0x0f) * 4;
    if (static_cast<std::size_t>(size) < offset + sizeof(icmphdr)) return true;
    icmphdr header{};
    std::memcpy(&header, packet + offset, sizeof header);
    if (header.type != ICMP_ECHOREPLY || header.un.echo.id != identity_) return true;
    const auto sent = sent_at_.find(ntohs(header.un.echo.sequence));
    if (sent == sent_at_.end()) return true;
    round_trips_ms_.push_back(static_cast<double>(arrived - sent->second) / 1e6);
    sent_at_.erase(sent);
    return true;
  }

  static std::int64_t ArrivalTime(msghdr& message) {
    for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
      if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec time{};
      std::memcpy(&time, CMSG_DATA(item), sizeof time);
      return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    }
    return WallNanoseconds();
  }

  int socket_;
  sockaddr_in peer_;
  std::uint16_t identity_ = 0, sequence_ = 0;
  std::size_t sent_ = 0;
  std::map<std::uint16_t, std::int64_t> sent_at_;
  std::vector<double> round_trips_ms_;
};

void WaitReadable(int socket, Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count();
  if (left <= 0) return;
  pollfd item{socket, POLLIN, 0};
  const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
  static_cast<void>(ppoll(&item, 1, &timeout, nullptr));
}

Latency RunProbe(int socket, const sockaddr_in& peer, std::chrono::milliseconds duration, std::chrono::microseconds interval) {
  sched_param parameter{};
  parameter.sched_priority = 1;
  static_cast<void>(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter));  // a late sender only spreads the probes
  Prober prober(socket, peer);
  const auto end = Clock::now() + duration;
  for (auto next = Clock::now(); next < end;) {
    prober.Send();
    for (next += interval; Clock::now() < next;) {
      WaitReadable(socket, next);
      prober.Receive();
    }
  }
  const auto last = Clock::now() + kLinger;
  while (!prober.AllAnswered() && Clock::now() < last) {
    WaitReadable(socket, last);
    prober.Receive();
  }
  return prober.Result();
}

}  // namespace

double Percentile(const std::vector<double>& sorted_ms, double fraction) {
  if (sorted_ms.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sorted_ms.size())));
  return sorted_ms[std::clamp<std::size_t>(rank, 1, sorted_ms.size()) - 1];
}

Latency Summarise(std::vector<double> round_trips_ms, std::size_t sent) {
  std::sort(round_trips_ms.begin(), round_trips_ms.end());
  return {Percentile(round_trips_ms, 0.50), Percentile(round_trips_ms, 0.99), round_trips_ms.empty() ? 0 : round_trips_ms.back(), sent,
          sent - std::min(sent, round_trips_ms.size())};
}

absl::StatusOr<Latency> ProbeLatency(const std::string& network_namespace, const std::string& address, std::chrono::milliseconds duration,
                                     std::chrono::microseconds interval) {
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &peer.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no IPv4 address to probe"));
  }
  Latency result;
  TRANCHE_RETURN_IF_ERROR(RunInNamespace(network_namespace, [&]() -> absl::Status {
    const int socket_fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    if (socket_fd < 0) { return absl::PermissionDeniedError(absl::StrCat("cannot open a raw ICMP socket: ", std::strerror(errno), "; run as root")); }
    const int on = 1;
    setsockopt(socket_fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    result = RunProbe(socket_fd, peer, duration, interval);
    close(socket_fd);
    return absl::OkStatus();
  }));
  if (result.sent > 0 && result.lost == result.sent) {
    return absl::UnavailableError(absl::StrCat("no answer from ", address, " to ", result.sent, " probes from the namespace ", network_namespace));
  }
  return result;
}

}  // namespace tranche::proof
