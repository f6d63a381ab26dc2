// One event is one line of valid JSON, whatever its texts hold.
#include <algorithm>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/log.h"

namespace tranche {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string Logged(LogLevel level, std::string_view message, const LogFields& fields) {
  testing::internal::CaptureStderr();
  Log(level, message, fields);
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, WritesOneJsonLineWithFields) {
  const std::string line = Logged(LogLevel::kInfo, "claim prepared", {{"claim", "6f"}, {"share", "2b"}});
  EXPECT_THAT(line, StartsWith("{\"time\":\""));
  EXPECT_THAT(line, EndsWith("\"level\":\"info\",\"message\":\"claim prepared\",\"claim\":\"6f\",\"share\":\"2b\"}\n"));
}

TEST(LogTest, EscapesWhatJsonDoesNotAllow) {
  const std::string line = Logged(LogLevel::kError, "a \"b\" \\ \n\t\x01", {{"name", "{} %v"}});
  EXPECT_THAT(line, HasSubstr(R"("message":"a \"b\" \\ \n\t\u0001","name":"{} %v")"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(LogTest, ReplacesBytesThatAreNotUtf8) {
  const std::string line = Logged(LogLevel::kWarning, "\xff\xc3\xa9\xed\xa0\x80\xc3", {});
  EXPECT_THAT(line, HasSubstr("\"message\":\"\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""));
}

TEST(LogTest, LevelDecidesWhatIsWritten) {
  EXPECT_EQ(Logged(LogLevel::kDebug, "hidden", {}), "");
  ASSERT_TRUE(SetLogLevel("debug").ok());
  EXPECT_THAT(Logged(LogLevel::kDebug, "shown", {}), HasSubstr("shown"));
  ASSERT_TRUE(SetLogLevel("error").ok());
  EXPECT_EQ(Logged(LogLevel::kWarning, "hidden", {}), "");
  ASSERT_TRUE(SetLogLevel("info").ok());
  EXPECT_EQ(SetLogLevel("loud").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tranche
