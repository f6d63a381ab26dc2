// Watches link events: a host end that vanished without our doing (its pod's network namespace died) and uplinks that come and go. One thread, joined
// by the destructor. Callbacks run on that thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "plugins/vnic_tc/kernel/identity.h"
#include "plugins/vnic_tc/kernel/netlink.h"

namespace vnic {

class Monitor {
 public:
  struct Events {
    std::function<void(const Identity&)> share_lost;
    std::function<void()> uplinks_changed;
  };
  static Result<std::unique_ptr<Monitor>> Start(std::set<std::string> uplinks, Events events);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  void Watch(const Identity& identity);      // applied now
  void Forget(const std::string& host_end);  // about to be deleted by us

 private:
  Monitor(Socket socket, int stop, std::set<std::string> uplinks, Events events);
  void Loop();
  void Handle(const nlmsghdr* header);
  void Lost(const std::string& host_end);
  void Compare();  // events were lost: look which of the watched are gone

  Socket socket_;
  const int stop_;
  const std::set<std::string> uplinks_;
  const Events events_;
  std::mutex mutex_;
  std::map<std::string, Identity> watched_;  // by host end
  std::map<std::string, int> seen_uplinks_;  // their index; the monitor's thread only
  std::thread thread_;
};

}  // namespace vnic
