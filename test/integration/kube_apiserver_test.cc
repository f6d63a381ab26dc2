// The API client against a real API server: TLS, HTTP/2, validation, conflicts, watches across a restart of the server.
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/claim_reader.h"
#include "kube/client.h"
#include "kube/slice_api.h"
#include "support/api_server.h"
#include "support/process.h"

namespace tranche::kube {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace json = boost::json;

constexpr char kClaims[] = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
constexpr char kSlices[] = "/apis/resource.k8s.io/v1/resourceslices";

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of this process.
long OpenSockets() {
  long sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    sockets += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:") ? 1 : 0;
  }
  return sockets;
}

json::object ClaimObject(const std::string& name) {
  return json::parse(
             R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":")" + name +
             R"("},"spec":{"devices":{"requests":[{"name":"nic","exactly":{"deviceClassName":"shared","capacity":{"requests":{"bandwidth":"50M"}}}}]}}})")
      .as_object();
}

slices::Slice SliceOf(const std::string& node, const std::string& driver) {
  slices::Slice slice;
  slice.generate_name = "00000-" + driver + "-" + node + "-";
  slice.driver = driver;
  slice.node_name = node;
  slice.pool_name = node;
  slice.generation = slice.slice_count = 1;
  return slice;
}

class KubeOnApiServer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (test::ApiServer::Missing().empty()) server_ = test::ApiServer::Start();
  }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    if (const std::string missing = test::ApiServer::Missing(); !missing.empty()) GTEST_SKIP() << "NOT TESTED: " << missing;
    ASSERT_NE(server_, nullptr);
    client_ = Connect(server_->kubeconfig());
    ASSERT_NE(client_, nullptr);
  }

  static std::unique_ptr<Client> Connect(const std::string& kubeconfig) {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Create({.kubeconfig = kubeconfig});
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // A node's slices, and nothing of a former test.
  void RemoveSlices() {
    const auto items = client_->List(kSlices, DeadlineIn(30s));
    ASSERT_TRUE(items.ok()) << items.status();
    for (const json::object& item : *items) {
      const std::string name(item.at("metadata").at("name").as_string().c_str());
      ASSERT_TRUE(client_->Delete(std::string(kSlices) + "/" + name, {}, DeadlineIn(30s)).ok());
    }
  }

  static inline std::unique_ptr<test::ApiServer> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(KubeOnApiServer, TellsItsVersion) {
  const auto version = client_->Version(DeadlineIn(30s));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->major, 1);
  EXPECT_GE(version->minor, 36);
}

TEST_F(KubeOnApiServer, ClaimsAreCreatedReadReplacedPatchedAndDeleted) {
  const std::string path = std::string(kClaims) + "/crud";
  auto created = client_->Create(kClaims, ClaimObject("crud"), DeadlineIn(30s));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(client_->Create(kClaims, ClaimObject("crud"), DeadlineIn(30s)).status().code(), absl::StatusCode::kAlreadyExists);

  ApiClaimReader reader(*client_);
  const auto claim = reader.ReadClaim({"default", "crud", ""}, DeadlineIn(30s));
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->uid, created->at("metadata").at("uid").as_string().c_str());

  json::object labelled = *created;
  labelled["metadata"].as_object()["labels"] = {{"a", "b"}};
  const auto replaced = client_->Replace(path, labelled, DeadlineIn(30s));
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  // Written again with the version that was replaced: a conflict.
  labelled["metadata"].as_object()["labels"] = {{"a", "c"}};
  EXPECT_EQ(client_->Replace(path, labelled, DeadlineIn(30s)).status().code(), absl::StatusCode::kAborted);

  const auto merged = client_->Patch(path, PatchKind::kMerge, json::parse(R"({"metadata":{"labels":{"m":"1"}}})"), DeadlineIn(30s));
  ASSERT_TRUE(merged.ok()) << merged.status();
  const auto strategic = client_->Patch(path, PatchKind::kStrategic, json::parse(R"({"metadata":{"labels":{"s":"1"}}})"), DeadlineIn(30s));
  ASSERT_TRUE(strategic.ok()) << strategic.status();
  const auto patched = client_->Patch(path, PatchKind::kJson, json::parse(R"([{"op":"add","path":"/metadata/labels/j","value":"1"}])"), DeadlineIn(30s));
  ASSERT_TRUE(patched.ok()) << patched.status();
  const auto applied =
      client_->Patch(path + "?fieldManager=test&force=true", PatchKind::kApply,
                     json::parse(R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"labels":{"p":"1"}}})"), DeadlineIn(30s));
  ASSERT_TRUE(applied.ok()) << applied.status();
  const json::object& labels = applied->at("metadata").at("labels").as_object();
  for (const char* label : {"a", "m", "s", "j", "p"}) EXPECT_TRUE(labels.contains(label)) << label;

  EXPECT_EQ(client_->Delete(path, {.uid = "other", .resource_version = ""}, DeadlineIn(30s)).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(client_->Delete(path, {.uid = claim->uid, .resource_version = ""}, DeadlineIn(30s)).ok());
  EXPECT_EQ(client_->Get(path, DeadlineIn(30s)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KubeOnApiServer, WhatValidationRefusesIsInvalidAndNamesTheField) {
  json::object claim = ClaimObject("invalid");
  claim["spec"].as_object()["devices"].as_object()["requests"].as_array()[0].as_object()["name"] = "NOT VALID";
  const absl::Status status = client_->Create(kClaims, claim, DeadlineIn(30s)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(": 422 Invalid: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.devices.requests[0].name"));
}

TEST_F(KubeOnApiServer, AnotherCertificateAuthorityIsNotTrusted) {
  test::TemporaryDirectory directory;
  ASSERT_EQ(test::RunProgram({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=other", "-keyout",
                              directory.path() + "/key", "-out", directory.path() + "/ca"})
                .exit_code,
            0);
  std::string text = ReadText(server_->kubeconfig());
  const std::string field = "certificate-authority: \"";
  const std::size_t begin = text.find(field) + field.size();
  text.replace(begin, text.find('"', begin) - begin, directory.path() + "/ca");
  std::ofstream(directory.path() + "/kubeconfig") << text;
  const auto stranger = Connect(directory.path() + "/kubeconfig");
  const absl::Status status = stranger->Version(DeadlineIn(10s)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no trusted connection"));
}

TEST_F(KubeOnApiServer, TheNameInTheCertificateMayDifferFromTheHost) {
  test::TemporaryDirectory directory;
  const std::string text = ReadText(server_->kubeconfig());
  const auto reach = [&](const std::string& name) {
    std::string named = text;
    named.insert(text.find("server: "), "tls-server-name: " + name + ", ");
    std::ofstream(directory.path() + "/" + name) << named;
    return Connect(directory.path() + "/" + name)->Version(DeadlineIn(30s)).status();
  };
  EXPECT_TRUE(reach("kubernetes").ok());
  EXPECT_THAT(std::string(reach("stranger").message()), HasSubstr("no trusted connection"));
}

TEST_F(KubeOnApiServer, AnotherTokenIsUnauthenticatedAndOthersRightsAreForbidden) {
  test::TemporaryDirectory directory;
  const std::string text = ReadText(server_->kubeconfig());
  const std::size_t token = text.find("token: \"") + 8;
  std::string wrong = text;
  wrong.replace(token, 4, "0000");
  std::ofstream(directory.path() + "/wrong") << wrong;
  EXPECT_EQ(Connect(directory.path() + "/wrong")->Get(kSlices, DeadlineIn(30s)).status().code(), absl::StatusCode::kUnauthenticated);
  std::string impersonating = text;
  impersonating.insert(token - 8, "as: nobody, as-groups: [strangers], ");
  std::ofstream(directory.path() + "/nobody") << impersonating;
  EXPECT_EQ(Connect(directory.path() + "/nobody")->Get(kSlices, DeadlineIn(30s)).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(KubeOnApiServer, ManyFirstCallsShareOneConnection) {
  const auto burst = Connect(server_->kubeconfig());
  const long sockets = OpenSockets();
  std::mutex mutex;
  int good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      const bool ok = burst->Get("/api/v1/namespaces/default", DeadlineIn(30s)).ok();
      const std::lock_guard lock(mutex);
      good += ok ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 64);
  EXPECT_EQ(OpenSockets(), sockets + 1);
}

TEST_F(KubeOnApiServer, ListsOfSeveralPagesAreWhole) {
  constexpr int kCount = 620;  // more than a page
  for (int i = 0; i < kCount; ++i) {
    const json::object map{{"metadata", {{"generateName", "page-"}, {"labels", {{"test", "pages"}}}}}};
    ASSERT_TRUE(client_->Create("/api/v1/namespaces/default/configmaps", map, DeadlineIn(30s)).ok());
  }
  const auto items = client_->List("/api/v1/namespaces/default/configmaps?labelSelector=test%3Dpages", DeadlineIn(60s));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_EQ(items->size(), static_cast<std::size_t>(kCount));
  EXPECT_EQ(items->back().at("kind").as_string(), "ConfigMap");
}

// What a slice watch was told.
class SliceRecorder {
 public:
  slices::SliceWatchHandler Handler() {
    return {
        .on_list = [this](const std::vector<slices::Slice>& slices) { Add("list " + std::to_string(slices.size())); },
        .on_changed = [this](const slices::Slice& slice) { Add("changed " + slice.name + " " + std::to_string(slice.generation)); },
        .on_deleted = [this](const std::string& name, const std::string&) { Add("deleted " + name); },
        .on_problem = [this](const absl::Status& problem) { Add(problem.ok() ? "works" : "problem"); },
    };
  }
  bool Saw(const std::string& line) {
    return test::Eventually([&] { return Count(line) > 0; }, 60s);
  }
  long Count(const std::string& line) {
    const std::lock_guard lock(mutex_);
    return std::count(lines_.begin(), lines_.end(), line);
  }

 private:
  void Add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(KubeOnApiServer, SlicesAreWrittenAndWatchedByNodeAndDriver) {
  RemoveSlices();
  ApiSliceApi api(*client_, "n1");
  SliceRecorder seen;
  const auto watch = api.Watch("d.example.com", seen.Handler());
  ASSERT_TRUE(seen.Saw("list 0"));
  EXPECT_EQ(api.ReadNode(DeadlineIn(30s)).status().code(), absl::StatusCode::kNotFound);
  const auto dry = api.DryRunCreate(SliceOf("n1", "d.example.com"), DeadlineIn(30s));
  ASSERT_TRUE(dry.ok()) << dry.status();
  auto created = api.Create(SliceOf("n1", "d.example.com"), DeadlineIn(30s));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_THAT(created->name, testing::StartsWith("00000-d.example.com-n1-"));
  ASSERT_TRUE(api.Create(SliceOf("n2", "d.example.com"), DeadlineIn(30s)).ok());
  ASSERT_TRUE(api.Create(SliceOf("n1", "other.example.com"), DeadlineIn(30s)).ok());
  EXPECT_TRUE(seen.Saw("changed " + created->name + " 1"));
  slices::Slice next = *created;
  next.generation = 2;
  const auto replaced = api.Replace(next, DeadlineIn(30s));
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_TRUE(seen.Saw("changed " + created->name + " 2"));
  next.generation = 3;
  EXPECT_EQ(api.Replace(next, DeadlineIn(30s)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(api.Delete(*created, DeadlineIn(30s)).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(api.Delete(*replaced, DeadlineIn(30s)).ok());
  EXPECT_TRUE(seen.Saw("deleted " + created->name));
  slices::Slice invalid = SliceOf("n1", "NOT A DRIVER");
  EXPECT_EQ(api.Create(invalid, DeadlineIn(30s)).status().code(), absl::StatusCode::kInvalidArgument);
}

// The server's process, killed and started again with the same command line.
class Restart {
 public:
  explicit Restart(const std::string& kubeconfig) : directory_(kubeconfig.substr(0, kubeconfig.rfind('/'))) {
    const pid_t pid = std::stoi(ReadText(directory_ + "/kube-apiserver.pid"));
    const std::string line = ReadText("/proc/" + std::to_string(pid) + "/cmdline");
    for (std::size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) command_.emplace_back(line.c_str() + at);
    ::kill(pid, SIGKILL);
    gone_ = test::Eventually([pid] { return ReadText("/proc/" + std::to_string(pid) + "/cmdline").empty(); });
  }
  bool gone() const { return gone_; }
  void StartAgain() {
    child_ = std::make_unique<test::ChildProcess>(command_, test::Environment{}, directory_ + "/restarted.log");
    std::ofstream(directory_ + "/kube-apiserver.pid", std::ios::trunc) << child_->pid() << "\n";
  }

 private:
  const std::string directory_;
  std::vector<std::string> command_;
  bool gone_ = false;
  std::unique_ptr<test::ChildProcess> child_;
};

// Last: the server that it leaves ends with it.
TEST_F(KubeOnApiServer, WatchesAndCallsSurviveARestartOfTheServer) {
  RemoveSlices();
  ApiSliceApi api(*client_, "n1");
  SliceRecorder seen;
  const auto watch = api.Watch("d.example.com", seen.Handler());
  ASSERT_TRUE(seen.Saw("list 0"));
  const auto before = api.Create(SliceOf("n1", "d.example.com"), DeadlineIn(30s));
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(seen.Saw("changed " + before->name + " 1"));
  Restart restart(server_->kubeconfig());
  ASSERT_TRUE(restart.gone());
  ASSERT_TRUE(seen.Saw("problem"));
  EXPECT_EQ(client_->Get(kSlices, DeadlineIn(300ms)).status().code(), absl::StatusCode::kUnavailable);
  restart.StartAgain();
  // A call inside its deadline waits for the server.
  EXPECT_TRUE(test::Eventually([&] { return client_->Get(kSlices, DeadlineIn(60s)).ok(); }, 120s));
  const auto after = api.Create(SliceOf("n1", "d.example.com"), DeadlineIn(60s));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(seen.Saw("works"));
  EXPECT_TRUE(seen.Saw("changed " + after->name + " 1") || seen.Saw("list 2"));
  EXPECT_EQ(seen.Count("problem"), seen.Count("works"));
}

}  // namespace
}  // namespace tranche::kube
