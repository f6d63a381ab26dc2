// SIGKILL at every durable step of one prepare and one unprepare. The program itself enumerates its fault points: a first run writes each one
// that it passes, and each of them is then the place where a run of its own dies. After the restart the node must hold exactly what the store says, and the
// retry must end as if nothing had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/store.h"
#include "support/network.h"
#include "support/process.h"

namespace tranche::test {
namespace {

constexpr char kConfiguration[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: vnic_tc
  isolation: in-process
  config:
    parents: [{interface: up0, bandwidth: 1G, subnet: 10.99.0.0/24}]
    attachHook: HOOK
  allowEdits: {hooks: [HOOKDIR]}
drivers:
- name: vnic.tranche.dev
  offers:
  - name: shared
    backend: uplink
    mode: share
    capacity:
      bandwidth: {default: 50M, min: 10M, max: 500M, step: 10M, reserve: 10%}
  classes:
  - name: vnic-shared
    offer: shared
    namespaces: {allow: ["team-*"]}
)";

std::string Configuration() {
  std::string text(kConfiguration);
  const std::string hook = Binary("vnic-attach");
  text.replace(text.find("HOOKDIR"), 7, std::filesystem::path(hook).parent_path().string() + "/");
  text.replace(text.find("HOOK"), 4, hook);
  return text;
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// One place to die: the N-th time that the process passes `name`.
struct Place {
  std::string name;
  int occurrence = 0;
  std::string Text() const { return name + "#" + std::to_string(occurrence); }
};

std::vector<Place> PlacesBetween(const std::vector<std::string>& trace, std::size_t from, std::size_t to) {
  std::map<std::string, int> passed;
  std::vector<Place> places;
  for (std::size_t i = 0; i < to; ++i) {
    const int occurrence = ++passed[trace[i]];
    if (i >= from) places.push_back({trace[i], occurrence});
  }
  return places;
}

struct DurableState {
  std::vector<store::ClaimRow> claims;
  std::vector<store::ShareRow> shares;
};

class KillTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { network_ = EnterPrivateNetwork() && MakeUplink(); }

  void SetUp() override {
    if (!network_) GTEST_SKIP() << "needs root and network namespaces";
    node_ = std::make_unique<LocalNode>(directory_.path() + "/node", Configuration());
  }

  void TearDown() override {
    if (!network_) return;
    node_.reset();
    // A failed case must not disturb the next one.
    for (const char* command : {"ip -o link | grep -oE ' (vs|trb)[0-9a-f]+' | xargs -rn1 ip link del", "tc qdisc del dev up0 root 2>/dev/null; true"}) {
      RunProgram({"sh", "-c", command});
    }
  }

  void Allocate() {
    ASSERT_EQ(node_->Apply(ClaimManifest("team-a", "nic", "vnic-shared", {{"bandwidth", "50M"}})).exit_code, 0);
    const RunResult allocated = node_->Ctl({"local", "allocate", "team-a/nic"});
    ASSERT_EQ(allocated.exit_code, 0) << allocated.error;
  }
  RunResult Prepare() { return node_->Ctl({"local", "prepare", "team-a/nic"}); }
  RunResult Unprepare() { return node_->Ctl({"local", "unprepare", "team-a/nic"}); }

  DurableState ReadStore() {
    DurableState state;
    auto opened = store::Store::Open(StorePath(), store::OpenMode::kReadOnly);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) return state;
    const absl::Status status = (*opened)->Read([&](store::Transaction& transaction) -> absl::Status {
      TRANCHE_ASSIGN_OR_RETURN(state.claims, transaction.Claims());
      TRANCHE_ASSIGN_OR_RETURN(state.shares, transaction.Shares());
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return state;
  }

  std::string StorePath() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(node_->directory())) {
      if (entry.path().filename() == "tranche.db") return entry.path();
    }
    return node_->directory() + "/state/tranche.db";
  }

  int CdiFiles() const {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(node_->directory() + "/cdi")) files += entry.is_regular_file() ? 1 : 0;
    return files;
  }

  void ExpectPrepared(const std::string& where) {
    const DurableState state = ReadStore();
    ASSERT_EQ(state.claims.size(), 1u) << where;
    EXPECT_EQ(state.claims[0].state, store::ClaimState::kPrepared) << where;
    ASSERT_EQ(state.shares.size(), 1u) << where;
    EXPECT_EQ(state.shares[0].state, store::ShareState::kApplied) << where;
    const KernelState kernel = ReadKernelState();
    EXPECT_EQ(kernel.share_links, 1) << where << "\n" << kernel.text;
    EXPECT_EQ(kernel.classes, 1) << where << "\n" << kernel.text;
    EXPECT_EQ(CdiFiles(), 1) << where;
  }

  void ExpectNothing(const std::string& where) {
    const DurableState state = ReadStore();
    EXPECT_TRUE(state.claims.empty()) << where;
    EXPECT_TRUE(state.shares.empty()) << where;
    const KernelState kernel = ReadKernelState();
    EXPECT_EQ(kernel.share_links + kernel.parked_links + kernel.classes + kernel.bridges, 0) << where << "\n" << kernel.text;
    EXPECT_EQ(CdiFiles(), 0) << where;
  }

  // What start-up left must agree with itself, whichever way it decided: a share is in the store, the kernel and the files, or in none.
  // The comparison at start may still be at work when the admin socket answers.
  void ExpectConsistent(const std::string& where) {
    Eventually([&] {
      const DurableState now = ReadStore();
      const int shares = static_cast<int>(now.shares.size());
      const bool settled = std::all_of(now.shares.begin(), now.shares.end(), [](const auto& share) { return share.state == store::ShareState::kApplied; });
      return settled && ReadKernelState().share_links == shares && ReadKernelState().classes == shares && CdiFiles() == shares;
    });
    const DurableState state = ReadStore();
    const KernelState kernel = ReadKernelState();
    const int shares = static_cast<int>(state.shares.size());
    EXPECT_EQ(kernel.share_links, shares) << where << "\n" << kernel.text;
    EXPECT_EQ(kernel.classes, shares) << where << "\n" << kernel.text;
    EXPECT_EQ(CdiFiles(), shares) << where;
    for (const store::ShareRow& share : state.shares) EXPECT_EQ(share.state, store::ShareState::kApplied) << where;
  }

  // Passes of one prepare and one unprepare, as the program names them.
  void Enumerate(std::vector<Place>& prepare, std::vector<Place>& unprepare) {
    const std::string trace = directory_.path() + "/trace";
    ASSERT_TRUE(node_->Start({{"TRANCHE_FAULT_TRACE", trace}})) << node_->Log();
    ASSERT_NO_FATAL_FAILURE(Allocate());
    const std::size_t before = ReadLines(trace).size();
    const RunResult prepared = Prepare();
    ASSERT_EQ(prepared.exit_code, 0) << prepared.error << node_->Log();
    const std::size_t middle = ReadLines(trace).size();
    ASSERT_EQ(Unprepare().exit_code, 0);
    const std::vector<std::string> lines = ReadLines(trace);
    ASSERT_EQ(node_->Terminate(), 0);
    prepare = PlacesBetween(lines, before, middle);
    unprepare = PlacesBetween(lines, middle, lines.size());
    // A build without fault points would make this test pass on nothing.
    ASSERT_GE(prepare.size(), 4u);
    ASSERT_GE(unprepare.size(), 3u);
    std::cout << prepare.size() << " places in prepare, " << unprepare.size() << " in unprepare\n";
    ASSERT_NO_FATAL_FAILURE(ResetNode());
  }

  void ResetNode() {
    const std::string directory = node_->directory();
    node_.reset();
    std::filesystem::remove_all(directory);
    node_ = std::make_unique<LocalNode>(directory, Configuration());
  }

  void Restart(const std::string& where) {
    EXPECT_EQ(node_->process().Wait(), 128 + SIGKILL) << where << ": the process did not reach the place";
    ASSERT_TRUE(node_->Start()) << where << "\n" << node_->Log();
    ExpectConsistent(where + " after the restart");
  }

  static bool network_;
  TemporaryDirectory directory_;
  std::unique_ptr<LocalNode> node_;
};

bool KillTest::network_ = false;

TEST_F(KillTest, EveryStepOfPrepareAndUnprepare) {
  std::vector<Place> prepare, unprepare;
  ASSERT_NO_FATAL_FAILURE(Enumerate(prepare, unprepare));

  for (const Place& place : prepare) {
    const std::string where = "killed in prepare at " + place.Text();
    SCOPED_TRACE(where);
    ASSERT_TRUE(node_->Start({{"TRANCHE_FAULT_KILL", place.Text()}})) << node_->Log();
    ASSERT_NO_FATAL_FAILURE(Allocate());
    EXPECT_NE(Prepare().exit_code, 0) << where << ": an answer came from a dead host";
    ASSERT_NO_FATAL_FAILURE(Restart(where));
    const RunResult retried = Prepare();
    ASSERT_EQ(retried.exit_code, 0) << where << "\n" << retried.error << node_->Log();
    ExpectPrepared(where + ", prepared again");
    EXPECT_EQ(Unprepare().exit_code, 0) << where;
    ExpectNothing(where + ", unprepared");
    EXPECT_EQ(node_->Terminate(), 0) << where;
    ASSERT_NO_FATAL_FAILURE(ResetNode());
  }

  for (const Place& place : unprepare) {
    const std::string where = "killed in unprepare at " + place.Text();
    SCOPED_TRACE(where);
    ASSERT_TRUE(node_->Start({{"TRANCHE_FAULT_KILL", place.Text()}})) << node_->Log();
    ASSERT_NO_FATAL_FAILURE(Allocate());
    ASSERT_EQ(Prepare().exit_code, 0) << node_->Log();
    ExpectPrepared(where + ", before");
    EXPECT_NE(Unprepare().exit_code, 0) << where << ": an answer came from a dead host";
    ASSERT_NO_FATAL_FAILURE(Restart(where));
    EXPECT_EQ(Unprepare().exit_code, 0) << where << "\n" << node_->Log();
    ExpectNothing(where + ", unprepared again");
    EXPECT_EQ(node_->Terminate(), 0) << where;
    ASSERT_NO_FATAL_FAILURE(ResetNode());
  }
}

}  // namespace
}  // namespace tranche::test
