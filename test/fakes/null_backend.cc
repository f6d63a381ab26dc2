// A backend without hardware: N devices with memory and bandwidth, prepared shares as files in the runtime directory (so that list_prepared
// survives a restart), and failures that the configuration asks for. For tests and benchmarks.
//
//   devices        how many (default 1)
//   enforcement    of its capacities (default "strong")
//   env            container environment edits of every share, "NAME=value"
//   failPrepare    a canonical code: every prepare of failDevices (all when empty) fails with it
//   failUnprepare  the same for unprepare
//   failCreate     the constructor throws
//   slowMs         each prepare and unprepare takes so long, or until the deadline
//   lieLimit       reports twice the requested limit as in force
//   badJson        pushes shares that are no JSON
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
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

class NullBackend {
 public:
  static constexpr const char* kName = "null_backend";
  static constexpr const char* kVersion = "1.0.0";
  static constexpr bool kConcurrent = true;

  NullBackend(sdk::Host host, const json::object& config, const std::string& runtime_directory)
      : host_(host), config_(config), directory_(runtime_directory) {
    if (Flag(config, "failCreate")) throw sdk::Error(TRANCHE_UNAVAILABLE, "the configuration asks create to fail");
    if (const json::value* level = config.if_contains("enforcement")) enforcement_ = std::string(level->as_string());
  }

  std::vector<sdk::Device> Discover(sdk::Call&) {
    std::vector<sdk::Device> devices;
    for (std::int64_t index = 0; index < Number(config_, "devices", 1); ++index) {
      const std::string name = "null-" + std::to_string(index);
      sdk::Device device;
      device.name = name;
      device.identity["uuid"] = "NULL-" + std::to_string(index);
      device.silicon = sdk::Silicon{"NULL-" + std::to_string(index), {{"slice", 8}}, {{"slice", 8}}};
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
  std::string directory_, enforcement_ = "strong";
  std::mutex mutex_;
  std::map<sdk::Key, sdk::Share> memory_;
};

}  // namespace

TRANCHE_BACKEND(NullBackend)
