// tranched as a program, in local mode, with backends that need no hardware.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "base/ids.h"
#include "support/process.h"

namespace tranche::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct OfferText {
  std::string name, policy;
};

// One null backend of one device; each offer is a share of its memory and has a class of its own name.
std::string Configuration(const std::vector<OfferText>& offers, const std::string& more_backends = "") {
  std::string text =
      "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n"
      "- name: fake\n  library: null_backend\n  isolation: in-process\n  config: {devices: 1, env: [\"FAKE=1\"]}\n  allowEdits: {env: [FAKE]}\n" +
      more_backends + "drivers:\n- name: fake.tranche.dev\n  offers:\n";
  for (const OfferText& offer : offers) {
    text += "  - name: " + offer.name + "\n    backend: fake\n    mode: share\n    capacity:\n      memory: {" + offer.policy + "}\n" +
            "      bandwidth: {default: 1G, min: 1G, max: 100G, step: 1G}\n";
  }
  text += "  classes:\n";
  for (const OfferText& offer : offers) text += "  - name: " + offer.name + "\n    offer: " + offer.name + "\n    namespaces: {allow: [\"team-*\"]}\n";
  return text;
}

const OfferText kShared{"shared", "default: 1Gi, min: 1Gi, max: 40Gi, step: 1Gi"};

class HostTest : public ::testing::Test {
 protected:
  LocalNode& MakeNode(const std::string& configuration) {
    node_ = std::make_unique<LocalNode>(directory_.path() + "/node", configuration);
    return *node_;
  }

  static json::value Json(const RunResult& result) {
    boost::system::error_code error;
    json::value value = json::parse(result.output, error);
    EXPECT_FALSE(error) << result.output << result.error;
    return value;
  }

  json::value Ask(const std::vector<std::string>& command) {
    std::vector<std::string> arguments = {"-o", "json"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return Json(node_->Ctl(arguments));
  }

  // apply, allocate and prepare one claim of `memory`.
  RunResult Grant(const std::string& name, const std::string& device_class, const std::string& memory) {
    if (RunResult applied = node_->Apply(ClaimManifest("team-a", name, device_class, {{"memory", memory}})); applied.exit_code != 0) return applied;
    if (RunResult allocated = node_->Ctl({"local", "allocate", "team-a/" + name}); allocated.exit_code != 0) return allocated;
    return node_->Ctl({"local", "prepare", "team-a/" + name});
  }

  RunResult Release(const std::string& name) { return node_->Ctl({"local", "unprepare", "team-a/" + name}); }

  std::string Consumed(const std::string& name) {
    const json::value shares = Ask({"shares", "--claim", "team-a/" + name});
    return json::serialize(shares);
  }

  bool ConfigurationError(bool expected) {
    return Eventually([&] {
      const json::value status = Ask({"status"});
      return status.at("configuration").at("lastError").as_string().empty() != expected;
    });
  }

  int SharesInBackend() const {
    int shares = 0;
    for (const auto& entry : fs::recursive_directory_iterator(node_->directory())) shares += entry.path().extension() == ".share" ? 1 : 0;
    return shares;
  }

  int CdiFiles() const {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(node_->directory() + "/cdi")) files += entry.is_regular_file() ? 1 : 0;
    return files;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<LocalNode> node_;
};

// ---- a backend that cannot be loaded hurts itself only

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteText(const fs::path& path, const std::string& text) {
  {
    std::ofstream file(path, std::ios::binary);
    file << text;
  }
  ::chmod(path.c_str(), 0644);
}

// A file with the manifest of null_backend, made to name and match `content`.
void WriteBackend(const fs::path& directory, const std::string& name, const std::string& content) {
  json::object manifest = json::parse(ReadText(BackendDirectory() + "/null_backend.backend.json")).as_object();
  manifest["name"] = name;
  manifest["library"] = name + ".so";
  manifest["sha256"] = Sha256Hex(content);
  WriteText(directory / (name + ".backend.json"), json::serialize(manifest));
  WriteText(directory / (name + ".so"), content);
}

TEST_F(HostTest, BrokenBackendsAreRefusedAloneWithTheirReasons) {
  const fs::path backends = directory_.path() + "/backends";
  fs::create_directories(backends);
  for (const char* file : {"null_backend.so", "null_backend.backend.json"}) fs::copy(fs::path(BackendDirectory()) / file, backends / file);
  for (const char* kind : {"broken_major", "broken_magic"}) {
    for (const char* suffix : {".so", ".backend.json"}) {
      fs::copy(fs::path(TRANCHE_BINARY_DIRECTORY) / "fakes" / (std::string(kind) + suffix), backends / (std::string(kind) + suffix));
    }
  }
  const std::string good = ReadText(backends / "null_backend.so");
  WriteBackend(backends, "truncated", good.substr(0, good.size() / 3));
  WriteBackend(backends, "text", "this is not a shared object\n");
  WriteBackend(backends, "writable", good);
  ::chmod((backends / "writable.so").c_str(), 0666);
  WriteBackend(backends, "missing", good);
  fs::remove(backends / "missing.so");

  const std::map<std::string, std::string> expected = {{"missing", "missing.so"}, {"truncated", "truncated.so"}, {"text", "text.so"},
                                                       {"broken_major", "major"}, {"broken_magic", "magic"},     {"writable", "writable"}};
  std::string more;
  for (const auto& [library, reason] : expected) {
    std::string name = library;
    std::replace(name.begin(), name.end(), '_', '-');
    more += "- name: " + name + "\n  library: " + library + "\n  isolation: in-process\n";
  }
  MakeNode(Configuration({kShared}, more)).UseBackends(backends);
  ASSERT_TRUE(node_->Start()) << node_->Log();

  std::map<std::string, std::string> problems;
  const json::value status = Ask({"status"});
  for (const json::value& backend : status.at("backends").as_array()) {
    const json::value& problem = backend.at("problem");
    problems[std::string(backend.at("library").as_string())] = problem.is_null() ? "" : std::string(problem.at("message").as_string());
  }
  for (const auto& [library, reason] : expected) {
    EXPECT_NE(problems[library], "") << library << " was accepted";
    EXPECT_NE(problems[library].find(reason), std::string::npos) << library << ": " << problems[library];
  }
  EXPECT_EQ(problems["null_backend"], "");
  const RunResult granted = Grant("nic", "shared", "2Gi");
  EXPECT_EQ(granted.exit_code, 0) << granted.error;
  EXPECT_EQ(Release("nic").exit_code, 0);
  EXPECT_EQ(node_->Terminate(), 0);
}

// ---- unprepare needs nothing but durable state

TEST_F(HostTest, UnprepareSucceedsWhateverHappenedBefore) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  ASSERT_EQ(Grant("kept", "shared", "2Gi").exit_code, 0) << node_->Log();
  ASSERT_EQ(node_->Apply(ClaimManifest("team-a", "never", "shared", {{"memory", "2Gi"}})).exit_code, 0);
  ASSERT_EQ(node_->Ctl({"local", "allocate", "team-a/never"}).exit_code, 0);
  const RunResult unknown = Release("never");
  EXPECT_EQ(unknown.exit_code, 0) << "never prepared: " << unknown.error;

  EXPECT_EQ(SharesInBackend(), 1);
  EXPECT_EQ(node_->Terminate(), 0);
  // The file of the next start knows neither the offer nor the class of the share that lives.
  node_->WriteConfiguration(Configuration({{"other", "default: 1Gi, min: 1Gi, max: 8Gi, step: 1Gi"}}));
  ASSERT_TRUE(node_->Start()) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 1) << "a restart with another configuration dropped a live share";
  const RunResult released = Release("kept");
  EXPECT_EQ(released.exit_code, 0) << released.error << node_->Log();
  EXPECT_EQ(SharesInBackend(), 0);
  EXPECT_EQ(CdiFiles(), 0);
  EXPECT_TRUE(Ask({"claims"}).at("claims").as_array().empty());
  EXPECT_EQ(Release("kept").exit_code, 0) << "repeated";
  EXPECT_EQ(node_->Terminate(), 0);
}

// ---- live change of the configuration

TEST_F(HostTest, ANewPolicyHoldsForNewClaimsOnly) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  ASSERT_EQ(Grant("old", "shared", "1Gi").exit_code, 0) << node_->Log();
  const std::string before = json::serialize(Ask({"status"}).at("configuration").at("version"));
  node_->WriteConfiguration(Configuration({{"shared", "default: 4Gi, min: 4Gi, max: 40Gi, step: 4Gi"}}));
  ASSERT_TRUE(Eventually([&] { return json::serialize(Ask({"status"}).at("configuration").at("version")) != before; })) << node_->Log();

  ASSERT_EQ(Grant("new", "shared", "1Gi").exit_code, 0) << node_->Log();
  EXPECT_NE(Consumed("old").find("\"memory\":\"1Gi\""), std::string::npos) << Consumed("old");
  EXPECT_NE(Consumed("new").find("\"memory\":\"4Gi\""), std::string::npos) << Consumed("new");
  EXPECT_EQ(node_->Terminate(), 0);
}

TEST_F(HostTest, ARemovedOfferTakesNoNewClaimAndGoesWithItsLastShare) {
  const OfferText other{"other", "default: 1Gi, min: 1Gi, max: 40Gi, step: 1Gi"};
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  ASSERT_EQ(Grant("last", "shared", "2Gi").exit_code, 0) << node_->Log();
  const std::string before = json::serialize(Ask({"status"}).at("configuration").at("version"));
  node_->WriteConfiguration(Configuration({other}));
  ASSERT_TRUE(Eventually([&] { return json::serialize(Ask({"status"}).at("configuration").at("version")) != before; })) << node_->Log();

  const auto publishes_shared = [&] { return node_->Ctl({"-o", "json", "devices"}).output.find("null-0-shared") != std::string::npos; };
  EXPECT_TRUE(publishes_shared()) << "the scheduler would forget the counters of a live share";
  EXPECT_NE(Grant("late", "shared", "2Gi").exit_code, 0) << "a removed offer took a new claim";
  EXPECT_EQ(Release("last").exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return !publishes_shared(); })) << node_->Ctl({"devices"}).output;
  EXPECT_EQ(node_->Terminate(), 0);
}

TEST_F(HostTest, AnInvalidFileChangesNothing) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  const json::value before = Ask({"devices"});
  node_->WriteConfiguration(Configuration({kShared}) + "colour: blue\n");
  ASSERT_TRUE(ConfigurationError(true)) << "the error is not visible";
  const std::string error = json::serialize(Ask({"status"}).at("configuration").at("lastError"));
  EXPECT_NE(error.find("colour"), std::string::npos) << error;
  EXPECT_EQ(Ask({"devices"}), before);
  EXPECT_EQ(Grant("nic", "shared", "2Gi").exit_code, 0);
  node_->WriteConfiguration(Configuration({kShared}));
  EXPECT_TRUE(ConfigurationError(false));
  EXPECT_EQ(node_->Terminate(), 0);
}

TEST_F(HostTest, AnInvalidFileAtStartEndsTheProgramWithTheLine) {
  MakeNode(Configuration({kShared}) + "colour: blue\n");
  EXPECT_FALSE(node_->Start());
  EXPECT_EQ(node_->process().Wait(), 2);
  EXPECT_NE(node_->Log().find("colour"), std::string::npos) << node_->Log();
}

TEST_F(HostTest, ASocketPathThatIsTooLongEndsTheProgramBeforeItPublishes) {
  MakeNode(Configuration({kShared}));
  for (const char* option : {"--runtime-directory", "--plugin-directory", "--registry-directory"}) {
    EXPECT_FALSE(node_->Start({}, {option, directory_.path() + "/" + std::string(100, 'd')}));
    EXPECT_EQ(node_->process().Wait(), 2) << option;
    EXPECT_NE(node_->Log().find("107"), std::string::npos) << node_->Log();
    EXPECT_FALSE(fs::exists(directory_.path() + "/node/state/tranche.db")) << option;
  }
}

// Another backend, offer, class and driver: nothing of the first file is left in the second.
std::string OtherConfiguration() {
  return "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n"
         "- name: successor\n  library: null_backend\n  isolation: in-process\n  config: {devices: 2}\n"
         "drivers:\n- name: successor.tranche.dev\n  offers:\n  - {name: whole, backend: successor, mode: whole}\n"
         "  classes:\n  - {name: successor, offer: whole}\n";
}

TEST_F(HostTest, ARemovedBackendStaysLoadedUntilItsLastShareEnds) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  ASSERT_EQ(Grant("first", "shared", "2Gi").exit_code, 0) << node_->Log();
  ASSERT_EQ(Grant("second", "shared", "2Gi").exit_code, 0) << node_->Log();
  node_->WriteConfiguration(OtherConfiguration());
  const auto state_of_fake = [&] {
    const json::value status = Ask({"status"});
    for (const json::value& backend : status.at("backends").as_array()) {
      if (backend.at("name").as_string() == "fake") return std::string(backend.at("state").as_string());
    }
    return std::string("gone");
  };
  ASSERT_TRUE(Eventually([&] { return state_of_fake() == "retained"; })) << node_->Log();
  EXPECT_EQ(Release("first").exit_code, 0) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 1);

  // The same after a restart: the file knows neither backend nor driver.
  EXPECT_EQ(node_->Terminate(), 0);
  ASSERT_TRUE(node_->Start()) << node_->Log();
  EXPECT_EQ(state_of_fake(), "retained");
  EXPECT_EQ(SharesInBackend(), 1);
  const RunResult released = Release("second");
  EXPECT_EQ(released.exit_code, 0) << released.error << node_->Log();
  EXPECT_EQ(SharesInBackend(), 0);
  EXPECT_EQ(CdiFiles(), 0);
  EXPECT_TRUE(Eventually([&] { return state_of_fake() == "gone" && Ask({"status"}).at("drivers").as_array().size() == 1; })) << node_->Log();
  EXPECT_EQ(node_->Terminate(), 0);
}

TEST_F(HostTest, AChangeThatAServingBackendRefusesIsRefusedWhole) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  std::string failing = Configuration({{"other", "default: 1Gi, min: 1Gi, max: 8Gi, step: 1Gi"}});
  failing.replace(failing.find("devices: 1"), 10, "devices: 1, failCreate: true");
  node_->WriteConfiguration(failing);
  ASSERT_TRUE(ConfigurationError(true)) << node_->Log();
  const RunResult granted = Grant("nic", "shared", "2Gi");
  EXPECT_EQ(granted.exit_code, 0) << granted.error << node_->Log();
  EXPECT_NE(node_->Ctl({"audit"}).output.find("apply-configuration"), std::string::npos);
  EXPECT_EQ(Release("nic").exit_code, 0);
  EXPECT_EQ(node_->Terminate(), 0);
}

// ---- two hosts at once

TEST_F(HostTest, TwoHostsOnOneNodeNeverGrantMoreThanThereIs) {
  MakeNode(Configuration({{"shared", "default: 1Gi, min: 1Gi, max: 40Gi, step: 1Gi"}}));
  ASSERT_TRUE(node_->Start()) << node_->Log();
  ChildProcess other({Binary("tranched"), "--local", node_->directory(), "--config", node_->configuration_path(), "--backend-directory", BackendDirectory(),
                      "--node-name", "node-1", "--instance", "second", "--runtime-directory", node_->directory() + "/run"},
                     {}, node_->directory() + "/second.log");
  // 64 claims of 2 GiB each on a device of 80: as many hosts as there are answer, at most 40 may hold.
  std::vector<std::thread> tenants;
  std::atomic<int> prepared = 0;
  for (int i = 0; i < 64; ++i) { ASSERT_EQ(node_->Apply(ClaimManifest("team-a", "c" + std::to_string(i), "shared", {{"memory", "2Gi"}})).exit_code, 0); }
  for (int worker = 0; worker < 8; ++worker) {
    tenants.emplace_back([&, worker] {
      for (int i = worker; i < 64; i += 8) {
        const std::string claim = "team-a/c" + std::to_string(i);
        if (node_->Ctl({"local", "allocate", claim}).exit_code != 0) continue;
        if (node_->Ctl({"local", "prepare", claim}).exit_code == 0) ++prepared;
      }
    });
  }
  for (std::thread& tenant : tenants) tenant.join();
  EXPECT_EQ(prepared.load(), 40);
  EXPECT_EQ(SharesInBackend(), 40);
  EXPECT_EQ(Ask({"shares"}).at("shares").as_array().size(), 40u);
  other.Signal(SIGTERM);
  EXPECT_EQ(other.Wait(), 0);
  EXPECT_EQ(node_->Terminate(), 0);
}

// ---- the state directory is lost while shares are in force

TEST_F(HostTest, ALostStateDirectoryTakesNoShareAway) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  for (const char* name : {"one", "two", "three"}) ASSERT_EQ(Grant(name, "shared", "2Gi").exit_code, 0) << node_->Log();
  ASSERT_EQ(node_->Terminate(), 0);
  fs::remove_all(node_->directory() + "/state");
  ASSERT_TRUE(node_->Start()) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 3);
  EXPECT_EQ(CdiFiles(), 3);
  const auto unknown = [&] { return Ask({"status"}).at("unknownShares").as_array(); };
  ASSERT_EQ(unknown().size(), 3u) << node_->Log();
  EXPECT_NE(node_->Log().find("knows nothing of"), std::string::npos);
  EXPECT_NE(node_->Ctl({"status"}).output.find("PROBLEM: 3 shares"), std::string::npos) << node_->Ctl({"status"}).output;

  // Prepared again it is known, unprepared it is gone, and the last one is the operator's.
  EXPECT_EQ(node_->Ctl({"local", "prepare", "team-a/one"}).exit_code, 0) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 3);
  EXPECT_EQ(Release("two").exit_code, 0) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 2);
  EXPECT_EQ(node_->Ctl({"release-unknown"}).exit_code, 2) << "says neither which nor all";
  const RunResult released = node_->Ctl({"release-unknown", "--all"});
  EXPECT_EQ(released.exit_code, 0) << released.error;
  EXPECT_EQ(SharesInBackend(), 1);
  EXPECT_EQ(CdiFiles(), 1);
  EXPECT_TRUE(unknown().empty());
  EXPECT_EQ(Release("one").exit_code, 0);
  EXPECT_EQ(SharesInBackend(), 0);
  EXPECT_EQ(node_->Terminate(), 0);
}

TEST_F(HostTest, StopsCleanlyAndKeepsWhatIsPrepared) {
  ASSERT_TRUE(MakeNode(Configuration({kShared})).Start()) << node_->Log();
  ASSERT_EQ(Grant("nic", "shared", "2Gi").exit_code, 0);
  EXPECT_EQ(node_->Terminate(), 0) << node_->Log();
  EXPECT_EQ(SharesInBackend(), 1);
  for (const auto& entry : fs::recursive_directory_iterator(node_->directory())) EXPECT_FALSE(entry.is_socket()) << entry.path();
  ASSERT_TRUE(node_->Start()) << node_->Log();
  EXPECT_EQ(Ask({"shares"}).at("shares").as_array().size(), 1u);
  EXPECT_EQ(node_->Ctl({"local", "prepare", "team-a/nic"}).exit_code, 0) << "a retry after the restart";
  EXPECT_EQ(SharesInBackend(), 1);
  EXPECT_EQ(Release("nic").exit_code, 0);
  EXPECT_EQ(node_->Terminate(), 0);
}

}  // namespace
}  // namespace tranche::test
