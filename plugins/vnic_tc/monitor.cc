#include "plugins/vnic_tc/monitor.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugins/vnic_tc/kernel/links.h"

namespace vnic {

Result<std::unique_ptr<Monitor>> Monitor::Start(std::set<std::string> uplinks, Events events) {
  Result<Socket> socket = Socket::OpenMonitor(RTNLGRP_LINK);
  if (!socket.ok()) return socket.failure();
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) return Failure{TRANCHE_UNAVAILABLE, std::string("eventfd: ") + std::strerror(errno), errno};
  return std::unique_ptr<Monitor>(new Monitor(std::move(*socket), stop, std::move(uplinks), std::move(events)));
}

Monitor::Monitor(Socket socket, int stop, std::set<std::string> uplinks, Events events)
    : socket_(std::move(socket)), stop_(stop), uplinks_(std::move(uplinks)), events_(std::move(events)) {
  thread_ = std::thread([this] { Loop(); });
}

Monitor::~Monitor() {
  const std::uint64_t one = 1;
  (void)!write(stop_, &one, sizeof one);
  thread_.join();
  close(stop_);
}

void Monitor::Watch(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  watched_[HostEndName(identity)] = identity;
}

void Monitor::Forget(const std::string& host_end) {
  const std::lock_guard lock(mutex_);
  watched_.erase(host_end);
}

void Monitor::Loop() {
  while (true) {
    pollfd descriptors[] = {{stop_, POLLIN, 0}, {socket_.fd(), POLLIN, 0}};
    if (poll(descriptors, 2, -1) < 0 && errno != EINTR) return;
    if (descriptors[0].revents != 0) return;
    if (descriptors[1].revents == 0) continue;
    bool more = true;
    while (more) {
      Result<bool> received = socket_.Receive([this](const nlmsghdr* header) { Handle(header); });
      more = received.ok() && *received;
      if (!received.ok()) Compare();
    }
  }
}

void Monitor::Handle(const nlmsghdr* header) {
  if (header->nlmsg_type != RTM_DELLINK && header->nlmsg_type != RTM_NEWLINK) return;
  const auto* info = static_cast<const ifinfomsg*>(nlmsg_data(const_cast<nlmsghdr*>(header)));
  if (info->ifi_family != AF_UNSPEC) return;  // a bridge reports its ports under its own family
  const Link link = ParseLink(header);
  if (uplinks_.contains(link.name)) {
    const auto seen = seen_uplinks_.find(link.name);
    const bool gone = header->nlmsg_type == RTM_DELLINK;
    if (gone || (seen != seen_uplinks_.end() && seen->second != link.index)) events_.uplinks_changed();
    if (gone) {
      seen_uplinks_[link.name] = 0;
    } else {
      seen_uplinks_[link.name] = link.index;
    }
  }
  if (header->nlmsg_type == RTM_DELLINK && IsHostEndName(link.name)) Lost(link.name);
}

void Monitor::Lost(const std::string& host_end) {
  std::optional<Identity> identity;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(host_end);
    if (found == watched_.end()) return;
    identity = found->second;
    watched_.erase(found);
  }
  events_.share_lost(*identity);
}

void Monitor::Compare() {
  Result<Socket> socket = Socket::Open();
  if (!socket.ok()) return;
  Result<std::vector<Link>> links = ListLinks(*socket, 0);
  if (!links.ok()) return;
  std::set<std::string> present;
  for (const Link& link : *links) present.insert(link.name);
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, identity] : watched_) {
      if (!present.contains(name)) gone.push_back(name);
    }
  }
  for (const std::string& name : gone) Lost(name);
  events_.uplinks_changed();
}

}  // namespace vnic
