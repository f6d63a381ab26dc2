// Every host with every backend: {host 1.0, 1.1} × {backend 1.0, 1.1} × {C, C++}, in process; and each backend in tranched's own processes. What is
// 1.0 is built against the headers that were released as 1.0.
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "support/process.h"

namespace tranche::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const fs::path kDirectory = fs::path(TRANCHE_BINARY_DIRECTORY) / "abi";

std::string RunHost(const std::string& host, const std::string& backend) {
  TemporaryDirectory runtime;
  const RunResult run = RunProgram({kDirectory / ("abi_host_" + host), kDirectory / ("matrix_" + backend + ".so"), R"({"memoryMiB":64})", runtime.path()});
  EXPECT_EQ(run.exit_code, 0) << host << " with " << backend << ": " << run.error;
  return run.output;
}

TEST(AbiMatrix, EveryHostWithEveryBackend) {
  for (const std::string language : {"c", "cc"}) {
    EXPECT_EQ(RunHost("10", language + "_10"), "sweep=- metric=-\n");
    EXPECT_EQ(RunHost("10", language + "_11"), "sweep=- metric=-\n");
    EXPECT_EQ(RunHost("11", language + "_10"), "sweep=no metric=no\n");
    EXPECT_EQ(RunHost("11", language + "_11"), "sweep=yes metric=yes\n");
  }
}

// tranched itself, in its own process and through tranche-runner: a reconcile lists, sweeps, and the number is in the status.
class AbiInHost : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(AbiInHost, ServesAndShowsWhatTheBackendRecords) {
  const auto& [isolation, backend] = GetParam();
  TemporaryDirectory directory;
  LocalNode node(directory.path(),
                 "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n- {name: b, library: matrix_" + backend + ", isolation: " + isolation +
                     ", config: {memoryMiB: 64}, allowEdits: {env: [PLAIN_C_]}}\n"
                     "drivers:\n- name: abi.tranche.dev\n  offers:\n  - {name: share, backend: b, mode: share}\n  classes:\n  - {name: share, offer: share}\n");
  node.UseBackends(kDirectory);
  ASSERT_TRUE(node.Start()) << node.Log();
  const RunResult applied = node.Apply(ClaimManifest("team-a", "one", "share", {{"memory", "1Mi"}}));
  EXPECT_EQ(applied.exit_code, 0) << applied.error << node.Log();
  EXPECT_EQ(node.Ctl({"reconcile"}).exit_code, 0);
  const json::value status = json::parse(node.Ctl({"-o", "json", "status"}).output);
  const json::object& metrics = status.at("backends").at(0).at("metrics").as_object();
  EXPECT_EQ(metrics.contains("boards"), backend.ends_with("11")) << json::serialize(status);
  EXPECT_EQ(node.Ctl({"local", "unprepare", "team-a/one"}).exit_code, 0);
  EXPECT_EQ(node.Terminate(), 0);
}
INSTANTIATE_TEST_SUITE_P(Places, AbiInHost,
                         testing::Combine(testing::Values(std::string("in-process"), std::string("process")),
                                          testing::Values(std::string("c_10"), std::string("c_11"), std::string("cc_10"), std::string("cc_11"))));

}  // namespace
}  // namespace tranche::test
