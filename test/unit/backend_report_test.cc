// What `tranchectl backend run` says of a host's answers.
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/backend_report.h"

namespace tranche::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace json = boost::json;

const json::value kServing = json::parse(R"({"backends": [{"name": "trial", "problem": null}]})");

TEST(DevicesReport, HealthIsTheLastVerdictOfTheLog) {
  const json::value devices = json::parse(
      R"({"devices": [{"name": "d-0-whole", "physical": "d-0", "mode": "whole"}, {"name": "d-1-whole", "physical": "d-1", "mode": "whole"}], "withheld": []})");
  const auto line = [](const char* verdict) {
    return json::serialize(json::object{{"level", "info"}, {"message", "health verdict"}, {"verdict", verdict}}) + "\n";
  };
  const std::string log =
      line(R"({"device": "d-0", "verdict": "healthy"})") + "no JSON at all\n" + line(R"({"device": "d-0", "verdict": "unhealthy", "message": "too hot"})");
  const std::string text = DevicesReport(devices, kServing, log);
  EXPECT_THAT(text, HasSubstr("unhealthy: too hot"));
  EXPECT_THAT(text, Not(HasSubstr("  healthy")));
  EXPECT_THAT(text, HasSubstr("not reported")) << "d-1";
  EXPECT_THAT(text, Not(HasSubstr("NOT PUBLISHED")));
}

TEST(DevicesReport, ARefusedBackendIsOneRowWithTheHostsReason) {
  const json::value devices = json::parse(R"({"devices": [], "withheld": [
      {"offer": "whole", "physical": "", "reason": "backend trial has reported no device"},
      {"offer": "share", "physical": "", "reason": "backend trial has reported no device"}]})");
  const json::value status = json::parse(R"({"backends": [{"problem": {"code": "INVALID_ARGUMENT", "message": "boards must be 1 or more"}}]})");
  EXPECT_EQ(DevicesReport(devices, status, ""),
            "none\n\n"
            "NOT PUBLISHED  DEVICES  REASON\n"
            "whole, share   all      INVALID_ARGUMENT: boards must be 1 or more\n");
}

TEST(DevicesReport, DevicesWithOneReasonAreOneRow) {
  json::array withheld;
  for (const char* physical : {"d-0", "d-1", "d-2", "d-3", "d-4", "d-5"})
    withheld.push_back(json::object{{"offer", "share"}, {"physical", physical}, {"reason", "no capacity of this device can be shared; offer it whole"}});
  const std::string text = DevicesReport(json::object{{"devices", json::array()}, {"withheld", withheld}}, kServing, "");
  EXPECT_THAT(text, HasSubstr("share          d-0, d-1, d-2, d-3 and 2 more  no capacity"));
}

TEST(EditsReport, EveryKindOfEdit) {
  const json::value shares = json::parse(R"({"shares": [{"applied": {"containerEdits": {
      "env": ["A=1"], "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/y", "permissions": "rw"}],
      "mounts": [{"hostPath": "/lib/v", "containerPath": "/usr/lib/v", "options": ["ro"]}],
      "hooks": [{"hookName": "createRuntime", "path": "/opt/h", "args": ["h", "-v"]}],
      "netDevices": [{"hostInterfaceName": "vf0", "name": "net1"}]}}}]})");
  const std::string text = EditsReport(shares);
  for (const char* line : {"env               A=1\n", "device node       /dev/x from /dev/y rw\n", "mount             /lib/v on /usr/lib/v ro\n",
                           "hook              createRuntime: /opt/h [\"h\",\"-v\"]\n", "network device    vf0 as net1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(EditsReport(json::parse(R"({"shares": [{"applied": {}}]})")), HasSubstr("gets nothing"));
}

TEST(ProblemsReport, WarningsAndErrorsOnly) {
  EXPECT_EQ(ProblemsReport("{\"time\": \"t\", \"level\": \"error\", \"message\": \"backend refused\", \"reason\": \"no bus\"}\n"
                           "{\"time\": \"t\", \"level\": \"info\", \"message\": \"serving\"}\n"),
            "  error: backend refused; reason no bus\n");
}

}  // namespace
}  // namespace tranche::ctl
