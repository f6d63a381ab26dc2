// A backend without hardware: N devices with memory and bandwidth, prepared shares as files in the runtime directory (so that list_prepared
// survives a restart), and failures that the configuration asks for. For tests and benchmarks.
//
//   devices        how many (default 1)
//   devicesFile    a file that says how many instead; when it is written, the host is told that devices changed
//   enforcement    of its capacities (default "strong")
//   serial         what the devices' UUIDs and silicon begin with (default "NULL"): two backends on one node have different hardware
//   env            container environment edits of every share, "NAME=value"
//   failPrepare    a canonical code: every prepare of failDevices (all when empty) fails with it
//   failUnprepare  the same for unprepare
//   failCreate     the constructor throws
//   slowMs         each prepare and unprepare takes so long, or until the deadline
//   lieLimit       reports twice the requested limit as in force
//   badJson        pushes shares that are no JSON
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tranche/backend.hpp>

namespace {

namespace sdk = tranche::sdk;
namespace json = boost::json;

// A file name from any key: FNV-1a over its JSON.
std::string FileName(const sdk::Key& key) {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : json::serialize(sdk::ToJson(key))) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char text[32];
  std::snprintf(text, sizeof text, "%016llx.share", static_cast<unsigned long long>(hash));
  return text;
}

std::int64_t Number(const json::object& config, std::string_view name, std::int64_t fallback) {
  const json::value* value = config.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : fallback;
}
bool Flag(const json::object& config, std::string_view name) {
  const json::value* value = config.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}
std::vector<std::string> Texts(const json::object& config, std::string_view name) {
  std::vector<std::string> texts;
  const json::value* value = config.if_contains(name);
  if (value == nullptr || !value->is_array()) return texts;
  for (const json::value& item : value->get_array()) {
    if (item.is_string()) texts.emplace_back(item.get_string());
  }
  return texts;
}

// A file with a number of devices; its own thread tells the host of every writing, and sleeps in between.
class DevicesFile {
 public:
  DevicesFile(std::string path, sdk::Host host) : path_(std::move(path)), host_(host), inotify_(::inotify_init1(IN_CLOEXEC)), end_(::eventfd(0, EFD_CLOEXEC)) {
    if (inotify_ < 0 || end_ < 0 || ::inotify_add_watch(inotify_, path_.c_str(), IN_CLOSE_WRITE) < 0) {
      Close();
      throw sdk::Error(TRANCHE_NOT_FOUND, "devicesFile " + path_ + " cannot be watched");
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~DevicesFile() {
    ::eventfd_write(end_, 1);
    thread_.join();
    Close();
  }
  DevicesFile(const DevicesFile&) = delete;
  DevicesFile& operator=(const DevicesFile&) = delete;

  std::int64_t Count() const {
    std::int64_t count = -1;
    if (!(std::ifstream(path_) >> count) || count < 0) throw sdk::Error(TRANCHE_UNAVAILABLE, "devicesFile " + path_ + " holds no number");
    return count;
  }

 private:
  void Run() const {
    for (;;) {
      pollfd sources[] = {{end_, POLLIN, 0}, {inotify_, POLLIN, 0}};
      if (::poll(sources, 2, -1) < 0 && errno != EINTR) return;
      if (sources[0].revents != 0) return;
      char events[4096];
      if (sources[1].revents != 0 && ::read(inotify_, events, sizeof events) > 0) host_.DevicesChanged();
    }
  }
  void Close() const {
    if (inotify_ >= 0) ::close(inotify_);
    if (end_ >= 0) ::close(end_);
  }

  const std::string path_;
  const sdk::Host host_;
  const int inotify_, end_;
  std::thread thread_;
};

class NullBackend {
 public:
  static constexpr const char* kName = "null_backend";
  static constexpr const char* kVersion = "1.0.0";
  static constexpr bool kConcurrent = true;

  NullBackend(sdk::Host host, const json::object& config, const std::string& runtime_directory) : host_(host), config_(config), directory_(runtime_directory) {
    if (Flag(config, "failCreate")) throw sdk::Error(TRANCHE_UNAVAILABLE, "the configuration asks create to fail");
    if (const json::value* level = config.if_contains("enforcement")) enforcement_ = std::string(level->as_string());
    if (const json::value* serial = config.if_contains("serial")) serial_ = std::string(serial->as_string());
    if (const json::value* path = config.if_contains("devicesFile")) watch_.emplace(std::string(path->as_string()), host_);
  }

  std::vector<sdk::Device> Discover(sdk::Call&) {
    std::vector<sdk::Device> devices;
    const std::int64_t count = watch_.has_value() ? watch_->Count() : Number(config_, "devices", 1);
    for (std::int64_t index = 0; index < count; ++index) {
      const std::string name = "null-" + std::to_string(index);
      sdk::Device device;
      device.name = name;
      device.identity["uuid"] = serial_ + "-" + std::to_string(index);
      device.silicon = sdk::Silicon{device.identity["uuid"], {{"slice", 8}}, {{"slice", 8}}};
      device.modes = {"whole", "share"};
      device.attributes = {{"model", std::string("Null")}, {"index", index}, {"driverVersion", sdk::Version{"1.0.0"}}};
      device.capacities["memory"] = {85899345920, "80Gi", "bytes", true, enforcement_, {}, {}};
      device.capacities["bandwidth"] = {100000000000, "100G", "bitsPerSecond", true, enforcement_, {}, {}};
      device.metadata = {"model", "index"};
      devices.push_back(std::move(device));
    }
    return devices;
  }

  sdk::Share PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request) {
    Wait(call);
    FailIfAsked("failPrepare", request.physical);
    if (!request.physical.starts_with("null-")) throw sdk::Error(TRANCHE_NOT_FOUND, "there is no device " + request.physical);
    sdk::Share share;
    share.key = request.key;
    for (const auto& [name, amount] : request.consumed) {
      const std::int64_t in_force = Flag(config_, "lieLimit") ? amount.value * 2 : amount.value;
      share.limits.push_back({name, "", amount.value, in_force, enforcement_, host_.Now(), "null"});
      share.usage.push_back({name, "", 0, 0, 0, std::nullopt});
    }
    share.edits.env = Texts(config_, "env");
    share.state = request.physical;
    Store(share);
    if (Flag(config_, "badJson")) {
      host_.api()->add_share(call.raw(), {"{\"key\"", 6});
      share.applied = "\xff no such state";  // and the share itself is neither UTF-8 nor of the schema
    }
    return share;
  }

  void UnprepareOne(sdk::Call& call, const sdk::ShareRef& share) {
    Wait(call);
    FailIfAsked("failUnprepare", share.state);
    const std::lock_guard lock(mutex_);
    memory_.erase(share.key);
    if (!directory_.empty()) std::filesystem::remove(Path(share.key));
  }

  std::vector<sdk::Share> ListPrepared(sdk::Call&) {
    const std::lock_guard lock(mutex_);
    std::vector<sdk::Share> shares;
    if (directory_.empty()) {
      for (const auto& [key, share] : memory_) shares.push_back(share);
      return shares;
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().extension() == ".share") shares.push_back(Load(entry.path()));
    }
    return shares;
  }

  sdk::Share Verify(sdk::Call&, const sdk::ShareRef& reference) {
    const std::lock_guard lock(mutex_);
    if (directory_.empty()) {
      const auto found = memory_.find(reference.key);
      if (found != memory_.end()) return found->second;
    } else if (std::filesystem::exists(Path(reference.key))) {
      return Load(Path(reference.key));
    }
    throw sdk::Error(TRANCHE_NOT_FOUND, "nothing is prepared for claim " + reference.key.claim_uid);
  }

 private:
  std::filesystem::path Path(const sdk::Key& key) const { return std::filesystem::path(directory_) / FileName(key); }

  void Wait(sdk::Call& call) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(Number(config_, "slowMs", 0));
    while (std::chrono::steady_clock::now() < until) {
      call.ThrowIfCancelled();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void FailIfAsked(const char* what, const std::string& physical) const {
    const std::int64_t code = Number(config_, what, 0);
    const std::vector<std::string> devices = Texts(config_, "failDevices");
    if (code == 0 || (!devices.empty() && std::find(devices.begin(), devices.end(), physical) == devices.end())) return;
    throw sdk::Error(static_cast<tranche_code>(code), std::string("the configuration asks for ") + what + " on device " + physical);
  }

  void Store(const sdk::Share& share) {
    const std::lock_guard lock(mutex_);
    memory_[share.key] = share;
    if (directory_.empty()) return;
    const std::filesystem::path path = Path(share.key);
    const std::filesystem::path part = path.string() + ".part";
    std::ofstream(part) << json::serialize(sdk::ToJson(share));
    std::filesystem::rename(part, path);
  }

  static sdk::Share Load(const std::filesystem::path& path) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const json::value value = json::parse(text);
    sdk::Share share;
    share.key = sdk::KeyFrom(value.at("key"));
    for (const json::value& limit : value.at("limits").as_array()) {
      share.limits.push_back({std::string(limit.at("capacity").as_string()), "", limit.at("requested").as_int64(), limit.at("inForce").as_int64(),
                              std::string(limit.at("enforcement").as_string()), std::chrono::system_clock::now(), "null"});
      share.usage.push_back({share.limits.back().capacity, "", 0, 0, 0, std::nullopt});
    }
    for (const json::value& variable : value.at("containerEdits").at("env").as_array()) share.edits.env.emplace_back(variable.as_string());
    share.state = std::string(value.at("state").as_string());
    return share;
  }

  sdk::Host host_;
  json::object config_;
  std::string directory_, enforcement_ = "strong", serial_ = "NULL";
  std::mutex mutex_;
  std::map<sdk::Key, sdk::Share> memory_;
  std::optional<DevicesFile> watch_;
};

}  // namespace

TRANCHE_BACKEND(NullBackend)
