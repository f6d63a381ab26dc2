#include "integration/vnic_harness.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>

namespace vnic_test {
namespace {

std::string Text(tranche_str text) { return std::string(text.data, text.size); }
tranche_str Borrow(const std::string& text) { return {text.data(), text.size()}; }
std::string ClaimOf(tranche_str key_json) { return std::string(json::parse(Text(key_json)).at("claimUID").as_string()); }

int OpenCurrent() {
  const int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (fd < 0) std::abort();
  return fd;
}

const tranche_backend_api* LoadBackend(const tranche_head* head) {
  // Never unloaded, as the host does it.
  static void* library = dlopen(TRANCHE_BINARY_DIRECTORY "/backends/vnic_tc.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto entry = reinterpret_cast<tranche_backend_entry>(dlsym(library, TRANCHE_BACKEND_ENTRY));
  return entry == nullptr ? nullptr : entry(head);
}

}  // namespace

}  // namespace vnic_test

// What one call of the host collects.
struct tranche_call {
  int code = 0;
  std::string message;
  std::vector<vnic_test::json::object> devices, shares;
  std::map<std::string, vnic_test::Outcome> results;
};

namespace vnic_test {

Namespace Namespace::Current() { return Namespace(OpenCurrent()); }
Namespace Namespace::New() {
  const Namespace here = Current();
  if (unshare(CLONE_NEWNET) != 0) std::abort();
  Namespace made(OpenCurrent());
  here.Enter();
  return made;
}
Namespace::Namespace(Namespace&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Namespace& Namespace::operator=(Namespace&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Namespace::~Namespace() {
  if (fd_ >= 0) close(fd_);
}
void Namespace::Enter() const {
  if (setns(fd_, CLONE_NEWNET) != 0) std::abort();
}
std::string Namespace::Path() const { return "/proc/self/fd/" + std::to_string(fd_); }
void Namespace::Run(const std::function<void()>& body) const {
  const Namespace here = Current();
  Enter();
  body();
  here.Enter();
}

Host::Host(const json::object& config, const std::string& runtime_directory) {
  api_.head = {sizeof api_, TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  api_.host = this;
  api_.log = [](void*, std::uint32_t, tranche_str) {};
  api_.now = [](void*) -> std::int64_t { return 1'700'000'000'000'000'000; };
  api_.report_health = [](void*, tranche_str) {};
  api_.devices_changed = [](void*) {};
  api_.share_lost = [](void* host, tranche_str key) {
    auto* self = static_cast<Host*>(host);
    const std::lock_guard lock(self->mutex_);
    self->lost_.push_back(ClaimOf(key));
  };
  api_.fail = [](tranche_call* call, tranche_code code, tranche_str message) {
    call->code = code;
    call->message = Text(message);
    return code;
  };
  api_.cancelled = [](tranche_call*) -> std::uint32_t { return 0; };
  api_.add_device = [](tranche_call* call, tranche_str device) { call->devices.push_back(json::parse(Text(device)).as_object()); };
  api_.add_share = [](tranche_call* call, tranche_str share) { call->shares.push_back(json::parse(Text(share)).as_object()); };
  api_.add_result = [](tranche_call* call, tranche_str key, tranche_code code, tranche_str message) {
    call->results[ClaimOf(key)] = {code, Text(message), {}};
  };
  backend_ = LoadBackend(&api_.head);
  if (backend_ == nullptr) {
    const char* reason = dlerror();
    error_ = std::string("vnic_tc.so does not load: ") + (reason != nullptr ? reason : "entry refused");
    return;
  }
  tranche_call call;
  const std::string text = json::serialize(json::object{{"schemaVersion", 1}, {"config", config}, {"runtimeDirectory", runtime_directory}});
  if (backend_->create(&api_, &call, Borrow(text), &instance_) != TRANCHE_OK) error_ = call.message;
}

Host::~Host() {
  if (instance_ != nullptr) backend_->destroy(instance_);
}

std::vector<json::object> Host::Discover() {
  tranche_call call;
  EXPECT_EQ(backend_->discover(instance_, &call), TRANCHE_OK) << call.message;
  return call.devices;
}

namespace {
std::string ListText(const std::vector<json::object>& shares) {
  json::array list;
  for (const json::object& share : shares) list.emplace_back(share);
  return json::serialize(json::object{{"schemaVersion", 1}, {"shares", list}});
}
}  // namespace

std::map<std::string, Outcome> Host::Prepare(const std::vector<json::object>& shares) {
  tranche_call call;
  EXPECT_EQ(backend_->prepare(instance_, &call, Borrow(ListText(shares))), TRANCHE_OK) << call.message;
  for (const json::object& share : call.shares) call.results[std::string(share.at("key").at("claimUID").as_string())].share = share;
  return call.results;
}

std::map<std::string, Outcome> Host::Unprepare(const std::vector<json::object>& shares) {
  tranche_call call;
  EXPECT_EQ(backend_->unprepare(instance_, &call, Borrow(ListText(shares))), TRANCHE_OK) << call.message;
  return call.results;
}

std::vector<json::object> Host::ListPrepared() {
  tranche_call call;
  EXPECT_EQ(backend_->list_prepared(instance_, &call), TRANCHE_OK) << call.message;
  return call.shares;
}

int Host::Verify(const json::object& share, json::object* found) {
  tranche_call call;
  const std::string text = json::serialize(json::object{{"schemaVersion", 1}, {"key", share.at("key")}, {"state", ""}});
  const int code = backend_->verify(instance_, &call, Borrow(text));
  if (!call.shares.empty() && found != nullptr) *found = call.shares[0];
  return code;
}

std::vector<std::string> Host::lost() {
  const std::lock_guard lock(mutex_);
  return lost_;
}

json::object ShareRequest(const std::string& claim, std::int64_t bits) {
  return {{"key", json::object{{"claimUID", claim},
                               {"request", "net"},
                               {"driver", "vnic.tranche.dev"},
                               {"pool", "node-1"},
                               {"device", "up0-shared"},
                               {"shareID", "5b1c0a52-0000-4000-8000-" + claim}}},
          {"physical", "up0"},
          {"mode", "share"},
          {"consumed", json::object{{"bandwidth", json::object{{"value", bits}, {"text", std::to_string(bits)}}}}},
          {"claim", json::object{{"namespace", "team-a"}, {"name", claim}, {"podUIDs", json::array{"pod-" + claim}}}}};
}

json::object Config(const std::string& bandwidth, const std::string& subnet) {
  return {{"parents", json::array{json::object{{"interface", "up0"}, {"bandwidth", bandwidth}, {"subnet", subnet}}}},
          {"attachHook", "/opt/tranche/vnic-attach"}};
}

World::World() : before_(Namespace::Current()), peer_(Namespace::New()) {
  char name[] = "/tmp/tranche-vnic-XXXXXX";
  if (mkdtemp(name) == nullptr) std::abort();
  directory_ = name;
  Namespace::New().Enter();
  socket_ = std::make_unique<vnic::Socket>(std::move(*vnic::Socket::Open()));
  for (const char* scope : {"all", "default"}) {  // neighbour discovery would be counted among the tests' frames
    const auto disable = [scope] { std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + scope + "/disable_ipv6") << "1"; };
    disable();
    peer_.Run(disable);
  }
  EXPECT_TRUE(vnic::CreateVeth(*socket_, {"up0", "wan0", {0x02, 0, 0, 0, 0, 1}, 1500, 0}).ok());
  EXPECT_TRUE(vnic::MoveToNamespace(*socket_, Link("wan0"), open(peer_.Path().c_str(), O_RDONLY | O_CLOEXEC), "wan0").ok());
  EXPECT_TRUE(vnic::SetAdminState(*socket_, Link("up0"), vnic::AdminState::kUp).ok());
  peer_.Run([] {
    vnic::Socket socket = std::move(*vnic::Socket::Open());
    const vnic::Link wan = *vnic::GetLink(socket, "wan0");
    EXPECT_TRUE(vnic::AddAddress(socket, wan, {(10U << 24) | (99U << 16) | 1U, 16}).ok());
    EXPECT_TRUE(vnic::SetAdminState(socket, wan, vnic::AdminState::kUp).ok());
  });
}

World::~World() {
  before_.Enter();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

vnic::Link World::Link(const std::string& name) {
  vnic::Result<vnic::Link> link = vnic::GetLink(*socket_, name);
  EXPECT_TRUE(link.ok()) << name;
  return link.ok() ? *link : vnic::Link{};
}
bool World::HasLink(const std::string& name) { return vnic::GetLink(*socket_, name).ok(); }

std::vector<std::string> World::LinksOfOurs() {
  std::vector<std::string> names;
  const vnic::Result<std::vector<vnic::Link>> links = vnic::ListLinks(*socket_, 0);
  for (const vnic::Link& link : links.value()) {
    if (link.group != 0) names.push_back(link.name);
  }
  return names;
}

bool World::HasRoot() { return (*vnic::Inspect(*socket_, "up0", "")).has_root; }
std::vector<vnic::TrafficClass> World::Classes() { return (*vnic::Inspect(*socket_, "up0", "")).classes; }

vnic::Status World::Attach(const json::object& share, const Namespace& pod, int patience_ms) {
  return vnic::Attach(AttachRequestOf(share), pod.Path(), std::chrono::milliseconds(patience_ms));
}

vnic::AttachRequest AttachRequestOf(const json::object& share) {
  std::vector<std::string> arguments;
  for (const json::value& argument : share.at("containerEdits").at("hooks").at(0).at("args").as_array()) arguments.emplace_back(argument.as_string());
  arguments.erase(arguments.begin());
  return *vnic::ParseAttachArguments(arguments);
}
std::string HostEndOf(const json::object& share) { return AttachRequestOf(share).host_end; }
std::uint32_t MinorOf(const json::object& share) { return json::parse(std::string(share.at("state").as_string())).at("minor").to_number<std::uint32_t>(); }
std::int64_t LimitOf(const json::object& share, const std::string& direction) {
  for (const json::value& limit : share.at("limits").as_array()) {
    if (limit.at("direction").as_string() == direction) return limit.at("inForce").as_int64();
  }
  return -1;
}
std::string NetworkText(const json::object& share) {
  return std::string(share.at("networkData").at("hardwareAddress").as_string()) + " " + std::string(share.at("networkData").at("ips").at(0).as_string());
}

}  // namespace vnic_test
