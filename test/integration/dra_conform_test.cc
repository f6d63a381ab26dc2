// dra-conform names the right rule for every way to be wrong, and passes what is right: a driver of the test's own with one fault at a time, and our host.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "conform/cdi_files.h"
#include "conform/examine.h"
#include "conform/report.h"
#include "fakes/fake_driver.h"
#include "support/api_server.h"
#include "support/process.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;
using test::FakeDriver;
namespace json = boost::json;

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Patience Short() { return {.publish = 3s, .quiet = 300ms, .slice_return = 4s, .quick_return = 1s, .retries = 1s, .ready = 1s}; }

// ---- without an API server

const std::map<std::string, std::string> kPlainFaults = {
    {"", ""},
    {"slow_info", "D-1"},
    {"other_type", "D-2"},
    {"odd_name", "D-3"},
    {"semantic_versions", "D-4 D-5 D-6"},
    {"only_beta", "D-5"},
    {"beta_first", "D-5"},
    {"only_v1", "D-6"},
    {"unserved_beta", "D-7 D-12"},
    {"relative_endpoint", "D-8"},
    {"refuses_notification", "D-9"},
    {"changing_info", "D-10"},
    {"leaves_out_entry", "D-11"},
    {"invents_entry", "D-11"},
    {"refuses_empty", "D-12"},
    {"grants_unknown", "D-13 D-55"},
    {"fails_the_call", "D-14"},
    {"unknown_sticks", "D-40 D-43"},
    {"health_hangs", "D-52"},
    {"health_unlisted", "D-53"},
    {"many_kill", "D-54 D-55 D-56 D-57"},
    {"long_name_kills", "D-55 D-56 D-57"},
    {"gives_up", "D-57"},
};

TEST(PlainDriver, EachFaultIsNamedByItsRule) {
  for (const auto& [fault, rules] : kPlainFaults) {
    test::TemporaryDirectory directory;
    const FakeDriver driver(directory.path(), fault);
    Options options;
    options.registration_socket = driver.registration_socket();
    options.cdi_directories = {driver.cdi_directory()};
    options.patience = Short();
    Report report("fake");
    ASSERT_TRUE(Examine(options, report).ok());
    EXPECT_EQ(Joined(report.Failed()), rules) << fault << "\n" << report.Text();
    EXPECT_EQ(report.Count(Outcome::kNotReached), 0) << fault;
    EXPECT_EQ(report.Of("D-21").outcome, Outcome::kSkipped) << fault;
  }
}

TEST(PlainDriver, AnInterruptedExaminationDoesNotConform) {
  test::TemporaryDirectory directory;
  const FakeDriver driver(directory.path(), "");
  Options options;
  options.registration_socket = driver.registration_socket();
  options.is_interrupted = [] { return true; };
  Report report("fake");
  ASSERT_TRUE(Examine(options, report).ok());
  EXPECT_FALSE(report.Conforms());
}

// ---- with claims and slices

const std::map<std::string, std::string> kClaimFaults = {
    {"", ""},
    {"fails_the_call", "D-14 D-15"},
    {"races", "D-16"},
    {"one_at_a_time", "D-17"},
    {"beta_differs", "D-18"},
    {"abandoned_sticks", "D-19"},
    {"refuses_good", "D-21"},
    {"loses_devices", "D-22"},
    {"other_pool", "D-22 D-23 D-29"},
    {"subrequest_names", "D-23"},
    {"moving_cdi_id", "D-16 D-18 D-20 D-24 D-58"},
    {"ignores_uid", "D-25"},
    {"ignores_allocation", "D-26"},
    {"unreserved_sticks", "D-15 D-16 D-17 D-18 D-19 D-20 D-23 D-27 D-29 D-38 D-39"},
    {"grants_absent", "D-28"},
    {"refuses_others", "D-29"},
    {"grants_twice", "D-30"},
    {"no_share_id", "D-31"},
    {"one_share", "D-32"},
    {"overcommits", "D-33"},
    {"odd_cdi_id", "D-34 D-36"},
    {"one_cdi_id", "D-35"},
    {"no_spec", "D-36"},
    {"writes_once", "D-37 D-59"},
    {"leaves_spec", "D-38"},
    {"unprepare_fails", "D-15 D-16 D-17 D-18 D-19 D-20 D-23 D-29 D-38 D-39 D-41"},
    {"unprepare_once", "D-41"},
    {"needs_object", "D-15 D-16 D-17 D-18 D-19 D-20 D-23 D-29 D-38 D-39 D-42"},
    {"never_again", "D-30 D-44"},
    {"no_slices", "D-45"},
    {"wrong_count", "D-46 D-50"},
    {"twice", "D-17 D-47"},
    {"no_owner", "D-48"},
    {"rewrites", "D-49"},
    {"stays_away", "D-50"},
    {"slow_return", "D-51"},
    {"forgets", "D-58 D-59"},
    {"writes_once_restarted", "D-59"},
    {"stuck_after_restart", "D-38 D-39 D-60"},
};

class ClaimsDriver : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (test::ApiServer::Missing().empty()) server_ = test::ApiServer::Start();
    for (const char* node : {FakeDriver::kNode, "node-a"}) {
      if (server_ != nullptr) server_->Request("POST", "/api/v1/nodes", std::string(R"({"metadata":{"name":")") + node + R"("}})");
    }
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    if (const std::string missing = test::ApiServer::Missing(); !missing.empty()) GTEST_SKIP() << "NOT TESTED: " << missing;
    ASSERT_NE(server_, nullptr);
  }

  // Claims and pods that are left.
  static std::size_t Left() {
    std::size_t left = 0;
    for (const char* path : {"/apis/resource.k8s.io/v1/resourceclaims", "/api/v1/namespaces/default/pods"}) {
      left += json::parse(server_->Request("GET", path).body).at("items").as_array().size();
    }
    return left;
  }

  static inline std::unique_ptr<test::ApiServer> server_;
};

class FaultyDriver : public ClaimsDriver, public testing::WithParamInterface<std::pair<const std::string, std::string>> {};

TEST_P(FaultyDriver, IsNamedByItsRules) {
  const auto& [fault, rules] = GetParam();
  test::TemporaryDirectory directory;
  const FakeDriver driver(directory.path(), fault, server_->kubeconfig());
  Options options;
  options.registration_socket = driver.registration_socket();
  options.kubeconfig = server_->kubeconfig();
  options.node = FakeDriver::kNode;
  options.cdi_directories = {driver.cdi_directory()};
  options.restart_command = driver.restart_command();
  options.patience = Short();
  Report report("fake");
  const absl::Status examined = Examine(options, report);
  ASSERT_TRUE(examined.ok()) << examined;
  EXPECT_EQ(Joined(report.Failed()), rules) << report.Text();
  EXPECT_EQ(report.Count(Outcome::kNotReached), 0) << report.Text();
  EXPECT_EQ(Left(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyDriver, testing::ValuesIn(kClaimFaults),
                         [](const auto& fault) { return fault.param.first.empty() ? std::string("none") : fault.param.first; });

TEST_F(ClaimsDriver, AnInterruptedProgramLeavesNothing) {
  test::TemporaryDirectory directory;
  const FakeDriver driver(directory.path(), "", server_->kubeconfig());
  const std::string command = test::Binary("dra-conform") + " --registration " + driver.registration_socket() + " --kubeconfig " + server_->kubeconfig() +
                              " --node " + FakeDriver::kNode + " --cdi-dir " + driver.cdi_directory() + " > " + directory.path() +
                              "/report 2>&1 < /dev/null & echo $!";
  const test::RunResult started = test::RunProgram({"sh", "-c", command});
  EXPECT_TRUE(test::Eventually([] { return Left() > 0; })) << "it makes claims";
  const std::string pid = started.output.substr(0, started.output.find('\n'));
  EXPECT_EQ(test::RunProgram({"sh", "-c", "kill " + pid}).exit_code, 0);
  EXPECT_TRUE(test::Eventually([&] { return !std::filesystem::exists("/proc/" + pid); }, 60s));
  EXPECT_EQ(Left(), 0U);
  EXPECT_NE(ReadText(directory.path() + "/report").find("not reached"), std::string::npos) << "it was interrupted";
  EXPECT_TRUE(std::filesystem::is_empty(driver.cdi_directory()));
}

TEST_F(ClaimsDriver, OurHostConformsInEveryRule) {
  test::TemporaryDirectory directory;
  const std::string root = directory.path();
  for (const char* name : {"/plugins", "/plugins_registry", "/state", "/cdi", "/run"}) std::filesystem::create_directories(root + name);
  std::filesystem::copy_file(std::string(TRANCHE_SOURCE_DIRECTORY) + "/test/integration/dra_conform_host.yaml", root + "/host.yaml");
  // Supervised by a shell: a signal to it ends the host of now, and it starts the next.
  const std::string host = test::Binary("tranched") + " --kubeconfig " + server_->kubeconfig() + " --kubelet-root " + root + " --config " + root +
                           "/host.yaml --node-name node-a --backend-directory " + test::BackendDirectory() + " --state-directory " + root +
                           "/state --cdi-directory " + root + "/cdi --runtime-directory " + root + "/run";
  const std::string stop = "kill $(cat " + root + "/pid); while [ -e /proc/$(cat " + root + "/pid) ]; do sleep 0.02; done";
  const std::string start = host + " 2>> " + root + "/log < /dev/null > /dev/null & echo $! > " + root + "/pid";
  ASSERT_EQ(test::RunProgram({"sh", "-c", start}).exit_code, 0);
  const std::string socket = root + "/plugins_registry/gpu.example.com-reg.sock";
  EXPECT_TRUE(test::Eventually([&] { return std::filesystem::exists(socket); })) << ReadText(root + "/log");
  const std::vector<std::string> command = {test::Binary("dra-conform"),
                                            "--plugins-registry",
                                            root + "/plugins_registry",
                                            "--driver",
                                            "gpu.example.com",
                                            "--kubeconfig",
                                            server_->kubeconfig(),
                                            "--node",
                                            "node-a",
                                            "--share-class",
                                            "gpu-share",
                                            "--cdi-dir",
                                            root + "/cdi",
                                            "--restart-command",
                                            stop + "; " + start,
                                            "-o",
                                            "json"};
  const test::RunResult run = test::RunProgram(command, {}, 120s);
  test::RunProgram({"sh", "-c", stop});
  EXPECT_EQ(run.exit_code, 0) << run.output << run.error << ReadText(root + "/log");
  boost::system::error_code error;
  const json::value report = json::parse(run.output, error);
  ASSERT_FALSE(error) << run.output << run.error;
  std::set<std::string> skipped;
  for (const json::value& rule : report.at("rules").as_array()) {
    if (rule.at("outcome") == "skipped") skipped.emplace(rule.at("rule").as_string());
  }
  EXPECT_EQ(report.at("failed").as_int64() + report.at("warnings").as_int64(), 0) << run.output;
  EXPECT_EQ(skipped, std::set<std::string>{"D-52"}) << "all but health is examined\n" << run.output;
  EXPECT_EQ(Left(), 0U);
}

// ---- rules, document, program

TEST(Rules, EveryRuleIsFoundBrokenByATest) {
  std::set<std::string> covered;
  for (const auto& faults : {kPlainFaults, kClaimFaults}) {
    for (const auto& [fault, rules] : faults) {
      std::istringstream words(rules);
      for (std::string word; words >> word;) covered.insert(word);
    }
  }
  std::set<std::string> uncovered;
  for (const Rule& rule : Rules()) {
    if (!covered.contains(std::string(rule.id))) uncovered.emplace(rule.id);
  }
  EXPECT_EQ(uncovered, std::set<std::string>());
}

TEST(Rules, AreTheDocument) {
  const std::string document = ReadText(std::string(TRANCHE_SOURCE_DIRECTORY) + "/docs/dra-conformance.md");
  const test::RunResult run = test::RunProgram({test::Binary("dra-conform"), "--rules"});
  ASSERT_EQ(run.exit_code, 0);
  EXPECT_NE(document.find(run.output), std::string::npos) << "put the output of dra-conform --rules in place of the tables of docs/dra-conformance.md";
}

TEST(Rules, ReportsOfTheDocumentsNameThemAll) {
  for (const char* name : {"tranche", "go-reference"}) {
    const std::string report = ReadText(std::string(TRANCHE_SOURCE_DIRECTORY) + "/docs/conformance/" + name + ".md");
    for (const Rule& rule : Rules()) EXPECT_NE(report.find("\n" + std::string(rule.id) + " "), std::string::npos) << name << " " << rule.id;
  }
}

TEST(Program, FormatsOfAPlainDriver) {
  test::TemporaryDirectory directory;
  const FakeDriver driver(directory.path(), "other_type");
  const test::RunResult text = test::RunProgram({test::Binary("dra-conform"), "--registration", driver.registration_socket()});
  EXPECT_EQ(text.exit_code, 1) << text.error;
  EXPECT_NE(text.output.find("D-2   FAILED"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("no --kubeconfig"), std::string::npos) << text.output;
  const test::RunResult junit = test::RunProgram({test::Binary("dra-conform"), "--registration", driver.registration_socket(), "-o", "junit"});
  EXPECT_NE(junit.output.find("failures=\"1\""), std::string::npos) << junit.output;
  EXPECT_NE(junit.output.find("<failure message=\"type is &quot;DevicePlugin&quot;\"/>"), std::string::npos) << junit.output;
}

TEST(Program, WrongUse) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{},
                                                                                         {"--plugins-registry", "/nowhere"},
                                                                                         {"--plugins-registry", "/nowhere", "--driver", "x"},
                                                                                         {"--registration", "/x", "-o", "yaml"},
                                                                                         {"--registration", "/x", "--kubeconfig", "/nowhere"},
                                                                                         {"--registration", "/x", "--parameters", "/nowhere"}}) {
    std::vector<std::string> command = {test::Binary("dra-conform")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(test::RunProgram(command).exit_code, 2) << testing::PrintToString(arguments);
  }
  const test::RunResult absent = test::RunProgram({test::Binary("dra-conform"), "--registration", "/nowhere/x-reg.sock"});
  EXPECT_EQ(absent.exit_code, 1) << absent.output;
  EXPECT_NE(absent.output.find("D-1   FAILED"), std::string::npos) << absent.output;
}

TEST(Program, FindsADriverInTheRegistrationDirectory) {
  test::TemporaryDirectory directory;
  const FakeDriver driver(directory.path(), "");
  const test::RunResult found = test::RunProgram({test::Binary("dra-conform"), "--plugins-registry", directory.path(), "--driver", FakeDriver::kName});
  EXPECT_EQ(found.exit_code, 0) << found.output << found.error;
  const test::RunResult other = test::RunProgram({test::Binary("dra-conform"), "--plugins-registry", directory.path(), "--driver", "other.example.com"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.error.find("reg.sock (fake.example.com)"), std::string::npos) << other.error;
}

TEST(CdiIds, AreQualifiedNames) {
  for (const char* id : {"vendor.com/class=name", "v/c=0", "vendor.com/gpu=a:b_c.d-e"}) EXPECT_EQ(CdiIdProblem(id), "") << id;
  for (const char* id :
       {"", "name", "vendor.com/class", "/class=name", "vendor.com/=name", "vendor.com/class=", "1v/class=name", "v/c=-x", "v/c=x y", "v=c/x"}) {
    EXPECT_NE(CdiIdProblem(id), "") << id;
  }
}

TEST(CdiFiles, ReadsJsonAndYamlAndNamesWhatItCannotRead) {
  test::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/a.json") << R"({"cdiVersion":"0.6.0","kind":"v.com/c","devices":[{"name":"one"}]})";
  std::ofstream(directory.path() + "/b.yaml") << "cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- name: two\n  containerEdits: {env: [A=1]}\n";
  std::ofstream(directory.path() + "/c.json") << "{";
  std::ofstream(directory.path() + "/d.txt") << "not looked at";
  const CdiFiles files({"/nowhere", directory.path()});
  EXPECT_EQ(files.Find("v.com/c=one").value_or(""), directory.path() + "/a.json");
  EXPECT_EQ(files.Find("v.com/c=two").value_or(""), directory.path() + "/b.yaml");
  const absl::Status absent = files.Find("v.com/c=three").status();
  EXPECT_TRUE(absl::IsNotFound(absent));
  EXPECT_NE(absent.message().find("c.json"), absl::string_view::npos) << absent;
}

}  // namespace
}  // namespace tranche::dra_conform
