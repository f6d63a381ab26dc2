// A node for tests of the claims room: a real store and CDI directory, a backend whose "kernel" outlives the host.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "claims/claims.h"
#include "config/config.h"
#include "support/process.h"

namespace tranche::claims {

inline constexpr char kDriver[] = "nic.example.com";
inline constexpr char kPool[] = "node-1";

inline constexpr char kConfiguration[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: fake
  isolation: in-process
  allowEdits: {env: [SHARE]}
drivers:
- name: nic.example.com
  offers:
  - name: shared
    backend: uplink
    mode: share
    capacity:
      bandwidth: {default: 50M, min: 10M, max: 1G, step: 10M}
  - name: exclusive
    backend: uplink
    mode: whole
  classes:
  - name: nic-shared
    offer: shared
    namespaces: {allow: ["team-*"]}
    parameters: {mtu: 1500}
    claimParameters: [mtu]
  - name: nic-hard
    offer: shared
    minimumEnforcement: hard
  - name: nic-whole
    offer: exclusive
)";

// Behaves as a real backend: idempotent by key, keeps what it applied, refuses a second pod, checks its own sum.
class FakeBackend final : public backend::Backend {
 public:
  explicit FakeBackend(std::int64_t capacity) : capacity_(capacity) {}
  const std::string& name() const override { return name_; }

  absl::StatusOr<std::vector<PhysicalDevice>> Discover(Deadline) override { return std::vector<PhysicalDevice>{}; }

  std::vector<backend::PrepareOutcome> Prepare(const std::vector<backend::PrepareItem>& items, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++prepare_calls;
    prepared_items += static_cast<int>(items.size());
    std::vector<backend::PrepareOutcome> outcomes;
    for (const backend::PrepareItem& item : items) {
      last_item = item;
      outcomes.push_back(PrepareOne(item));
    }
    if (lose_answers) outcomes.clear();
    return outcomes;
  }

  std::vector<backend::UnprepareOutcome> Unprepare(const std::vector<backend::UnprepareItem>& items, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++unprepare_calls;
    std::vector<backend::UnprepareOutcome> outcomes;
    for (const backend::UnprepareItem& item : items) {
      if (!unprepare_error.ok()) {
        outcomes.push_back({item.key, unprepare_error});
        continue;
      }
      applied.erase(item.key);
      outcomes.push_back({item.key, absl::OkStatus()});
    }
    return outcomes;
  }

  absl::StatusOr<std::vector<AppliedShare>> ListPrepared(Deadline) override {
    const std::lock_guard lock(mutex_);
    if (!list_error.ok()) return list_error;
    std::vector<AppliedShare> shares;
    for (const auto& [key, share] : applied) shares.push_back(share.second);
    return shares;
  }

  absl::StatusOr<AppliedShare> Verify(const ShareKey&, const std::string&, Deadline) override { return absl::UnimplementedError("verify"); }

  // Bits per second that are applied on one device.
  std::int64_t Sum(const std::string& physical) const {
    std::int64_t sum = 0;
    for (const auto& [key, share] : applied) {
      if (share.first != physical) continue;
      for (const LimitInForce& limit : share.second.limits) sum += limit.in_force;
    }
    return sum;
  }

  std::set<ShareKey> Keys() const {
    std::set<ShareKey> keys;
    for (const auto& [key, share] : applied) keys.insert(key);
    return keys;
  }

  std::map<ShareKey, std::pair<std::string, AppliedShare>> applied;  // physical device, share
  std::map<ShareKey, std::vector<std::string>> pods;
  int prepare_calls = 0, unprepare_calls = 0, prepared_items = 0;
  bool lose_answers = false, over_granted = false, with_edits = true;
  backend::PrepareItem last_item;
  absl::Status unprepare_error, list_error;
  std::function<absl::Status(const backend::PrepareItem&)> refuse = [](const backend::PrepareItem&) { return absl::OkStatus(); };
  std::function<absl::Status(const backend::PrepareItem&)> break_midway = [](const backend::PrepareItem&) { return absl::OkStatus(); };
  std::function<void(AppliedShare&)> tamper = [](AppliedShare&) {};

 private:
  backend::PrepareOutcome PrepareOne(const backend::PrepareItem& item) {
    if (absl::Status status = refuse(item); !status.ok()) return {item.key, status, std::nullopt};
    if (item.pod_uids.size() > 1) return {item.key, absl::FailedPreconditionError("a share serves one pod"), std::nullopt};
    AppliedShare share;
    share.key = item.key;
    if (item.consumed.contains("bandwidth")) {
      const std::int64_t rate = *item.consumed.at("bandwidth").ToInt64();
      share.limits.push_back({"bandwidth", "egress", rate, rate, Enforcement::kStrong, {}, "fake"});
    }
    if (with_edits) share.edits.env = {"SHARE=" + ShortId(item.key)};
    share.state = "made";
    applied[item.key] = {item.physical, share};
    if (Sum(item.physical) > capacity_) over_granted = true;
    if (absl::Status status = break_midway(item); !status.ok()) return {item.key, status, std::nullopt};
    tamper(share);
    return {item.key, absl::OkStatus(), share};
  }

  const std::string name_ = "uplink";
  const std::int64_t capacity_;
  std::mutex mutex_;
};

class FakeReader final : public ClaimReader {
 public:
  absl::StatusOr<Claim> ReadClaim(const ClaimReference& reference, Deadline) override {
    if (on_read) on_read();
    const std::lock_guard lock(mutex_);
    if (!error.ok()) return error;
    const auto found = claims.find(reference.uid);
    if (found == claims.end()) return absl::NotFoundError("no such claim");
    return found->second;
  }
  void Put(const std::string& uid, Claim claim) {
    const std::lock_guard lock(mutex_);
    claims[uid] = std::move(claim);
  }
  std::map<std::string, Claim> claims;  // by the UID that is asked for
  absl::Status error;
  std::function<void()> on_read;  // set before the calls

 private:
  std::mutex mutex_;
};

// A store that dies at a chosen change: before it is committed, or after (the answer is lost). Dead until the host is started again.
class MortalStore final : public store::Store {
 public:
  explicit MortalStore(std::unique_ptr<store::Store> store) : store_(std::move(store)) {}
  absl::Status Write(const std::function<absl::Status(store::Transaction&)>& change) override {
    if (dead) return absl::UnavailableError("the host is dead");
    const bool dies = writes_to_live > 0 && --writes_to_live == 0;
    if (dies) dead = true;
    if (dies && !commit_last) return absl::UnavailableError("died before the commit");
    const absl::Status status = store_->Write(change);
    return dies ? absl::UnavailableError("died after the commit") : status;
  }
  absl::Status LengthenLog() override { return store_->LengthenLog(); }
  absl::Status Read(const std::function<absl::Status(store::Transaction&)>& look) override { return store_->Read(look); }
  absl::StatusOr<std::vector<AuditRecord>> Audit(const store::AuditQuery& query) override { return store_->Audit(query); }

  std::atomic<int> writes_to_live = 0;  // 0: for ever
  std::atomic<bool> commit_last = false, dead = false;

 private:
  std::unique_ptr<store::Store> store_;
};

inline PhysicalDevice MakeNic(const std::string& name) {
  PhysicalDevice device;
  device.name = name;
  device.modes = {Mode::kShare, Mode::kWhole};
  PhysicalCapacity bandwidth;
  bandwidth.value = Quantity::FromInt64(1'000'000'000);
  bandwidth.unit = "bitsPerSecond";
  bandwidth.shareable = true;
  bandwidth.enforcement = Enforcement::kStrong;
  device.capacities = {{"bandwidth", bandwidth}};
  return device;
}

// The same UUID each time for a claim's share.
inline std::string ShareIdOf(const std::string& uid) {
  const std::string digest = Sha256Hex(uid);
  return digest.substr(0, 8) + "-" + digest.substr(8, 4) + "-4" + digest.substr(13, 3) + "-8" + digest.substr(17, 3) + "-" + digest.substr(20, 12);
}

inline Claim MakeClaim(const std::string& uid, const std::string& bandwidth, const std::string& device = "eth1-shared",
                       const std::string& device_class = "nic-shared") {
  Claim claim;
  claim.namespace_name = "team-a";
  claim.name = "claim-" + uid;
  claim.uid = uid;
  DeviceRequest request;
  request.name = "nic";
  request.device_class = device_class;
  claim.requests = {request};
  AllocationResult result;
  result.request = "nic";
  result.driver = kDriver;
  result.pool = kPool;
  result.device = device;
  if (device.ends_with("shared")) {
    result.share_id = ShareIdOf(uid);
    if (!bandwidth.empty()) result.consumed_capacity = {{"bandwidth", *Quantity::Parse(bandwidth)}};
  }
  claim.allocation = Allocation{{result}, {}};
  claim.reserved_for = {{"pods", "pod", "pod-" + uid}};
  return claim;
}

class Node {
 public:
  explicit Node(int devices = 2) {
    const bool has_memory_disk = std::filesystem::exists("/dev/shm");
    root_ = has_memory_disk ? "/dev/shm/tranche-claims-" + NewUuid() : temporary_.path();
    std::filesystem::create_directories(root_);
    absl::StatusOr<config::HostConfiguration> configuration = config::ParseConfiguration(kConfiguration, "test.yaml");
    if (!configuration.ok()) ADD_FAILURE() << configuration.status();
    if (configuration.ok()) inventory.SetConfiguration(*configuration);
    std::vector<PhysicalDevice> nics;
    for (int i = 1; i <= devices; ++i) nics.push_back(MakeNic("eth" + std::to_string(i)));
    inventory.SetDiscovered("uplink", std::make_shared<const std::vector<PhysicalDevice>>(std::move(nics)));
    Start();
  }
  ~Node() {
    claims.reset();
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::unique_ptr<MortalStore> OpenStore() const {
    absl::StatusOr<std::unique_ptr<store::Store>> opened = store::Store::Open(root_ + "/state.db", store::OpenMode::kReadWrite);
    if (!opened.ok()) ADD_FAILURE() << opened.status();
    return opened.ok() ? std::make_unique<MortalStore>(*std::move(opened)) : nullptr;
  }
  std::unique_ptr<Claims> MakeClaims(store::Store& on) {
    return std::make_unique<Claims>(Dependencies{
        on, inventory, reader, [this](const std::string& name) { return name == "uplink" && loaded ? std::shared_ptr<backend::Backend>(backend) : nullptr; },
        root_ + "/cdi", [this] { return sole_host; }});
  }
  void Start() {
    store = OpenStore();
    claims = MakeClaims(*store);
  }
  void Stop() {
    claims.reset();
    store.reset();
  }
  // Without reconcile.
  void Restart() {
    Stop();
    Start();
  }

  static ClaimReference Reference(const Claim& claim) { return {claim.namespace_name, claim.name, claim.uid}; }
  absl::StatusOr<std::vector<PreparedDevice>> Prepare(const Claim& claim) {
    reader.Put(claim.uid, claim);
    return claims->Prepare(kDriver, {Reference(claim)}, Soon()).at(claim.uid);
  }
  absl::Status Unprepare(const Claim& claim) { return claims->Unprepare(kDriver, {Reference(claim)}, Soon()).at(claim.uid); }
  static Deadline Soon() { return DeadlineIn(std::chrono::seconds(30)); }

  std::vector<store::ShareRow> Shares() const {
    std::vector<store::ShareRow> shares;
    EXPECT_TRUE(store
                    ->Read([&](store::Transaction& transaction) {
                      auto read = transaction.Shares();
                      if (read.ok()) shares = *read;
                      return read.status();
                    })
                    .ok());
    return shares;
  }
  std::optional<store::ClaimRow> Row(const std::string& uid) const {
    std::optional<store::ClaimRow> row;
    EXPECT_TRUE(store
                    ->Read([&](store::Transaction& transaction) {
                      auto read = transaction.FindClaim(kDriver, uid);
                      if (read.ok()) row = *read;
                      return read.status();
                    })
                    .ok());
    return row;
  }
  const std::string& root() const { return root_; }
  cdi::Directory Cdi() const { return cdi::Directory(root_ + "/cdi"); }
  std::set<std::string> Files() const {
    const auto claims_with_files = Cdi().ListClaims(kDriver);
    return claims_with_files.ok() ? std::set<std::string>(claims_with_files->begin(), claims_with_files->end()) : std::set<std::string>{};
  }
  std::vector<AuditRecord> Audit() const {
    const auto records = store->Audit({});
    return records.ok() ? *records : std::vector<AuditRecord>{};
  }
  void ExpectNothingLeft() const {
    EXPECT_TRUE(backend->applied.empty());
    EXPECT_TRUE(Shares().empty());
    EXPECT_TRUE(Files().empty());
  }

  std::shared_ptr<FakeBackend> backend = std::make_shared<FakeBackend>(1'000'000'000);
  FakeReader reader;
  bool loaded = true, sole_host = true;
  inventory::Inventory inventory{kPool, [this] { return claims == nullptr ? std::vector<inventory::HeldOffer>{} : claims->HeldOffers(); }};
  std::unique_ptr<MortalStore> store;
  std::unique_ptr<Claims> claims;

 private:
  test::TemporaryDirectory temporary_;
  std::string root_;
};

}  // namespace tranche::claims
