// A host for vnic_tc.so as small as can be: loads the real file through its one symbol, collects what it pushes. And namespaces to test in.
// Every test runs in network namespaces of its own and needs root.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "plugins/vnic_tc/attach/attach.h"
#include "plugins/vnic_tc/kernel/uplink.h"
#include "tranche/backend.h"

namespace vnic_test {

namespace json = boost::json;

// A network namespace held open by a descriptor. Enter() moves the calling thread.
class Namespace {
 public:
  static Namespace New();  // made; the calling thread stays where it is
  static Namespace Current();
  Namespace(Namespace&& other) noexcept;
  Namespace& operator=(Namespace&& other) noexcept;
  ~Namespace();
  void Enter() const;
  std::string Path() const;  // of this process
  // Runs `body` inside and returns.
  void Run(const std::function<void()>& body) const;

 private:
  explicit Namespace(int fd) : fd_(fd) {}
  int fd_;
};

// The outcome of one key.
struct Outcome {
  int code = -1;
  std::string message;
  json::object share;  // what was added for it, if anything
};

class Host {
 public:
  // Loads the backend built beside the tests.
  Host(const json::object& config, const std::string& runtime_directory);
  ~Host();
  bool created() const { return instance_ != nullptr; }
  const std::string& error() const { return error_; }

  std::vector<json::object> Discover();
  std::map<std::string, Outcome> Prepare(const std::vector<json::object>& shares);  // by claim UID
  std::map<std::string, Outcome> Unprepare(const std::vector<json::object>& shares);
  std::vector<json::object> ListPrepared();
  int Verify(const json::object& share, json::object* found);
  std::vector<std::string> lost();  // claim UIDs

 private:
  struct Sink;
  tranche_host_api api_{};
  const tranche_backend_api* backend_ = nullptr;
  tranche_instance* instance_ = nullptr;
  std::string error_;
  std::mutex mutex_;
  std::vector<std::string> lost_;
};

// A prepare request: claim UID `claim`, share on device "up0".
json::object ShareRequest(const std::string& claim, std::int64_t bits);
json::object Config(const std::string& bandwidth, const std::string& subnet = "10.99.0.0/24");

// The world of one test: a host namespace (the calling thread's from now on) with uplink up0, a peer namespace behind it with wan0 10.99.0.1.
class World {
 public:
  World();
  ~World();
  const std::string& directory() const { return directory_; }
  const Namespace& peer() const { return peer_; }
  vnic::Socket& socket() { return *socket_; }
  vnic::Link Link(const std::string& name);
  bool HasLink(const std::string& name);
  std::vector<std::string> LinksOfOurs();     // bridges and share ends
  std::vector<vnic::TrafficClass> Classes();  // of shares on up0
  bool HasRoot();
  // vnic-attach for what a prepare answered.
  vnic::Status Attach(const json::object& share, const Namespace& pod, int patience_ms = 5000);

 private:
  Namespace before_;
  Namespace peer_;
  std::string directory_;
  std::unique_ptr<vnic::Socket> socket_;
};

vnic::AttachRequest AttachRequestOf(const json::object& share);
std::string HostEndOf(const json::object& share);
std::uint32_t MinorOf(const json::object& share);
std::int64_t LimitOf(const json::object& share, const std::string& direction);
std::string NetworkText(const json::object& share);  // "mac ip"

inline bool IsRoot();

}  // namespace vnic_test

#include <unistd.h>
inline bool vnic_test::IsRoot() { return geteuid() == 0; }

#define VNIC_NEEDS_ROOT() \
  if (!vnic_test::IsRoot()) GTEST_SKIP() << "needs root: makes network namespaces and traffic control"
