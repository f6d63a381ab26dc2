#include "good.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace faulty {
namespace {

std::atomic<int> discovers = 0;
std::atomic<int> instances = 0;
std::atomic<bool> broken = false;

[[noreturn]] void Refuse(tranche_code code, const std::string& why) { throw sdk::Error(code, why); }

}  // namespace

Good::Good(sdk::Host host, const json::object&, const std::string& runtime_directory) : host_(host), directory_(runtime_directory) {
  if (Is("create_fails")) Refuse(TRANCHE_UNAVAILABLE, "the hardware does not answer");
  ++instances;
}

Good::~Good() {
  if (Is("destroy_releases")) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) std::filesystem::remove(entry.path());
  }
  --instances;
  if (Is("shared_state") && instances > 0) broken = true;
}

std::string Good::Path(const sdk::Key& key) const {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : json::serialize(sdk::ToJson(key))) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char name[40];
  std::snprintf(name, sizeof name, "/%016llx.share", static_cast<unsigned long long>(hash));
  return directory_ + name;
}

std::vector<sdk::Device> Good::Discover(sdk::Call&) {
  if (broken) Refuse(TRANCHE_INTERNAL, "another instance took the library's state with it");
  if (Is("discover_fails")) Refuse(TRANCHE_INTERNAL, "the bus does not answer");
  std::vector<sdk::Device> devices;
  for (int i = 0; i < 2 && !Is("no_device"); ++i) {
    sdk::Device device;
    device.name = Is("same_name") ? "gpu-0" : "gpu-" + std::to_string(i);
    device.identity["uuid"] = "GPU-" + std::to_string(i) + (Is("moving_identity") ? "-" + std::to_string(++discovers) : "");
    if (Is("same_identity")) device.identity["uuid"] = "GPU";
    device.modes = {"whole", "share"};
    device.attributes["model"] = std::string("Good");
    device.capacities["memory"] = {16ll << 30, "16Gi", "bytes", true, "strong", {}, {}};
    if (Is("count_without_limit")) device.capacities["queues"] = {64, "", "count", true, "hard", {}, {}};
    devices.push_back(std::move(device));
  }
  return devices;
}

sdk::Share Good::PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request) {
  const bool known = request.physical == "gpu-0" || request.physical == "gpu-1";
  if (!known && !Is("leaves_failed")) Refuse(TRANCHE_NOT_FOUND, "there is no device " + request.physical + "; discover again");
  sdk::Share share;
  share.key = request.key;
  for (const auto& [name, amount] : request.consumed) {
    const std::int64_t factor = Is("lies_about_limit") ? 2 : 1;
    if (name == "queues") continue;
    share.limits.push_back({name, "", Is("requested_other") ? amount.value / 2 : amount.value, amount.value * factor, "strong", host_.Now(), "none"});
  }
  if (Is("no_limit")) share.limits.clear();
  share.state = request.physical;
  if (Is("big_state")) share.state.assign(5000, 'x');
  if (Is("bad_edit")) share.edits.env.push_back("no equals sign");
  if (Is("bad_path")) share.edits.mounts.push_back({"/dev/../etc", "/etc", {}});
  const std::lock_guard lock(mutex_);
  const int before = prepared_[request.key]++;
  if (before == 0 && std::filesystem::exists(Path(request.key))) inherited_.insert(request.key);
  released_.erase(request.key);
  if (Is("not_idempotent") && before > 0) Refuse(TRANCHE_ALREADY_EXISTS, "the key is prepared already");
  if (Is("no_reprepare") && inherited_.contains(request.key)) Refuse(TRANCHE_ALREADY_EXISTS, "the key is prepared already");
  Store(share);
  if (!known) Refuse(TRANCHE_NOT_FOUND, "there is no device " + request.physical);
  if (Is("half_done")) call.ThrowIfCancelled();
  return share;
}

void Good::Prepare(sdk::Call& call, const std::vector<sdk::PrepareRequest>& requests) {
  if (Is("no_lists") && requests.size() > 1) Refuse(TRANCHE_UNIMPLEMENTED, "one share per call");
  if (Is("silent_failure")) return;
  for (const sdk::PrepareRequest& request : requests) {
    try {
      if (!Is("half_done")) call.ThrowIfCancelled();
      const sdk::Share share = PrepareOne(call, request);
      if (!Is("no_share")) call.AddShare(share);
      if (Is("two_shares")) call.AddShare(share);
      if (!Is("no_result")) call.AddResult(request.key, TRANCHE_OK);
      if (Is("two_results")) call.AddResult(request.key, TRANCHE_OK);
    } catch (const sdk::Error& error) { call.AddResult(request.key, error.code(), Is("result_without_text") ? "" : error.what()); }
  }
}

void Good::UnprepareOne(const sdk::ShareRef& share) {
  const std::lock_guard lock(mutex_);
  const std::string path = Path(share.key);
  if (Is("needs_state") && share.state.empty()) Refuse(TRANCHE_INVALID_ARGUMENT, "state is empty");
  if (Is("ignores_without_state") && share.state.empty()) return;
  if (Is("unknown_fails") && !released_.contains(share.key) && !std::filesystem::exists(path)) Refuse(TRANCHE_NOT_FOUND, "the key is unknown");
  if (Is("unprepare_once") && released_.contains(share.key)) Refuse(TRANCHE_NOT_FOUND, "the key was released");
  ++released_[share.key];
  // What only the instance that prepared a share can release is lost with it.
  if (Is("stuck_after_restart") && inherited_.contains(share.key)) return;
  prepared_.erase(share.key);
  if (!Is("unprepare_keeps")) std::filesystem::remove(path);
}

void Good::Unprepare(sdk::Call& call, const std::vector<sdk::ShareRef>& shares) {
  for (const sdk::ShareRef& share : shares) {
    try {
      UnprepareOne(share);
      call.AddResult(share.key, TRANCHE_OK);
    } catch (const sdk::Error& error) { call.AddResult(share.key, error.code(), error.what()); }
  }
}

std::vector<sdk::Share> Good::ListPrepared(sdk::Call&) {
  const std::lock_guard lock(mutex_);
  std::vector<sdk::Share> shares;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().extension() != ".share") continue;
    sdk::Share share = Load(entry.path());
    if (Is("lists_no_request") && !share.limits.empty()) share.limits.front().requested = 0;
    if (Is("forgets") && !prepared_.contains(share.key)) continue;
    shares.push_back(share);
    if (Is("lists_twice")) shares.push_back(share);
  }
  return shares;
}

sdk::Share Good::Verify(sdk::Call&, const sdk::ShareRef& reference) {
  const std::lock_guard lock(mutex_);
  const std::string path = Path(reference.key);
  if (!std::filesystem::exists(path)) {
    Refuse(Is("verify_unknown") ? TRANCHE_INTERNAL : TRANCHE_NOT_FOUND, "nothing is prepared for claim " + reference.key.claim_uid);
  }
  sdk::Share share = Load(path);
  if (Is("verify_differs") && !share.limits.empty()) share.limits.front().in_force += 1;
  return share;
}

void Good::CheckHealth(sdk::Call&) {
  const std::lock_guard lock(mutex_);
  if (Is("health_once") && sequence_ != 0) return;
  for (const char* name : {"gpu-0", "gpu-1"}) {
    sdk::Health health;
    health.device = name;
    health.source = "check";
    health.sequence = Is("health_order") ? 7 : ++sequence_;
    health.verdict = Is("health_word") ? "fine" : "healthy";
    host_.ReportHealth(health);
  }
}

void Good::Recover(sdk::Call&, std::string_view device) {
  if (device != "gpu-0" && device != "gpu-1" && !Is("recovers_anything")) Refuse(TRANCHE_NOT_FOUND, "there is no device " + std::string(device));
}

void Good::ReleaseHandles(sdk::Call&) {
  if (!Is("release_loses")) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) std::filesystem::remove(entry.path());
}

void Good::SelfTest(sdk::Call&) {
  if (Is("self_test_fails")) Refuse(TRANCHE_FAILED_PRECONDITION, "the memory test failed");
}

#if TRANCHE_ABI_MINOR >= 1
void Good::Sweep(sdk::Call&) {
  host_.RecordMetric(Is("metric_name") ? "Boards, in use" : "boards", 2);
  if (!Is("sweep_loses")) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) std::filesystem::remove(entry.path());
}
#endif

void Good::Store(const sdk::Share& share) const {
  const std::string path = Path(share.key);
  // A name of its own for every thread and process.
  const std::string part = path + "." + std::to_string(::getpid()) + ".part";
  std::ofstream(part) << json::serialize(sdk::ToJson(share));
  std::filesystem::rename(part, path);
}

sdk::Share Good::Load(const std::string& path) const {
  std::ifstream file(path);
  const json::value value = json::parse(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  sdk::Share share;
  share.key = sdk::KeyFrom(value.at("key"));
  share.state = std::string(value.at("state").as_string());
  for (const json::value& limit : value.at("limits").as_array()) {
    share.limits.push_back(
        {std::string(limit.at("capacity").as_string()), "", limit.at("requested").as_int64(), limit.at("inForce").as_int64(), "strong", host_.Now(), "none"});
  }
  return share;
}

}  // namespace faulty
