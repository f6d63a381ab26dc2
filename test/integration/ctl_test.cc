// tranchectl and tranched as programs: what an operator types and sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "support/process.h"

namespace tranche::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace json = boost::json;

constexpr char kConfiguration[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: fake
  library: null_backend
  isolation: in-process
  config: {devices: 1, env: ["FAKE=1"]}
  allowEdits: {env: [FAKE]}
drivers:
- name: fake.tranche.dev
  offers:
  - name: shared
    backend: fake
    mode: share
    capacity:
      memory: {default: 1Gi, min: 1Gi, max: 60Gi, step: 1Gi, reserve: 10%}
      bandwidth: {default: 1G, min: 1G, max: 100G, step: 1G}
  classes:
  - name: fake-shared
    offer: shared
    namespaces: {allow: ["team-*"]}
)";

class CtlTest : public ::testing::Test {
 protected:
  void Start() { ASSERT_TRUE(node_.Start()) << node_.Log(); }

  void Apply(const std::string& namespace_name, const std::string& name, const std::string& memory) {
    const RunResult applied = node_.Apply(ClaimManifest(namespace_name, name, "fake-shared", {{"memory", memory}}));
    ASSERT_EQ(applied.exit_code, 0) << applied.error;
  }
  void Grant(const std::string& name, const std::string& memory) {
    ASSERT_NO_FATAL_FAILURE(Apply("team-a", name, memory));
    for (const char* step : {"allocate", "prepare"}) {
      const RunResult result = node_.Ctl({"local", step, "team-a/" + name});
      ASSERT_EQ(result.exit_code, 0) << result.error << node_.Log();
    }
  }

  // The answer of a command that succeeds.
  json::value Json(std::vector<std::string> arguments, int exit_code = 0) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const RunResult result = node_.Ctl(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.error;
    boost::system::error_code error;
    json::value value = json::parse(result.output, error);
    EXPECT_FALSE(error) << result.output;
    return value;
  }

  std::string WriteFile(const std::string& name, const std::string& text) const {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  TemporaryDirectory directory_;
  LocalNode node_{directory_.path() + "/node", kConfiguration};
};

TEST_F(CtlTest, UsageErrorsAre2AndHelpIs0) {
  EXPECT_EQ(node_.Ctl({}).exit_code, 2);
  EXPECT_EQ(node_.Ctl({"nothing"}).exit_code, 2);
  EXPECT_EQ(node_.Ctl({"status", "-o", "xml"}).exit_code, 2);
  EXPECT_EQ(node_.Ctl({"explain"}).exit_code, 2);
  EXPECT_EQ(node_.Ctl({"--help"}).exit_code, 0);
  EXPECT_THAT(node_.Ctl({"version"}).output, HasSubstr("tranchectl "));
}

TEST_F(CtlTest, HostWithoutLocalNamesTheOption) {
  const RunResult result = RunProgram({Binary("tranched")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, HasSubstr("--local"));
  EXPECT_THAT(result.error, HasSubstr("--kubeconfig"));
  const RunResult both = RunProgram({Binary("tranched"), "--local", node_.directory(), "--kubeconfig", "/dev/null"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.error, HasSubstr("--kubeconfig"));
}

TEST_F(CtlTest, CheckNamesEveryErrorWithItsLine) {
  const std::string good = WriteFile("good.yaml", kConfiguration);
  EXPECT_EQ(node_.Ctl({"check", good}).exit_code, 0);
  const std::string bad = WriteFile("bad.yaml", std::string(kConfiguration) + "colour: blue\nshape: round\n");
  const RunResult result = node_.Ctl({"check", bad});
  EXPECT_EQ(result.exit_code, 1);
  const auto line = std::count(kConfiguration, kConfiguration + sizeof(kConfiguration), '\n') + 1;
  EXPECT_THAT(result.error, HasSubstr("bad.yaml:" + std::to_string(line) + ": colour"));
  EXPECT_THAT(result.error, HasSubstr("bad.yaml:" + std::to_string(line + 1) + ": shape"));
  EXPECT_EQ(Json({"check", bad}, 1).at("errors").as_array().size(), 2u);
  EXPECT_EQ(node_.Ctl({"check", "/nonexistent"}).exit_code, 1);
}

TEST_F(CtlTest, CheckHoldsABackendsOwnConfigAgainstItsManifest) {
  const std::string good = WriteFile("good.yaml", kConfiguration);
  const RunResult valid = node_.Ctl({"check", good, "--backend-directory", BackendDirectory()});
  EXPECT_EQ(valid.exit_code, 0) << valid.error;
  std::string text(kConfiguration);
  text.replace(text.find("devices: 1"), 10, "devices: many");
  const std::string bad = WriteFile("wrong.yaml", text);
  const RunResult result = node_.Ctl({"check", bad, "--backend-directory", BackendDirectory()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("wrong.yaml:4: backends[0].config: "));
  EXPECT_THAT(result.error, HasSubstr("devices"));
  EXPECT_THAT(result.error, HasSubstr("; correct it under the backend's config"));
  text = kConfiguration;
  text.replace(text.find("null_backend"), 12, "nul_backend");
  const RunResult missing = node_.Ctl({"check", WriteFile("missing.yaml", text), "--backend-directory", BackendDirectory()});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.error, HasSubstr("nul_backend.backend.json; install the backend or correct the name"));
}

TEST_F(CtlTest, CheckRefusesPipesAndDevicesAtOnce) {
  const std::string pipe = node_.directory() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero")}) {
    const RunResult result = node_.Ctl({"check", file});
    EXPECT_EQ(result.exit_code, 1) << file;
    EXPECT_THAT(result.error, HasSubstr(file + " is not a regular file"));
  }
}

TEST_F(CtlTest, AWordThatIsNoCommandIsNamedWithThoseThatAre) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"bogus"}, {"local", "bogus"}}) {
    const RunResult result = node_.Ctl(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.error, HasSubstr("has no command 'bogus'; its commands are "));
    EXPECT_THAT(result.error, HasSubstr(words.size() == 1 ? "shares" : "allocate"));
  }
}

TEST_F(CtlTest, ADamagedStoreWithoutAHostIsAnErrorWithItsReason) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Grant("nic", "2Gi"));
  ASSERT_EQ(node_.Terminate(), 0);
  const std::string store = node_.directory() + "/state/tranche.db";
  std::ifstream file(store, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string pages = whole;
  std::fill(pages.begin() + 4096, pages.end(), 'x');
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), pages, std::string("text, no database"), std::string()}) {
    std::ofstream(store, std::ios::binary) << damaged;
    for (const char* view : {"shares", "claims", "audit"}) {
      const RunResult result = node_.Ctl({view});
      EXPECT_EQ(result.exit_code, 1) << damaged.size() << " " << result.output;
      EXPECT_THAT(result.error, HasSubstr("tranche.db")) << damaged.size();
      EXPECT_THAT(result.error, HasSubstr("left as it is")) << damaged.size();
    }
  }
}

TEST_F(CtlTest, BackendInspectShowsTheStages) {
  const json::value accepted = Json({"backend", "inspect", "--load", BackendDirectory() + "/null_backend.so"});
  EXPECT_TRUE(accepted.at("accepted").as_bool());
  EXPECT_FALSE(accepted.at("functions").as_array().empty());
  const RunResult table = node_.Ctl({"backend", "inspect", "--load", BackendDirectory() + "/null_backend.so"});
  for (const char* stage : {"manifest", "file", "symbols", "dlopen", "entry", "table"}) EXPECT_THAT(table.output, HasSubstr(stage));
  const std::string text = WriteFile("text.so", "not a library");
  EXPECT_FALSE(Json({"backend", "inspect", text}, 1).at("accepted").as_bool());
  // Without --load nothing of the library runs.
  const RunResult files = node_.Ctl({"backend", "inspect", BackendDirectory() + "/null_backend.so"});
  EXPECT_EQ(files.exit_code, 0);
  EXPECT_THAT(files.output, HasSubstr("symbols"));
  EXPECT_THAT(files.output, testing::Not(HasSubstr("dlopen")));
}

TEST_F(CtlTest, BackendRunServesAClaimOfEveryModeAndShowsWhatAContainerGets) {
  const std::string config = WriteFile("config.json", R"({"devices": 1, "env": ["FAKE=1"]})");
  const RunResult run = node_.Ctl({"backend", "run", BackendDirectory() + "/null_backend.so", "--config", config});
  EXPECT_EQ(run.exit_code, 0) << run.error;
  for (const char* words : {"null-0-whole", "null-0-share", "partition      null-0   the device does not support mode partition", "env               FAKE=1",
                            "bandwidth=25G", "2 claims served and released"}) {
    EXPECT_THAT(run.output, HasSubstr(words));
  }
}

// The reason is in the table, with the name of its code: nobody has to read a log.
TEST_F(CtlTest, BackendRunSaysWhyABackendIsRefused) {
  const std::string wrong = WriteFile("wrong.json", R"({"devices": "many"})"), failing = WriteFile("failing.json", R"({"failCreate": true})");
  for (const auto& [config, reason] : {std::pair{wrong, "INVALID_ARGUMENT: backend trial: config of backend library null_backend: "},
                                       std::pair{failing, "UNAVAILABLE: backend trial: create: "}}) {
    const RunResult run = node_.Ctl({"backend", "run", BackendDirectory() + "/null_backend.so", "--config", config});
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.output, HasSubstr(std::string("whole, share, partition  all      ") + reason));
    EXPECT_THAT(run.error, HasSubstr("no device is published; the table says why"));
  }
  const std::string prepare = WriteFile("prepare.json", R"({"devices": 1, "failPrepare": 13})");
  const RunResult run = node_.Ctl({"backend", "run", BackendDirectory() + "/null_backend.so", "--config", prepare});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.error, HasSubstr("(INTERNAL)"));
}

TEST_F(CtlTest, OneClaimThroughEveryView) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Grant("nic", "1500Mi"));

  const json::value status = Json({"status"});
  EXPECT_EQ(status.at("claims").to_number<int>(), 1);
  EXPECT_EQ(status.at("shares").to_number<int>(), 1);
  EXPECT_TRUE(status.at("onlyHost").as_bool());
  EXPECT_THAT(std::string(status.at("configuration").at("version").as_string()), HasSubstr("sha256:"));
  EXPECT_THAT(node_.Ctl({"status"}).output, HasSubstr("serving"));

  const json::value devices = Json({"devices"});
  const json::value& device = devices.at("devices").at(0);
  EXPECT_EQ(device.at("shares").to_number<int>(), 1);
  for (const json::value& capacity : device.at("capacity").as_array()) {
    if (capacity.at("name").as_string() != "memory") continue;
    EXPECT_EQ(capacity.at("published").as_string(), "72Gi");
    EXPECT_EQ(capacity.at("reserved").as_string(), "8Gi");
    EXPECT_EQ(capacity.at("allocated").as_string(), "2Gi");
    EXPECT_EQ(capacity.at("free").as_string(), "70Gi");
  }

  const json::value claims = Json({"claims", "--tenant", "team-a"});
  ASSERT_EQ(claims.at("claims").as_array().size(), 1u);
  EXPECT_EQ(claims.at("claims").at(0).at("state").as_string(), "prepared");
  EXPECT_TRUE(Json({"claims", "--tenant", "team-b"}).at("claims").as_array().empty());

  const json::value shares = Json({"shares", "--claim", "team-a/nic"});
  ASSERT_EQ(shares.at("shares").as_array().size(), 1u);
  EXPECT_EQ(shares.at("shares").at(0).at("consumedCapacity").at("memory").as_string(), "2Gi");
  EXPECT_TRUE(shares.at("shares").at(0).at("live").at("ok").as_bool());
  EXPECT_FALSE(Json({"shares", "--no-verify"}).at("shares").at(0).as_object().contains("live"));
  EXPECT_THAT(node_.Ctl({"shares"}).output, HasSubstr("memory=2Gi"));

  const json::value audit = Json({"audit", "--claim", "team-a/nic"});
  ASSERT_FALSE(audit.at("records").as_array().empty());
  const json::value& last = audit.at("records").as_array().back();
  EXPECT_EQ(last.at("action").as_string(), "prepare");
  EXPECT_EQ(last.at("outcome").as_string(), "OK");
  EXPECT_TRUE(Json({"audit", "--after", std::to_string(last.at("id").to_number<std::int64_t>())}).at("records").as_array().empty());

  EXPECT_EQ(Json({"local", "list"}).at("claims").at(0).at("state").as_string(), "prepared");
  EXPECT_TRUE(Json({"reconcile"}).at("repairs").as_array().empty());
  EXPECT_EQ(node_.Ctl({"local", "delete", "team-a/nic"}).exit_code, 1) << "a prepared claim was deleted";
  EXPECT_EQ(node_.Ctl({"local", "unprepare", "team-a/nic"}).exit_code, 0);
  EXPECT_EQ(node_.Ctl({"local", "delete", "team-a/nic"}).exit_code, 0);
  EXPECT_TRUE(Json({"shares"}).at("shares").as_array().empty());
}

TEST_F(CtlTest, ExplainNamesDeviceCapacityAndWhatIsMissing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Grant("big", "50Gi"));
  ASSERT_NO_FATAL_FAILURE(Apply("team-b", "more", "30Gi"));
  EXPECT_EQ(node_.Ctl({"local", "allocate", "team-b/more"}).exit_code, 1);
  const json::value explanation = Json({"explain", "team-b/more"}, 1);
  EXPECT_FALSE(explanation.at("fits").as_bool());
  const json::value& obstacle = explanation.at("obstacles").at(0);
  EXPECT_THAT(std::string(obstacle.at("device").as_string()), HasSubstr("fake.tranche.dev/node-1/"));
  EXPECT_EQ(obstacle.at("capacity").as_string(), "memory");
  EXPECT_EQ(obstacle.at("asked").as_string(), "30Gi");
  EXPECT_EQ(obstacle.at("available").as_string(), "22Gi");
  EXPECT_EQ(obstacle.at("missing").as_string(), "8Gi");
  EXPECT_THAT(node_.Ctl({"explain", "team-b/more"}).output, HasSubstr("MISSING"));
  EXPECT_EQ(node_.Ctl({"explain", "team-a/big"}).exit_code, 0);
  EXPECT_EQ(node_.Ctl({"explain", "team-b/absent"}).exit_code, 1);
  EXPECT_EQ(node_.Ctl({"explain", "nonsense"}).exit_code, 1);
  ASSERT_NO_FATAL_FAILURE(Apply("outsider", "nic", "1Gi"));
  EXPECT_EQ(node_.Ctl({"local", "allocate", "outsider/nic"}).exit_code, 1);
}

TEST_F(CtlTest, StoreIsReadWhileTheHostIsDown) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Grant("nic", "2Gi"));
  node_.Kill();
  EXPECT_EQ(node_.Ctl({"status"}).exit_code, 1);
  EXPECT_THAT(node_.Ctl({"status"}).error, HasSubstr("start tranched"));
  const RunResult shares = node_.Ctl({"shares"});
  EXPECT_EQ(shares.exit_code, 0) << shares.error;
  EXPECT_THAT(shares.output, HasSubstr("memory=2Gi"));
  EXPECT_THAT(shares.error, HasSubstr("no host answers"));
  EXPECT_EQ(Json({"claims"}).at("claims").as_array().size(), 1u);
  EXPECT_FALSE(Json({"audit"}).at("records").as_array().empty());
}

TEST_F(CtlTest, VerifyFindsAShareThatVanished) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(Grant("nic", "2Gi"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(node_.directory())) {
    if (entry.path().extension() == ".share") std::filesystem::remove(entry.path());
  }
  EXPECT_EQ(node_.Ctl({"shares"}).exit_code, 1);
  const json::value repairs = Json({"reconcile"});
  ASSERT_EQ(repairs.at("repairs").as_array().size(), 1u);
  EXPECT_EQ(repairs.at("repairs").at(0).at("what").as_string(), "re-made");
  EXPECT_EQ(node_.Ctl({"shares"}).exit_code, 0);
}

}  // namespace
}  // namespace tranche::test
