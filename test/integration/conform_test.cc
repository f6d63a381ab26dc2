// The kit names the right rule for every way to be wrong, and passes what is right. Real libraries, the real program.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "support/network.h"
#include "support/process.h"

namespace tranche::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kFakes = fs::path(TRANCHE_BINARY_DIRECTORY) / "fakes";

struct Answer {
  int exit_code = -1;
  std::string failed;  // numbers of broken rules, in order, with spaces
  std::int64_t passed = 0, not_reached = 0;
  std::string text;
};

Answer Conform(const std::string& library, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {Binary("tranche-conform"), library, "--format", "json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const RunResult run = RunProgram(arguments, {}, std::chrono::seconds(120));
  Answer answer{run.exit_code, "", 0, 0, run.output + run.error};
  boost::system::error_code error;
  const json::value report = json::parse(run.output, error);
  if (error) return answer;
  for (const json::value& rule : report.at("rules").as_array()) {
    if (rule.at("outcome") == "failed") answer.failed += (answer.failed.empty() ? "" : " ") + std::string(rule.at("rule").as_string());
  }
  answer.passed = report.at("passed").as_int64();
  answer.not_reached = report.at("notReached").as_int64();
  return answer;
}

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  ::chmod(path.c_str(), 0644);
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return text;
  return text.replace(at, from.size(), to);
}

// A copy of the faultless library to be spoiled.
class FileTest : public testing::Test {
 protected:
  FileTest() : library_(fs::path(directory_.path()) / "faulty_none.so"), manifest_(fs::path(directory_.path()) / "faulty_none.backend.json") {
    fs::copy_file(kFakes / "faulty_none.so", library_);
    fs::copy_file(kFakes / "faulty_none.backend.json", manifest_);
  }
  void EditManifest(const std::string& from, const std::string& to) { Write(manifest_, Replaced(Read(manifest_), from, to)); }
  // The manifest is of the file as it is now.
  void Sign() {
    const std::string old = std::string(json::parse(Read(manifest_)).at("sha256").as_string());
    const std::string digest = RunProgram({"sha256sum", library_}).output.substr(0, 64);
    EditManifest(old, digest);
  }
  void ExpectFailed(const std::string& rules) {
    const Answer answer = Conform(library_);
    EXPECT_EQ(answer.failed, rules) << answer.text;
    EXPECT_EQ(answer.exit_code, 1);
  }

  TemporaryDirectory directory_;
  const fs::path library_, manifest_;
};

TEST_F(FileTest, FaultlessCopyConforms) {
  const Answer answer = Conform(library_);
  EXPECT_EQ(answer.failed, "") << answer.text;
  EXPECT_EQ(answer.not_reached, 0);
  EXPECT_EQ(answer.exit_code, 0);
}
TEST_F(FileTest, NoManifest) { fs::remove(manifest_), ExpectFailed("TB-001"); }
TEST_F(FileTest, ManifestIsNoJson) { Write(manifest_, "name: faulty"), ExpectFailed("TB-001"); }
TEST_F(FileTest, ManifestAgainstItsSchema) { EditManifest("\"arch\"", "\"architecture\""), ExpectFailed("TB-001"); }
TEST_F(FileTest, ManifestOfAnother) { EditManifest("\"name\": \"faulty_none\"", "\"name\": \"other\""), ExpectFailed("TB-002"); }
TEST_F(FileTest, ManifestOfTheNextMajor) { EditManifest("\"abi\": \"1.1\"", "\"abi\": \"2.0\""), ExpectFailed("TB-003"); }
TEST_F(FileTest, ManifestNeedsANewerMinorThanTheTable) { EditManifest("\"abi\": \"1.1\"", "\"abi\": \"1.77\""), ExpectFailed("TB-003"); }
TEST_F(FileTest, ManifestOfAnotherArchitecture) { EditManifest("\"arch\": \"x86_64\"", "\"arch\": \"aarch64\""), ExpectFailed("TB-004"); }
TEST_F(FileTest, LibraryOfAnotherBuild) {
  EditManifest("\"sha256\": \"", "\"sha256\": \"0000000000000000000000000000000000000000000000000000000000000000\", \"was\": \""), ExpectFailed("TB-005");
}
TEST_F(FileTest, TextFile) { Write(library_, "#!/bin/sh\n"), Sign(), ExpectFailed("TB-006"); }
TEST_F(FileTest, EmptyFile) { Write(library_, ""), Sign(), ExpectFailed("TB-006"); }
TEST_F(FileTest, TruncatedLibrary) { Write(library_, Read(library_).substr(0, 20000)), Sign(), ExpectFailed("TB-006"); }
TEST_F(FileTest, LinkOutOfTheDirectory) { fs::remove(library_), fs::create_symlink(kFakes / "faulty_none.so", library_), ExpectFailed("TB-006"); }
TEST_F(FileTest, LibraryWritableByOthers) { ::chmod(library_.c_str(), 0666), ExpectFailed("TB-007"); }
TEST_F(FileTest, ManifestWritableByGroup) { ::chmod(manifest_.c_str(), 0664), ExpectFailed("TB-007"); }
TEST_F(FileTest, SchemaWithReference) { EditManifest("{\"type\": \"object\"}", "{\"$ref\": \"#\"}"), ExpectFailed("TB-008"); }
// A host would not run it either: what code does with such a configuration is no finding.
TEST_F(FileTest, AConfigurationThatItsSchemaRefusesRunsNoCode) {
  for (const char* suffix : {".so", ".backend.json"}) {
    fs::copy_file(kFakes / (std::string("faulty_load_crashes") + suffix), fs::path(directory_.path()) / (std::string("faulty_load_crashes") + suffix));
  }
  const fs::path manifest = fs::path(directory_.path()) / "faulty_load_crashes.backend.json";
  Write(manifest, Replaced(Read(manifest), "{\"type\": \"object\"}", "{\"type\": \"object\", \"required\": [\"parents\"]}"));
  const Answer answer = Conform(fs::path(directory_.path()) / "faulty_load_crashes.so");
  EXPECT_EQ(answer.failed, "TB-008") << answer.text;
  EXPECT_GT(answer.not_reached, 60) << answer.text;
}
TEST_F(FileTest, ConfigurationAgainstTheSchema) {
  EditManifest("{\"type\": \"object\"}", "{\"type\": \"object\", \"required\": [\"parents\"]}"), ExpectFailed("TB-008");
}

// Any bytes in place of a library or its manifest are a finding, and never the end of the kit.
TEST_F(FileTest, EveryTruncationIsAFinding) {
  const std::string whole = Read(library_);
  for (std::size_t size = 1; size < whole.size(); size = size * 3 + 7) {
    Write(library_, whole.substr(0, size));
    Sign();
    const RunResult run = RunProgram({Binary("tranche-conform"), library_, "--manifest"});
    EXPECT_EQ(run.exit_code, 1) << size << "\n" << run.output << run.error;
    EXPECT_NE(run.output.find("TB-006  FAILED"), std::string::npos) << size << run.output;
  }
}

// The rules that each library breaks: exactly these.
const std::map<std::string, std::string> kFaults = {
    {"none", ""},
    {"wrong_magic", "TB-018"},
    {"next_major", "TB-019"},
    {"short_table", "TB-020"},
    {"unaligned_size", "TB-020"},
    {"null_member", "TB-021"},
    {"other_name", "TB-022"},
    {"unknown_flag", "TB-024"},
    {"version_text", "TB-023"},
    {"version_other", "TB-023"},
    {"declines", "TB-016"},
    {"entry_throws", "TB-016"},
    {"entry_crashes", "TB-031"},
    {"accepts_any_host", "TB-017"},
    {"table_moves", "TB-025"},
    {"no_verify", "TB-026"},
    {"exports_more", "TB-010 TB-011"},
    {"unique_symbol", "TB-010 TB-011"},
    {"run_path", "TB-012"},
    {"needs_protobuf", "TB-013"},
    {"unresolved", "TB-014"},
    {"load_crashes", "TB-031"},
    {"load_prints", "TB-035"},
    {"load_thread", "TB-015"},
    {"load_descriptor", "TB-015"},
    {"create_fails", "TB-027"},
    {"create_throws", "TB-032"},
    {"no_instance", "TB-027"},
    {"accepts_garbage", "TB-028"},
    {"failed_create_leaks", "TB-034"},
    {"destroy_releases", "TB-029"},
    {"shared_state", "TB-030"},
    {"calls_after_destroy", "TB-046"},
    {"segv", "TB-031"},
    {"abort", "TB-031"},
    {"exit", "TB-031"},
    {"throws", "TB-032"},
    {"spins", "TB-039"},
    {"sleeps", "TB-039"},
    {"prints", "TB-035"},
    {"prints_error", "TB-035"},
    {"thread_left", "TB-033"},
    {"descriptor_left", "TB-034"},
    {"descriptor_leak", "TB-075"},
    {"setenv", "TB-036"},
    {"chdir", "TB-036"},
    {"signal", "TB-036"},
    {"forks", "TB-037"},
    {"allocates", "TB-038"},
    {"grows", "TB-038"},
    {"strange_code", "TB-040 TB-061"},
    {"no_reason", "TB-041 TB-061"},
    {"result_without_text", "TB-041"},
    {"reads_to_nul", "TB-042"},
    {"keeps_input", "TB-043"},
    {"strict_members", "TB-044"},
    {"other_thread", "TB-045"},
    {"wrong_sink", "TB-045"},
    {"not_utf8", "TB-047"},
    {"null_string", "TB-047"},
    {"not_json", "TB-048"},
    {"other_schema_version", "TB-048"},
    {"huge_answer", "TB-049"},
    {"flood", "TB-049"},
    {"big_state", "TB-049"},
    {"bad_edit", "TB-050"},
    {"bad_path", "TB-050"},
    {"bad_device", "TB-048"},
    {"same_name", "TB-051"},
    {"same_identity", "TB-052"},
    {"moving_identity", "TB-052"},
    {"no_device", "TB-053"},
    {"discover_fails", "TB-053"},  // one cause, one finding: nothing about instances (TB-030)
    {"no_result", "TB-054"},
    {"two_results", "TB-054"},
    {"silent_failure", "TB-054"},
    {"no_share", "TB-055"},
    {"two_shares", "TB-055"},
    {"lies_about_limit", "TB-056"},
    {"no_limit", "TB-056"},
    {"count_without_limit", "TB-079"},
    {"requested_other", "TB-078"},
    {"lists_no_request", "TB-078"},
    {"not_idempotent", "TB-057"},
    {"lists_twice", "TB-057"},
    {"verify_differs", "TB-058"},
    {"leaves_failed", "TB-059"},
    {"half_done", "TB-060"},
    {"no_lists", "TB-061"},
    {"unprepare_keeps", "TB-062"},
    {"unprepare_once", "TB-063"},
    {"unknown_fails", "TB-064"},
    {"needs_state", "TB-065"},
    {"ignores_without_state", "TB-065"},
    {"forgets", "TB-029 TB-066"},
    {"no_reprepare", "TB-067"},
    {"stuck_after_restart", "TB-068"},
    {"races", "TB-069"},
    {"health_once", "TB-070"},
    {"health_order", "TB-070"},
    {"health_word", "TB-048 TB-070"},
    {"recovers_anything", "TB-071"},
    {"release_loses", "TB-072"},
    {"self_test_fails", "TB-073"},
    {"verify_unknown", "TB-074"},
    {"sweep_loses", "TB-076"},
    {"metric_name", "TB-077"},
};

// Where a call never returns, its deadline is what the case costs.
std::vector<std::string> DeadlineOf(const std::string& fault) {
  return fault == "spins" || fault == "sleeps" ? std::vector<std::string>{"--deadline-ms", "1000"} : std::vector<std::string>{};
}

TEST(FaultyBackends, EachIsNamedByItsRule) {
  for (const auto& [fault, rules] : kFaults) {
#if defined(__SANITIZE_ADDRESS__)
    if (fault == "allocates" || fault == "grows") continue;  // memory is the sanitizer's then
#endif
    const Answer answer = Conform((kFakes / ("faulty_" + fault + ".so")).string(), DeadlineOf(fault));
    EXPECT_EQ(answer.failed, rules) << fault << "\n" << answer.text;
    EXPECT_EQ(answer.exit_code, rules.empty() ? 0 : 1) << fault;
  }
}

TEST(FaultyBackends, EveryBuiltLibraryIsInTheTable) {
  int built = 0;
  for (const auto& entry : fs::directory_iterator(kFakes)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("faulty_") || !name.ends_with(".so")) continue;
    ++built;
    EXPECT_TRUE(kFaults.contains(name.substr(7, name.size() - 10))) << name;
  }
  EXPECT_EQ(built, static_cast<int>(kFaults.size()));
}

// The loader's own broken libraries: each has the loader's stage as a rule.
TEST(FaultyBackends, WhatTheLoaderRefusesTheKitNames) {
  const std::map<std::string, std::string> kinds = {
      {"no_symbol", "TB-009"}, {"other_major", "TB-009"}, {"declines", "TB-016"},      {"throws_in_entry", "TB-016"}, {"magic", "TB-018"},
      {"major", "TB-019"},     {"short_table", "TB-020"}, {"null_function", "TB-021"}, {"table_name", "TB-022"},      {"flags", "TB-024"},
      {"json", "TB-048"},      {"null_string", "TB-047"}, {"silent", "TB-048"}};
  for (const auto& [kind, rule] : kinds) {
    const Answer answer = Conform((kFakes / ("broken_" + kind + ".so")).string());
    EXPECT_NE(answer.failed.find(rule), std::string::npos) << kind << "\n" << answer.text;
    EXPECT_EQ(answer.exit_code, 1) << kind;
  }
}

// What is not to be seen in a number alone.
TEST(FaultyBackends, WordsOfAFinding) {
  const std::map<std::string, std::string> kWords = {{"needs_state", "unprepare with an empty state: INVALID_ARGUMENT: state is empty"},
                                                     {"ignores_without_state", "unprepare with an empty state: returned OK, but the key is still listed"},
                                                     {"discover_fails", "discover fails: INTERNAL: the bus does not answer"},
                                                     {"verify_unknown", "verify of an unknown key returns INTERNAL"},
                                                     {"create_fails", "create fails: UNAVAILABLE: the hardware does not answer"},
                                                     {"lists_no_request", "list_prepared says that 0 of memory was requested"},
                                                     {"count_without_limit", "queues is enforced (hard) and the share states no limit for it"}};
  for (const auto& [fault, words] : kWords) {
    const Answer answer = Conform((kFakes / ("faulty_" + fault + ".so")).string());
    EXPECT_NE(answer.text.find(words), std::string::npos) << fault << "\n" << answer.text;
  }
}

TEST(Plugins, NullBackendConforms) {
  const Answer answer = Conform(BackendDirectory() + "/null_backend.so");
  EXPECT_EQ(answer.failed, "") << answer.text;
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
}

TEST(Plugins, BothExamplesConform) {
  TemporaryDirectory directory;
  const std::string config = directory.path() + "/config.json";
  Write(config, R"({"memoryMiB": 4096})");
  const Answer plain = Conform(BackendDirectory() + "/plain_c.so", {"--config", config});
  EXPECT_EQ(plain.exit_code, 0) << plain.text;
  const Answer accelerator =
      Conform(BackendDirectory() + "/fake_accelerator.so", {"--config", std::string(TRANCHE_SOURCE_DIRECTORY) + "/sdk/template/config.json"});
  EXPECT_EQ(accelerator.exit_code, 0) << accelerator.text;
}

TEST(Plugins, VnicTcConforms) {
  if (!EnterPrivateNetwork() || !MakeUplink()) GTEST_SKIP() << "needs root and network namespaces";
  TemporaryDirectory directory;
  const std::string config = directory.path() + "/config.json";
  Write(config, R"({"parents": [{"interface": "up0", "bandwidth": "1G", "subnet": "10.99.0.0/24"}], "attachHook": "/opt/tranche/vnic-attach"})");
  const Answer answer = Conform(BackendDirectory() + "/vnic_tc.so", {"--config", config});
  EXPECT_EQ(answer.failed, "") << answer.text;
  EXPECT_EQ(answer.exit_code, 0) << answer.text;
}

TEST(Program, RulesAreTheDocument) {
  const RunResult run = RunProgram({Binary("tranche-conform"), "--rules"});
  EXPECT_EQ(run.output, Read(fs::path(TRANCHE_SOURCE_DIRECTORY) / "docs" / "backend-rules.md"))
      << "write it again: tranche-conform --rules > docs/backend-rules.md";
}

TEST(Program, Formats) {
  const std::string library = (kFakes / "faulty_wrong_magic.so").string();
  const RunResult text = RunProgram({Binary("tranche-conform"), library});
  EXPECT_NE(text.output.find("TB-018  FAILED"), std::string::npos) << text.output;
  const RunResult junit = RunProgram({Binary("tranche-conform"), library, "--format", "junit"});
  EXPECT_NE(junit.output.find("failures=\"1\""), std::string::npos) << junit.output;
  EXPECT_NE(junit.output.find("<failure message=\"magic is 1\"/>"), std::string::npos) << junit.output;
}

// A rule that was not reached says why, once for people and everywhere for programs; codes have their names.
TEST(Program, WhatWasNotReachedSaysWhy) {
  const std::string library = (kFakes / "faulty_no_reason.so").string();
  const RunResult text = RunProgram({Binary("tranche-conform"), library});
  EXPECT_NE(text.output.find("prepare returned UNAVAILABLE without a reason"), std::string::npos) << text.output;
  const std::size_t reason = text.output.find("not reached: TB-041, TB-061 failed\n");
  ASSERT_NE(reason, std::string::npos) << text.output;
  EXPECT_EQ(text.output.find("not reached: ", reason + 1), std::string::npos) << text.output;
  const RunResult junit = RunProgram({Binary("tranche-conform"), library, "--format", "junit"});
  EXPECT_NE(junit.output.find("<error message=\"not reached: TB-041, TB-061 failed\"/>"), std::string::npos) << junit.output;
}

TEST(Program, WrongUse) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {}, {"--format"}, {"x.so", "--format", "yaml"}, {"x.so", "y.so"}, {"x.so", "--cycles", "many"}, {"x.so", "--config", "/nowhere"}}) {
    std::vector<std::string> command = {Binary("tranche-conform")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(RunProgram(command).exit_code, 2) << testing::PrintToString(arguments);
  }
  const Answer absent = Conform("/nowhere/x.so");
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_EQ(absent.failed, "TB-001 TB-006") << absent.text;
}

TEST(Program, ManifestOnlyRunsNoCode) {
  const Answer answer = Conform((kFakes / "faulty_load_crashes.so").string(), {"--manifest"});
  EXPECT_EQ(answer.failed, "") << answer.text;
  EXPECT_EQ(answer.exit_code, 0);
}

}  // namespace
}  // namespace tranche::test
