// The C++ side of the SDK against the real host side: a backend class compiled into this test, reached through its table only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include <tranche/backend.hpp>

#include "backend/in_process.h"
#include "backend/loader.h"
#include "backend/schema.h"
#include "model/json.h"

namespace {

namespace sdk = tranche::sdk;
using testing::HasSubstr;
using tranche::DeadlineIn;
using tranche::ShareKey;
using namespace std::chrono_literals;

class Complete {
 public:
  static constexpr const char* kName = "complete";
  static constexpr const char* kVersion = "2.3.4";
  static constexpr bool kConcurrent = true;

  Complete(sdk::Host host, const boost::json::object& config, const std::string& runtime_directory) : host_(host) {
    if (config.contains("throwError")) throw sdk::Error(TRANCHE_PERMISSION_DENIED, "no access to /dev/complete");
    if (config.contains("throwOther")) throw std::logic_error("unexpected");
    if (config.contains("throwInt")) throw 42;
    runtime_directory_ = runtime_directory;
  }

  std::vector<sdk::Device> Discover(sdk::Call&) {
    sdk::Device device;
    device.name = "d0";
    device.identity = {{"uuid", "U-0"}};
    device.silicon = sdk::Silicon{"U-0", {{"slice", 8}}, {{"slice", 4}}};
    device.modes = {"whole", "share"};
    device.attributes = {{"model", std::string("M")}, {"index", std::int64_t{3}}, {"ecc", true}, {"driverVersion", sdk::Version{"1.2.3"}}};
    sdk::Capacity memory{1073741824, "1Gi", "bytes", true, "hard", sdk::Amount{1048576, "1Mi"}, sdk::RequestPolicy{"1Mi", {}, "1Mi", "1Gi", "1Mi"}};
    device.capacities = {{"memory", memory}};
    device.metadata = {"model"};
    device.numa_node = 1;
    return {device};
  }

  sdk::Share PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request) {
    if (request.physical == "error") throw sdk::Error(TRANCHE_RESOURCE_EXHAUSTED, "device is full");
    if (request.physical == "throw") throw std::runtime_error("broke");
    if (call.Cancelled()) throw sdk::Error(TRANCHE_CANCELLED, "cancelled");
    sdk::Share share;
    const sdk::Amount memory = request.consumed.at("memory");
    share.limits = {{"memory", "egress", memory.value, memory.value, "hard", std::chrono::system_clock::time_point(1'700'000'000s), "table"}};
    share.usage = {{"memory", "egress", 7, 8, 9, sdk::CounterSource{"eth1", 0x10002}}};
    share.edits.env = {"A=" + std::string(request.configuration.at("a").as_string())};
    share.edits.device_nodes = {{"/dev/x", "/dev/y", "c", "rw", 10, 20}};
    share.edits.mounts = {{"/host", "/container", {"ro"}}};
    share.edits.hooks = {{"createRuntime", "/usr/bin/hook", {"hook", "x"}, {"E=1"}, 5}};
    share.edits.net_devices = {{"vf0", "net1"}};
    share.attributes = {{"index", std::int64_t{1}}};
    share.network = sdk::NetworkData{"net1", {"10.0.0.2/24"}, "86:91:f4:2f:50:3c"};
    share.state = request.policy_version + "/" + request.claim_namespace + "/" + request.claim_name + "/" + request.pod_uids.at(0) + "/" +
                  std::to_string(request.result_index);
    return share;
  }
  void UnprepareOne(sdk::Call&, const sdk::ShareRef& share) {
    if (share.state == "busy") throw sdk::Error(TRANCHE_UNAVAILABLE, "still busy");
  }
  std::vector<sdk::Share> ListPrepared(sdk::Call&) { throw std::runtime_error("cannot list"); }
  void CheckHealth(sdk::Call&) {}

 private:
  sdk::Host host_;
  std::string runtime_directory_;
};

// The list forms, nothing optional, and events from discover.
class Lists {
 public:
  static constexpr const char* kName = "lists";
  static constexpr const char* kVersion = "1.0.0";
  Lists(sdk::Host host, const boost::json::object&, const std::string&) : host_(host) {}
  std::vector<sdk::Device> Discover(sdk::Call&) {
    sdk::Health health;
    health.device = "d0";
    health.source = "check";
    health.verdict = "healthy";
    health.ttl_seconds = 30;
    host_.ReportHealth(health);
    health.verdict = "splendid";  // no such verdict: the host drops it
    host_.ReportHealth(health);
    host_.DevicesChanged();
    host_.ShareLost({"uid", "r", "drv", "pool", "dev", "share"});
    host_.ShareLost({});  // no key: dropped
    host_.Info("discovered");
    return {};
  }
  void Prepare(sdk::Call& call, const std::vector<sdk::PrepareRequest>& requests) {
    for (const auto& request : requests) call.AddResult(request.key, TRANCHE_FAILED_PRECONDITION, "switched off");
  }
  void Unprepare(sdk::Call& call, const std::vector<sdk::ShareRef>& shares) {
    for (const auto& share : shares) call.AddResult(share.key, TRANCHE_OK);
  }
  std::vector<sdk::Share> ListPrepared(sdk::Call&) { return {}; }

 private:
  sdk::Host host_;
};

template <class T>
tranche::backend::LoadedLibrary Library() {
  const tranche_head host{static_cast<std::uint32_t>(sizeof(tranche_host_api)), TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  tranche::backend::LoadedLibrary library;
  library.manifest.name = T::kName;
  const auto table = tranche::backend::NormaliseTable(sdk::detail::Thunks<T>::Entry(&host), T::kName);
  EXPECT_TRUE(table.ok()) << table.status();
  if (table.ok()) library.table = *table;
  return library;
}

template <class T>
absl::StatusOr<std::shared_ptr<tranche::backend::Backend>> Make(const std::string& config = "{}", tranche::backend::Events events = {}) {
  return tranche::backend::CreateBackend(Library<T>(), {.name = "b", .config = config}, std::move(events));
}

tranche::backend::PrepareItem Item(const std::string& claim, const std::string& physical) {
  tranche::backend::PrepareItem item;
  item.key = {claim, "gpu", "drv", "pool", "dev", "share-" + claim};
  item.physical = physical;
  item.consumed["memory"] = *tranche::Quantity::Parse("10Mi");
  item.configuration = R"({"a": "b"})";
  item.policy_version = "p1";
  item.claim_namespace = "ns";
  item.claim_name = "name";
  item.pod_uids = {"pod"};
  item.result_index = 2;
  return item;
}

TEST(Sdk, TableTellsWhatTheClassProvides) {
  const auto complete = Library<Complete>();
  EXPECT_TRUE(complete.Concurrent());
  EXPECT_NE(complete.table.check_health, nullptr);
  EXPECT_EQ(complete.table.verify, nullptr);
  EXPECT_EQ(complete.table.recover, nullptr);
  EXPECT_STREQ(complete.table.version, "2.3.4");
  EXPECT_FALSE(Library<Lists>().Concurrent());
}

TEST(Sdk, EntryDeclinesAnotherMajorAndASmallerHost) {
  using Thunks = sdk::detail::Thunks<Complete>;
  const auto full = static_cast<std::uint32_t>(sizeof(tranche_host_api));
  const tranche_head other{full, 2, 0}, larger{full + 64, 1, 7};
  const auto first = static_cast<std::uint32_t>(offsetof(tranche_host_api, add_result) + sizeof(void*));  // all of 1.0
  const tranche_head small{first - 8, 1, 0}, oldest{first, 1, 0};
  EXPECT_EQ(Thunks::Entry(nullptr), nullptr);
  EXPECT_EQ(Thunks::Entry(&other), nullptr);
  EXPECT_EQ(Thunks::Entry(&small), nullptr);
  EXPECT_NE(Thunks::Entry(&oldest), nullptr);
  EXPECT_NE(Thunks::Entry(&larger), nullptr);
}

TEST(Sdk, DeviceArrivesWithEveryField) {
  auto backend = Make<Complete>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto devices = (*backend)->Discover(DeadlineIn(5s));
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  const tranche::PhysicalDevice& device = devices->front();
  EXPECT_EQ(device.name, "d0");
  EXPECT_EQ(device.identity.at("uuid"), "U-0");
  ASSERT_TRUE(device.silicon.has_value());
  EXPECT_EQ(device.silicon->uses.at("slice"), 4);
  EXPECT_EQ(device.modes, (std::vector{tranche::Mode::kWhole, tranche::Mode::kShare}));
  EXPECT_EQ(std::get<bool>(device.attributes.at("ecc")), true);
  EXPECT_EQ(std::get<std::int64_t>(device.attributes.at("index")), 3);
  EXPECT_EQ(std::get<tranche::VersionValue>(device.attributes.at("driverVersion")).text, "1.2.3");
  const tranche::PhysicalCapacity& memory = device.capacities.at("memory");
  EXPECT_EQ(memory.value.ToString(), "1Gi");
  EXPECT_EQ(memory.overhead.ToString(), "1Mi");
  EXPECT_EQ(memory.enforcement, tranche::Enforcement::kHard);
  ASSERT_TRUE(memory.request_policy && memory.request_policy->valid_range);
  EXPECT_EQ(memory.request_policy->valid_range->step->ToString(), "1Mi");
  EXPECT_EQ(device.numa_node, 1);
}

TEST(Sdk, ShareArrivesWithEveryField) {
  auto backend = Make<Complete>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto outcomes = (*backend)->Prepare({Item("c1", "d0")}, DeadlineIn(5s));
  ASSERT_EQ(outcomes.size(), 1u);
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  const tranche::AppliedShare& share = *outcomes[0].share;
  EXPECT_EQ(share.key, Item("c1", "d0").key);
  ASSERT_EQ(share.limits.size(), 1u);
  EXPECT_EQ(share.limits[0].in_force, 10 * 1024 * 1024);
  EXPECT_EQ(share.limits[0].direction, "egress");
  EXPECT_EQ(share.limits[0].verified_at, std::chrono::system_clock::time_point(1'700'000'000s));
  ASSERT_EQ(share.usage.size(), 1u);
  EXPECT_EQ(share.usage[0], (tranche::Usage{"memory", "egress", 7, 8, 9, tranche::CounterSource{"eth1", 0x10002}}));
  EXPECT_EQ(share.edits.env, std::vector<std::string>{"A=b"});
  EXPECT_EQ(share.edits.device_nodes.at(0), (tranche::DeviceNode{"/dev/x", "/dev/y", "c", "rw", 10, 20}));
  EXPECT_EQ(share.edits.mounts.at(0), (tranche::Mount{"/host", "/container", {"ro"}}));
  EXPECT_EQ(share.edits.hooks.at(0), (tranche::Hook{"createRuntime", "/usr/bin/hook", {"hook", "x"}, {"E=1"}, 5}));
  EXPECT_EQ(share.edits.net_devices.at(0), (tranche::NetDevice{"vf0", "net1"}));
  EXPECT_EQ(share.network, (tranche::NetworkData{"net1", {"10.0.0.2/24"}, "86:91:f4:2f:50:3c"}));
  EXPECT_EQ(share.state, "p1/ns/name/pod/2");
}

TEST(Sdk, OneItemsExceptionFailsThatItemOnly) {
  auto backend = Make<Complete>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto outcomes = (*backend)->Prepare({Item("c1", "error"), Item("c2", "throw"), Item("c3", "d0")}, DeadlineIn(5s));
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(outcomes[0].status.message()), HasSubstr("device is full"));
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status;
}

TEST(Sdk, ItemsAfterTheDeadlineAreRetryable) {
  auto backend = Make<Complete>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto outcomes = (*backend)->Prepare({Item("c1", "d0")}, DeadlineIn(-1s));
  EXPECT_EQ(outcomes[0].status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Sdk, ConstructorExceptionsBecomeErrorsOfCreate) {
  EXPECT_EQ(Make<Complete>(R"({"throwError": 1})").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(Make<Complete>(R"({"throwError": 1})").status().message()), HasSubstr("no access to /dev/complete"));
  EXPECT_EQ(Make<Complete>(R"({"throwOther": 1})").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Make<Complete>(R"({"throwInt": 1})").status().code(), absl::StatusCode::kInternal);
}

TEST(Sdk, MethodExceptionFailsTheCall) {
  auto backend = Make<Complete>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT(std::string((*backend)->ListPrepared(DeadlineIn(5s)).status().message()), HasSubstr("cannot list"));
  const ShareKey key = Item("c1", "d0").key;
  EXPECT_EQ((*backend)->Verify(key, "", DeadlineIn(5s)).status().code(), absl::StatusCode::kUnimplemented);
  const auto outcomes = (*backend)->Unprepare({{key, ""}, {Item("c2", "").key, "busy"}}, DeadlineIn(5s));
  EXPECT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kUnavailable);
}

TEST(Sdk, ListFormsReportTheirOwnResults) {
  auto backend = Make<Lists>();
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->Prepare({Item("c1", "d")}, DeadlineIn(5s)).at(0).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*backend)->Unprepare({{Item("c1", "d").key, ""}}, DeadlineIn(5s)).at(0).status.ok());
}

TEST(Sdk, EventsArriveAndInvalidOnesAreDropped) {
  int changed = 0;
  std::vector<ShareKey> lost;
  std::vector<std::string> health;
  tranche::backend::Events events;
  events.devices_changed = [&] { ++changed; };
  events.share_lost = [&](const ShareKey& key) { lost.push_back(key); };
  events.health = [&](const std::string& text) { health.push_back(text); };
  auto backend = Make<Lists>("{}", events);
  ASSERT_TRUE(backend.ok()) << backend.status();
  ASSERT_TRUE((*backend)->Discover(DeadlineIn(5s)).ok());
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(lost, (std::vector<ShareKey>{{"uid", "r", "drv", "pool", "dev", "share"}}));
  ASSERT_EQ(health.size(), 1u);
  EXPECT_THAT(health[0], HasSubstr("\"healthy\""));
}

// As the host gets it: through text.
absl::Status Check(const std::string& schema, const boost::json::object& payload) {
  return tranche::backend::ValidatePayload(schema, boost::json::parse(boost::json::serialize(payload)));
}

TEST(Sdk, WrittenPayloadsMatchTheirSchemas) {
  sdk::Health health;
  health.device = "d";
  health.source = "s";
  EXPECT_TRUE(Check("health", sdk::ToJson(health)).ok());
  EXPECT_TRUE(Check("key", sdk::ToJson(sdk::Key{"u", "r", "d", "p", "v", ""})).ok());
  sdk::Share share;
  share.key = {"u", "r", "d", "p", "v", ""};
  EXPECT_TRUE(Check("share", sdk::ToJson(share)).ok());
}

}  // namespace
