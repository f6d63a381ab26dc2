// Local mode: manifests, placement over the directory, the kubelet player and the container-runtime player.
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ids.h"
#include "cdi/cdi.h"
#include "dra/server.h"
#include "local/directory.h"
#include "local/dra_client.h"
#include "local/kubelet.h"
#include "local/manifest.h"
#include "local/runtime.h"
#include "local/scheduler.h"
#include "local/subprocess.h"
#include "model/json.h"

namespace tranche::local {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDriver[] = "nic.example.com";

Quantity Amount(const std::string& text) { return *Quantity::Parse(text); }

PublishedDevice ShareDevice(const std::string& name, const std::string& subnet, const std::string& parent) {
  PublishedDevice device;
  device.driver = kDriver;
  device.pool = "node-1";
  device.name = name;
  device.offer = "share";
  device.backend = "nic";
  device.physical = parent;
  device.mode = Mode::kShare;
  device.allow_multiple_allocations = true;
  device.enforcement = Enforcement::kHard;
  device.attributes = {{"subnet", subnet}, {"parent", parent}};
  RequestPolicy policy;
  policy.default_value = Amount("10M");
  policy.valid_range = ValidRange{Amount("10M"), Amount("400M"), Amount("10M")};
  device.capacity["bandwidth"] = {Amount("500M"), policy, Enforcement::kHard};
  return device;
}

PublishedDevice WholeDevice(const std::string& name, const std::string& set) {
  PublishedDevice device;
  device.driver = kDriver;
  device.pool = "node-1";
  device.name = name;
  device.offer = "whole";
  device.physical = name;
  device.enforcement = Enforcement::kHard;
  device.consumes_counters = {{set, {{"units", Amount("1")}}}};
  return device;
}

config::HostConfiguration Configuration() {
  config::HostConfiguration configuration;
  config::DriverConfiguration driver;
  driver.name = kDriver;
  config::ClassConfiguration open;
  open.name = "nic-share";
  open.offer = "share";
  config::ClassConfiguration closed = open;
  closed.name = "gold";
  closed.namespaces = {"team-*"};
  config::ClassConfiguration whole;
  whole.name = "nic-whole";
  whole.offer = "whole";
  driver.classes = {open, closed, whole};
  configuration.drivers = {driver};
  return configuration;
}

std::string Manifest(const std::string& name, const std::string& bandwidth, const std::string& device_class = "nic-share",
                     const std::string& namespace_name = "tenant-a") {
  return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: " + name + ", namespace: " + namespace_name +
         "}\nspec:\n  devices:\n    requests:\n    - name: net\n      exactly:\n        deviceClassName: " + device_class +
         (bandwidth.empty() ? "\n" : "\n        capacity: {requests: {bandwidth: " + bandwidth + "}}\n");
}

std::string TwoRequests(const std::string& constraint) {
  return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: pair, namespace: tenant-a}\nspec:\n  devices:\n    requests:\n"
         "    - {name: one, exactly: {deviceClassName: nic-share}}\n    - {name: two, exactly: {deviceClassName: nic-share}}\n"
         "    constraints: [" +
         constraint + "]\n";
}

class LocalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("local-" + NewUuid().substr(0, 8));
    auto directory = Directory::Open(root_.string());
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_ = std::make_unique<Directory>(*directory);
    scheduler_ = std::make_unique<Scheduler>(*directory_);
    ASSERT_TRUE(directory_->PublishClasses(Configuration()).ok());
  }
  void TearDown() override { fs::remove_all(root_); }

  void Publish(std::vector<PublishedDevice> devices) {
    inventory::Snapshot snapshot;
    snapshot.devices = std::move(devices);
    snapshot.counter_sets[kDriver] = {{"silicon", {{"units", Amount("1")}}}};
    const absl::Status status = directory_->PublishSlices(snapshot);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Apply(const std::string& manifest) {
    const auto applied = scheduler_->Apply(manifest);
    ASSERT_TRUE(applied.ok()) << applied.status();
  }

  fs::path root_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Scheduler> scheduler_;
};

// First, while this process has no other thread: it forks.
TEST_F(LocalTest, TwoProcessesThatAllocateAtOnceDoNotOverCommit) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  constexpr int kClaims = 20;  // 20 × 50M into 500M
  std::string manifest;
  for (int i = 0; i < kClaims; ++i) manifest += Manifest("c" + std::to_string(i), "50M") + "---\n";
  Apply(manifest);
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (int i = 0; i < kClaims; ++i) (void)scheduler_->Allocate("tenant-a", "c" + std::to_string(child == 0 ? i : kClaims - 1 - i));
      _exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  Quantity total;
  std::set<std::string> share_ids;
  const auto claims = directory_->ReadClaims();
  ASSERT_TRUE(claims.ok());
  for (const Claim& claim : *claims) {
    if (!claim.allocation.has_value()) continue;
    total += claim.allocation->results.at(0).consumed_capacity.at("bandwidth");
    share_ids.insert(*claim.allocation->results.at(0).share_id);
  }
  EXPECT_EQ(total, Amount("500M"));
  EXPECT_EQ(share_ids.size(), 10U);
}

TEST_F(LocalTest, ApplyGivesAUidKeepsItAndRefusesAnotherSpec) {
  const auto first = scheduler_->Apply(Manifest("one", "50M"));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 1U);
  EXPECT_TRUE(first->at(0).created);
  EXPECT_TRUE(IsUuid(first->at(0).uid));
  const auto again = scheduler_->Apply(Manifest("one", "50M"));
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->at(0).created);
  EXPECT_EQ(again->at(0).uid, first->at(0).uid);
  EXPECT_EQ(scheduler_->Apply(Manifest("one", "60M")).status().code(), absl::StatusCode::kFailedPrecondition);
  // All or none: a bad document keeps the good one out.
  EXPECT_FALSE(scheduler_->Apply(Manifest("fresh", "10M") + "---\n" + Manifest("one", "60M")).ok());
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadClaim("tenant-a", "fresh").status()));
}

TEST_F(LocalTest, AllocateRoundsUpRecordsAndIsIdempotent) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("one", "55M"));
  const auto claim = scheduler_->Allocate("tenant-a", "one");
  ASSERT_TRUE(claim.ok()) << claim.status();
  ASSERT_TRUE(claim->allocation.has_value());
  ASSERT_EQ(claim->allocation->results.size(), 1U);
  const AllocationResult& result = claim->allocation->results[0];
  EXPECT_EQ(result.device, "nic0");
  EXPECT_EQ(result.consumed_capacity.at("bandwidth"), Amount("60M"));
  EXPECT_TRUE(IsUuid(result.share_id.value_or("")));
  ASSERT_EQ(claim->reserved_for.size(), 1U);
  EXPECT_EQ(claim->reserved_for[0].resource, "pods");
  EXPECT_EQ(*scheduler_->Allocate("tenant-a", "one"), *claim);
  LocalClaimReader reader(*directory_);
  EXPECT_EQ(*reader.ReadClaim({"tenant-a", "one", claim->uid}, DeadlineIn(seconds(5))), *claim);
  EXPECT_TRUE(absl::IsDeadlineExceeded(reader.ReadClaim({"tenant-a", "one", claim->uid}, DeadlineIn(seconds(-1))).status()));
}

TEST_F(LocalTest, WhatIsDeallocatedCanBeTakenByAnother) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("a", "400M") + "---\n" + Manifest("b", "400M"));
  ASSERT_TRUE(scheduler_->Allocate("tenant-a", "a").ok());
  const absl::Status full = scheduler_->Allocate("tenant-a", "b").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("nic0"));
  EXPECT_THAT(std::string(full.message()), HasSubstr("bandwidth"));
  EXPECT_THAT(std::string(full.message()), HasSubstr("300M"));  // what is missing
  ASSERT_TRUE(scheduler_->Deallocate("tenant-a", "a").ok());
  ASSERT_TRUE(scheduler_->Deallocate("tenant-a", "a").ok());
  EXPECT_TRUE(scheduler_->Allocate("tenant-a", "b").ok());
  ASSERT_TRUE(scheduler_->Delete("tenant-a", "b").ok());
  ASSERT_TRUE(scheduler_->Delete("tenant-a", "b").ok());
  EXPECT_FALSE(directory_->ReadClaim("tenant-a", "b").ok());
}

TEST_F(LocalTest, APublishedFileOfAnotherShapeIsAnErrorThatNamesTheField) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("one", "50M"));
  const std::pair<const char*, const char*> files[] = {{"[]", "no JSON object"},
                                                       {R"({"driver": "nic.example.com", "devices": {}})", "devices is no list"},
                                                       {R"({"driver": "nic.example.com"})", "devices is absent"},
                                                       {R"({"devices": []})", "driver is absent"},
                                                       {R"({"driver": "nic.example.com", "devices": [{"name": 7}]})", "name"}};
  for (const auto& [text, expected] : files) {
    ASSERT_TRUE(WriteFileAtomically(directory_->slices() + "/nic.example.com.json", text, 0640, Durability::kVisible).ok());
    const absl::Status status = scheduler_->Allocate("tenant-a", "one").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nic.example.com.json")) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected)) << text;
  }
}

TEST_F(LocalTest, MoreThanTheMaximumIsOutOfRange) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("big", "450M"));
  const absl::Status status = scheduler_->Allocate("tenant-a", "big").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("400M"));
}

TEST_F(LocalTest, AClassDeniesNamespacesThatItDoesNotAllow) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("g", "10M", "gold", "tenant-a") + "---\n" + Manifest("g", "10M", "gold", "team-x"));
  const absl::Status denied = scheduler_->Allocate("tenant-a", "g").status();
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr("gold"));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("tenant-a"));
  EXPECT_TRUE(scheduler_->Allocate("team-x", "g").ok());
  const auto explanation = scheduler_->Explain("tenant-a", "g");
  ASSERT_TRUE(explanation.ok());
  EXPECT_FALSE(explanation->fits);
  EXPECT_EQ(explanation->refused.code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(LocalTest, DistinctAttributeOnSubnetKeepsTwoRequestsApart) {
  Publish({ShareDevice("nic0", "s0", "eth0"), ShareDevice("nic1", "s0", "eth1"), ShareDevice("nic2", "s1", "eth1")});
  Apply(TwoRequests("{distinctAttribute: nic.example.com/subnet}"));
  const auto claim = scheduler_->Allocate("tenant-a", "pair");
  ASSERT_TRUE(claim.ok()) << claim.status();
  ASSERT_EQ(claim->allocation->results.size(), 2U);
  EXPECT_EQ(claim->allocation->results[0].device, "nic0");
  EXPECT_EQ(claim->allocation->results[1].device, "nic2");
}

TEST_F(LocalTest, DistinctAttributeOnParentKeepsTwoRequestsApart) {
  Publish({ShareDevice("nic0", "s0", "eth0"), ShareDevice("nic1", "s1", "eth0"), ShareDevice("nic2", "s1", "eth1")});
  Apply(TwoRequests("{distinctAttribute: nic.example.com/parent}"));
  const auto claim = scheduler_->Allocate("tenant-a", "pair");
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->allocation->results.at(0).device, "nic0");
  EXPECT_EQ(claim->allocation->results.at(1).device, "nic2");
}

TEST_F(LocalTest, DistinctAttributeThatCannotHoldIsExplained) {
  Publish({ShareDevice("nic0", "s0", "eth0"), ShareDevice("nic1", "s1", "eth0")});
  Apply(TwoRequests("{distinctAttribute: nic.example.com/parent}"));
  EXPECT_EQ(scheduler_->Allocate("tenant-a", "pair").status().code(), absl::StatusCode::kResourceExhausted);
  const auto explanation = scheduler_->Explain("tenant-a", "pair");
  ASSERT_TRUE(explanation.ok());
  EXPECT_FALSE(explanation->fits);
  EXPECT_THAT(explanation->text, HasSubstr("nic.example.com/parent"));
  EXPECT_FALSE(explanation->obstacles.empty());
}

TEST_F(LocalTest, ExplainSaysWhereAClaimLiesAndWhereItWouldLie) {
  Publish({ShareDevice("nic0", "s0", "eth0")});
  Apply(Manifest("one", "50M"));
  EXPECT_THAT(scheduler_->Explain("tenant-a", "one")->text, HasSubstr("fits now"));
  EXPECT_FALSE(directory_->ReadClaim("tenant-a", "one")->allocation.has_value());
  ASSERT_TRUE(scheduler_->Allocate("tenant-a", "one").ok());
  EXPECT_THAT(scheduler_->Explain("tenant-a", "one")->text, HasSubstr("is allocated"));
  EXPECT_TRUE(absl::IsNotFound(scheduler_->Explain("tenant-a", "absent").status()));
}

TEST_F(LocalTest, CountersOfOneSiliconExcludeTwoWholeDevices) {
  Publish({WholeDevice("w0", "silicon"), WholeDevice("w1", "silicon")});
  Apply(Manifest("a", "", "nic-whole") + "---\n" + Manifest("b", "", "nic-whole"));
  ASSERT_TRUE(scheduler_->Allocate("tenant-a", "a").ok());
  EXPECT_EQ(scheduler_->Allocate("tenant-a", "b").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(LocalTest, ADrainingDeviceTakesNoNewClaim) {
  PublishedDevice device = ShareDevice("nic0", "s0", "eth0");
  device.draining = true;
  Publish({device});
  Apply(Manifest("one", "50M"));
  const absl::Status status = scheduler_->Allocate("tenant-a", "one").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  Publish({});
  EXPECT_TRUE(fs::is_empty(directory_->slices()));
}

TEST_F(LocalTest, NamesThatWouldLeaveTheDirectoryAreRefused) {
  EXPECT_EQ(directory_->ReadClaim("..", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(directory_->ReadClaim("a", "../../etc/passwd").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scheduler_->Delete("a", "b/c").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Directory::Open("relative").ok());
}

TEST(ManifestTest, WhatIsNotAClaimIsRefusedWithItsReason) {
  for (const std::string text : {"", "---\n---\n", "just text", "[1, 2]", "kind: Pod\napiVersion: v1", "a: [", "a: {b: *nowhere}", "{a: 1, a: 2}", "? [x]\n: 1",
                                 "kind: ResourceClaim\napiVersion: resource.k8s.io/v1beta1\nmetadata: {name: a}"}) {
    const auto claims = ParseManifests(text);
    EXPECT_EQ(claims.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseManifests(Manifest("Bad_Name", "1M")).ok());
  EXPECT_FALSE(ParseManifests(Manifest("twice", "1M") + "---\n" + Manifest("twice", "1M")).ok());
}

TEST(ManifestTest, NothingExhaustsTheParser) {
  EXPECT_FALSE(ParseManifests(std::string(kMaxManifestBytes + 1, ' ')).ok());
  EXPECT_FALSE(ParseManifests(std::string(100000, '[')).ok());
  std::string dashes;
  for (int i = 0; i < 50000; ++i) dashes += "- ";
  EXPECT_FALSE(ParseManifests(dashes).ok());
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j > 0 ? "," : "") + previous;
    bomb += "]\n";
  }
  EXPECT_FALSE(YamlToJson(bomb).ok());
  for (const char* text : {"a: \xFF", "\xC0\x80: a"}) { EXPECT_THAT(std::string(YamlToJson(text).status().message()), HasSubstr("not UTF-8")) << text; }
}

TEST(ManifestTest, ScalarsAreTypedAsKubernetesReadsThem) {
  const auto documents = YamlToJson("{a: 1, b: '1', c: true, d: 'true', e: null, f: 50M, g: 1.5, h: ~, i: -3, j: 0x10, k: [], l: {}}");
  ASSERT_TRUE(documents.ok()) << documents.status();
  ASSERT_EQ(documents->size(), 1U);
  EXPECT_EQ(boost::json::serialize(documents->at(0)),
            R"({"a":1,"b":"1","c":true,"d":"true","e":null,"f":"50M","g":1.5E0,"h":null,"i":-3,"j":"0x10","k":[],"l":{}})");
}

// ---- The players, over a real server with a handler of the test's own.

class PlayerTest : public LocalTest {
 protected:
  void SetUp() override {
    LocalTest::SetUp();
    Publish({ShareDevice("nic0", "s0", "eth0")});
    Apply(Manifest("one", "50M"));
    const auto claim = scheduler_->Allocate("tenant-a", "one");
    ASSERT_TRUE(claim.ok()) << claim.status();
    uid_ = claim->uid;
  }
  void StartDriver() {
    dra::ServerOptions options;
    options.driver = kDriver;
    options.plugin_directory = directory_->plugins();
    options.registry_directory = directory_->plugins_registry();
    options.handler.prepare = [this](const std::string&, const std::vector<ClaimReference>& references, Deadline, const claims::GivenUp&) {
      claims::PrepareAnswers answers;
      for (const ClaimReference& reference : references) {
        if (fail_) {
          answers.insert_or_assign(reference.uid, absl::UnavailableError("backend is away"));
          continue;
        }
        answers.insert_or_assign(
            reference.uid, std::vector<claims::PreparedDevice>{{{"net"}, "node-1", "nic0", {"nic.example.com/claim=" + reference.uid + "-0"}, "share-1"}});
      }
      return answers;
    };
    options.handler.unprepare = [this](const std::string&, const std::vector<ClaimReference>& references, Deadline, const claims::GivenUp&) {
      claims::UnprepareAnswers answers;
      for (const ClaimReference& reference : references) answers[reference.uid] = absl::OkStatus();
      ++unprepared_;
      return answers;
    };
    auto server = dra::DraServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // A hook program that keeps its input, and the CDI file that names it.
  void WriteHook(const std::string& script) {
    const std::string path = (root_ / "hook.sh").string();
    std::ofstream(path) << "#!/bin/sh\n" << script;
    chmod(path.c_str(), 0755);
    cdi::Device device{uid_ + "-0", {}};
    device.edits.env = {"NIC=eth1"};
    device.edits.hooks = {{"createRuntime", path, {"hook", "argument"}, {"OUT=" + root_.string(), "PATH=/usr/bin:/bin"}, 1}};
    const auto text = cdi::EncodeSpec({"nic.example.com/claim", {device}});
    ASSERT_TRUE(text.ok()) << text.status();
    std::ofstream(directory_->cdi() + "/x.json") << *text;
  }

  std::atomic<bool> fail_{false};
  std::atomic<int> unprepared_{0};
  std::string uid_;
  std::unique_ptr<dra::DraServer> server_;
};

TEST_F(PlayerTest, PrepareAndUnprepareGoOverTheSocketsInBothVersions) {
  StartDriver();
  for (const ProtocolVersion version : {ProtocolVersion::kFirstSupported, ProtocolVersion::kV1, ProtocolVersion::kV1Beta1}) {
    const Kubelet kubelet(*directory_, version);
    const auto prepared = kubelet.Prepare("tenant-a", "one", DeadlineIn(seconds(20)));
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    ASSERT_EQ(prepared->drivers.size(), 1U);
    ASSERT_EQ(prepared->drivers[0].devices.size(), 1U);
    EXPECT_THAT(prepared->drivers[0].devices[0].cdi_device_ids, ElementsAre("nic.example.com/claim=" + uid_ + "-0"));
    EXPECT_EQ(prepared->drivers[0].devices[0].share_id, version == ProtocolVersion::kV1Beta1 ? "" : "share-1");
    EXPECT_EQ(*kubelet.FindPrepared("tenant-a", "one"), *prepared);
    EXPECT_EQ(scheduler_->Delete("tenant-a", "one").code(), absl::StatusCode::kFailedPrecondition);
    const absl::Status unprepared = kubelet.Unprepare("tenant-a", "one", DeadlineIn(seconds(20)));
    EXPECT_TRUE(unprepared.ok()) << unprepared;
    EXPECT_TRUE(kubelet.Prepared()->empty());
  }
  // Again: the allocation still names the driver, which is asked and agrees.
  EXPECT_TRUE(Kubelet(*directory_).Unprepare("tenant-a", "one", DeadlineIn(seconds(20))).ok());
  EXPECT_EQ(unprepared_.load(), 4);
  EXPECT_TRUE(scheduler_->Delete("tenant-a", "one").ok());
  EXPECT_TRUE(Kubelet(*directory_).Unprepare("tenant-a", "one", DeadlineIn(seconds(20))).ok());
}

TEST_F(PlayerTest, AFailedPrepareIsReportedAndRemembered) {
  const Kubelet kubelet(*directory_);
  const absl::Status absent = kubelet.Prepare("tenant-a", "one", DeadlineIn(seconds(5))).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("not registered"));
  StartDriver();
  fail_ = true;
  const absl::Status failed = kubelet.Prepare("tenant-a", "one", DeadlineIn(seconds(20))).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("backend is away"));
  EXPECT_FALSE(kubelet.FindPrepared("tenant-a", "one").ok());
  EXPECT_TRUE(*IsPrepared(*directory_, uid_));  // begun: it must be unprepared before it may go
  EXPECT_TRUE(kubelet.Unprepare("tenant-a", "one", DeadlineIn(seconds(20))).ok());
  EXPECT_FALSE(*IsPrepared(*directory_, uid_));
}

TEST_F(PlayerTest, AttachRunsTheHookForAProcessInTheNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "entering a network namespace needs root";
  StartDriver();
  EXPECT_TRUE(absl::IsNotFound(Runtime(*directory_).Attach("tenant-a", "one", "/proc/self/ns/net").status()));
  ASSERT_TRUE(Kubelet(*directory_).Prepare("tenant-a", "one", DeadlineIn(seconds(20))).ok());
  EXPECT_TRUE(absl::IsNotFound(Runtime(*directory_).Attach("tenant-a", "one", "/proc/self/ns/net").status()));  // no CDI file yet
  WriteHook("cat > $OUT/state.json; echo $1 > $OUT/argument; test -z \"$HOME\"\n");
  const auto attached = Runtime(*directory_).Attach("tenant-a", "one", "/proc/self/ns/net");
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_THAT(attached->environment, ElementsAre("NIC=eth1"));
  EXPECT_EQ(attached->hooks.size(), 1U);
  std::stringstream text;
  text << std::ifstream(root_ / "state.json").rdbuf();
  const auto state = ParseJson(text.str());
  ASSERT_TRUE(state.ok()) << text.str();
  const auto pid = static_cast<pid_t>(state->at("pid").to_number<int>());
  EXPECT_GT(pid, 0);
  EXPECT_NE(kill(pid, 0), 0);  // the holder is gone
  EXPECT_TRUE(Runtime(*directory_).Attach("tenant-a", "one", std::to_string(getpid())).ok());
  EXPECT_FALSE(Runtime(*directory_).Attach("tenant-a", "one", "/nowhere").ok());
}

TEST_F(PlayerTest, AHookThatFailsOrHangsIsReportedWithItsWords) {
  if (geteuid() != 0) GTEST_SKIP() << "entering a network namespace needs root";
  StartDriver();
  ASSERT_TRUE(Kubelet(*directory_).Prepare("tenant-a", "one", DeadlineIn(seconds(20))).ok());
  WriteHook("echo 'no such link' >&2; exit 3\n");
  const absl::Status failed = Runtime(*directory_).Attach("tenant-a", "one", "/proc/self/ns/net").status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("no such link"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("exit code 3"));
  WriteHook("sleep 30\n");
  EXPECT_EQ(Runtime(*directory_).Attach("tenant-a", "one", "/proc/self/ns/net").status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace tranche::local
