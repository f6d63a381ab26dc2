// Two real hosts on one node, as a rolling update runs them, and allocations that no scheduler made: together they ask for more than the uplink has. All
// arrive at once on both hosts' DRA sockets. Exactly what fits may be granted, and kernel, store and files must agree on it.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "local/directory.h"
#include "local/dra_client.h"
#include "store/store.h"
#include "support/network.h"
#include "support/process.h"

namespace tranche::test {
namespace {

constexpr char kDriver[] = "vnic.tranche.dev";
constexpr int kClaims = 64;
constexpr int kFit = 40;  // 800 Mbit/s published, 20 Mbit/s each
constexpr std::int64_t kShareBits = 20'000'000;
constexpr std::int64_t kPublishedBits = 800'000'000;

std::string Configuration() {
  const std::string hook = Binary("vnic-attach");
  return "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n- name: uplink\n  library: vnic_tc\n  isolation: in-process\n"
         "  config:\n    parents: [{interface: up0, bandwidth: 1G, subnet: 10.99.0.0/24}]\n    attachHook: " +
         hook + "\n  allowEdits: {hooks: [" + std::filesystem::path(hook).parent_path().string() +
         "/]}\ndrivers:\n- name: vnic.tranche.dev\n  offers:\n  - name: shared\n    backend: uplink\n    mode: share\n    capacity:\n"
         "      bandwidth: {default: 20M, min: 10M, max: 500M, step: 10M, reserve: 20%}\n"
         "  classes:\n  - name: vnic-shared\n    offer: shared\n    namespaces: {allow: [\"team-*\"]}\n";
}

// What one claim was told by one host.
struct Answer {
  int host = 0;
  absl::Status status;
};
using Answers = std::map<std::string, std::vector<Answer>>;  // by claim UID

class HostRaceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { network_ = EnterPrivateNetwork() && MakeUplink(); }

  void SetUp() override {
    if (!network_) GTEST_SKIP() << "needs root and network namespaces";
    node_ = std::make_unique<LocalNode>(directory_.path() + "/node", Configuration());
    ASSERT_TRUE(node_->Start()) << node_->Log();
    second_ =
        std::make_unique<ChildProcess>(std::vector<std::string>{Binary("tranched"), "--local", node_->directory(), "--config", node_->configuration_path(),
                                                                "--backend-directory", BackendDirectory(), "--node-name", "node-1", "--instance", "second"},
                                       Environment{}, node_->directory() + "/second.log");
    ASSERT_TRUE(Eventually([&] { return Plugins().size() == 2; }, std::chrono::seconds(30))) << node_->Log();
    for (const local::Plugin& plugin : Plugins()) {
      auto client = local::DraClient::Connect(plugin, local::ProtocolVersion::kV1);
      ASSERT_TRUE(client.ok()) << client.status();
      hosts_.push_back(*std::move(client));
    }
  }

  void TearDown() override {
    hosts_.clear();
    if (second_ != nullptr) {
      second_->Signal(SIGTERM);
      EXPECT_EQ(second_->Wait(), 0);
    }
    if (node_ == nullptr) return;
    EXPECT_EQ(node_->Terminate(), 0);
  }

  std::vector<local::Plugin> Plugins() const {
    auto plugins = local::FindPlugins(node_->directory() + "/plugins_registry", DeadlineIn(std::chrono::seconds(10)));
    return plugins.ok() ? *plugins : std::vector<local::Plugin>();
  }

  // A claim that says it was given 20 Mbit/s, whatever is left.
  ClaimReference Forge(int number) {
    Claim claim;
    claim.namespace_name = "team-a";
    claim.name = "forged-" + std::to_string(number);
    claim.uid = NewUuid();
    DeviceRequest request;
    request.name = "net";
    request.device_class = "vnic-shared";
    claim.requests = {request};
    AllocationResult result;
    result.request = "net";
    result.driver = kDriver;
    result.pool = "node-1";
    result.device = "up0-shared";
    result.share_id = NewUuid();
    result.consumed_capacity = {{"bandwidth", Quantity::FromInt64(kShareBits)}, {"shares", Quantity::FromInt64(1)}};
    claim.allocation = Allocation{{result}, {}};
    claim.reserved_for = {{"pods", "pod-" + claim.name, NewUuid()}};
    const auto directory = local::Directory::Open(node_->directory());
    EXPECT_TRUE(directory.ok()) << directory.status();
    const absl::Status written = directory->WriteClaim(claim);
    EXPECT_TRUE(written.ok()) << written;
    return {claim.namespace_name, claim.name, claim.uid};
  }

  // One thread a call, all let go together: claim i at host i % 2, or every claim at both.
  Answers PrepareAtOnce(const std::vector<ClaimReference>& claims, bool at_both) {
    Answers answers;
    std::mutex mutex;
    std::vector<std::thread> callers;
    std::latch start(static_cast<std::ptrdiff_t>(claims.size() * (at_both ? 2 : 1)));
    for (std::size_t i = 0; i < claims.size(); ++i) {
      for (int host = 0; host < 2; ++host) {
        if (!at_both && host != static_cast<int>(i % 2)) continue;
        callers.emplace_back([&, i, host] {
          start.arrive_and_wait();
          const auto said = hosts_[static_cast<std::size_t>(host)]->Prepare({claims[i]}, DeadlineIn(std::chrono::seconds(45)));
          const std::lock_guard lock(mutex);
          answers[claims[i].uid].push_back({host, said.at(claims[i].uid).status()});
        });
      }
    }
    for (std::thread& caller : callers) caller.join();
    return answers;
  }

  std::vector<store::ShareRow> Rows() const {
    std::vector<store::ShareRow> rows;
    const auto opened = store::Store::Open(node_->directory() + "/state/tranche.db", store::OpenMode::kReadOnly);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) return rows;
    const absl::Status read = (*opened)->Read([&](store::Transaction& transaction) -> absl::Status {
      TRANCHE_ASSIGN_OR_RETURN(rows, transaction.Shares());
      TRANCHE_ASSIGN_OR_RETURN(const auto claims, transaction.Claims());
      for (const store::ClaimRow& claim : claims) EXPECT_EQ(claim.state, store::ClaimState::kPrepared) << claim.name << ": " << claim.reason;
      EXPECT_EQ(claims.size(), rows.size());
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read;
    return rows;
  }

  // Rates of the kernel's share classes on the uplink, by classid as tc writes it.
  static std::map<std::string, std::int64_t> KernelRates() {
    std::map<std::string, std::int64_t> rates;
    std::istringstream lines(RunProgram({"tc", "class", "show", "dev", "up0"}).output);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind, scheduler, id, word, rate;
      words >> kind >> scheduler >> id;
      if (id == "7a6:ffff" || id == "7a6:fffe") continue;  // the parent's and the default class
      while (words >> word) {
        if (word == "rate") words >> rate;
      }
      const std::int64_t unit = rate.find("Gbit") != std::string::npos   ? 1'000'000'000
                                : rate.find("Mbit") != std::string::npos ? 1'000'000
                                : rate.find("Kbit") != std::string::npos ? 1'000
                                                                         : 1;
      rates[id] = std::stoll("0" + rate) * unit;
    }
    return rates;
  }

  int CdiFiles() const {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(node_->directory() + "/cdi")) files += entry.is_regular_file() ? 1 : 0;
    return files;
  }

  // Store, kernel and files hold the same shares, each whole. A host that takes another's release for a lost share makes it again and finds out: that
  // moment may pass.
  void ExpectAgreement(const std::set<std::string>& granted) {
    const int wanted = static_cast<int>(granted.size());
    Eventually([&] { return CdiFiles() == wanted && ReadKernelState().share_links == wanted && static_cast<int>(KernelRates().size()) == wanted; });
    const std::vector<store::ShareRow> rows = Rows();
    const std::map<std::string, std::int64_t> kernel = KernelRates();
    const KernelState links = ReadKernelState();
    EXPECT_EQ(links.share_links, static_cast<int>(granted.size())) << links.text;
    EXPECT_EQ(kernel.size(), granted.size());
    EXPECT_EQ(CdiFiles(), static_cast<int>(granted.size()));
    std::int64_t sum = 0;
    for (const auto& [id, rate] : kernel) sum += rate;
    EXPECT_LE(sum, kPublishedBits);
    std::set<std::string> stored, ids;
    for (const store::ShareRow& row : rows) {
      stored.insert(row.key.claim_uid);
      EXPECT_EQ(row.state, store::ShareState::kApplied);
      ASSERT_TRUE(row.applied.has_value());
      EXPECT_EQ(row.applied->applied, AppliedState::kComplete);
      for (const LimitInForce& limit : row.applied->limits) {
        EXPECT_EQ(limit.in_force, kShareBits);
        if (limit.direction != "egress") continue;
        std::istringstream words(limit.mechanism);  // "htb class 7a6:1 on up0"
        std::string word, id;
        words >> word >> word >> id;
        EXPECT_TRUE(ids.insert(id).second) << "two rows name class " << id;
        ASSERT_TRUE(kernel.contains(id)) << "the kernel has no class " << id;
        EXPECT_EQ(kernel.at(id), kShareBits) << id;
      }
    }
    EXPECT_EQ(stored, granted);
    EXPECT_EQ(ids.size(), granted.size());
  }

  void Race(bool at_both) {
    std::vector<ClaimReference> claims;
    for (int i = 0; i < kClaims; ++i) claims.push_back(Forge(i));
    const Answers answers = PrepareAtOnce(claims, at_both);

    std::set<std::string> granted;
    std::vector<ClaimReference> refused;
    for (const ClaimReference& claim : claims) {
      bool held = false;
      for (const Answer& answer : answers.at(claim.uid)) {
        held = held || answer.status.ok();
        if (answer.status.ok()) continue;
        EXPECT_TRUE(IsRetryable(answer.status)) << answer.status;
        const std::string text(answer.status.message());
        const bool names_shortage = text.find("bandwidth") != std::string::npos && text.find("missing 20M") != std::string::npos;
        const bool at_the_other_host = at_both && text.find("another host process") != std::string::npos;
        EXPECT_TRUE(names_shortage || at_the_other_host) << text;
      }
      if (held) granted.insert(claim.uid);
      if (!held) refused.push_back(claim);
    }
    EXPECT_EQ(granted.size(), static_cast<std::size_t>(kFit));
    ASSERT_NO_FATAL_FAILURE(ExpectAgreement(granted));

    // Each is released by the host that did not prepare it; then one that was refused fits, with nothing changed but what is left.
    for (const ClaimReference& claim : claims) {
      const int host = 1 - answers.at(claim.uid).front().host;
      const auto released = hosts_[static_cast<std::size_t>(host)]->Unprepare({claim}, DeadlineIn(std::chrono::seconds(45)));
      EXPECT_TRUE(released.at(claim.uid).ok()) << released.at(claim.uid);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAgreement({}));
    ASSERT_FALSE(refused.empty());
    const auto retried = hosts_[1]->Prepare({refused.front()}, DeadlineIn(std::chrono::seconds(45)));
    EXPECT_TRUE(retried.at(refused.front().uid).ok()) << retried.at(refused.front().uid).status();
    ASSERT_NO_FATAL_FAILURE(ExpectAgreement({refused.front().uid}));
    EXPECT_TRUE(hosts_[0]->Unprepare({refused.front()}, DeadlineIn(std::chrono::seconds(45))).at(refused.front().uid).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectAgreement({}));
    const KernelState left = ReadKernelState();
    EXPECT_EQ(left.share_links + left.parked_links + left.classes + left.bridges, 0) << left.text;
  }

  static bool network_;
  TemporaryDirectory directory_;
  std::unique_ptr<LocalNode> node_;
  std::unique_ptr<ChildProcess> second_;
  std::vector<std::unique_ptr<local::DraClient>> hosts_;
};

bool HostRaceTest::network_ = false;

TEST_F(HostRaceTest, ForgedAllocationsAtTwoHostsAreGrantedUpToWhatFits) { Race(false); }
TEST_F(HostRaceTest, TheSameForgedAllocationsAtBothHostsAtOnce) { Race(true); }

}  // namespace
}  // namespace tranche::test
