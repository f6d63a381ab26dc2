// Quantities against vectors that were produced by Kubernetes' own parser and printer, and the helpers of base/.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/order.h"
#include "base/quantity.h"
#include "base/status.h"
#include "base/utf8.h"

namespace tranche {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Quantity Q(std::string_view text) {
  const absl::StatusOr<Quantity> quantity = Quantity::Parse(text);
  EXPECT_TRUE(quantity.ok()) << text << ": " << quantity.status();
  return quantity.value_or(Quantity());
}

constexpr auto kAccepted = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"0", "0"},
    {"00", "0"},
    {"0Ki", "0"},
    {"0E", "0"},
    {"0m", "0"},
    {"-0", "0"},
    {"+0", "0"},
    {".", "0"},
    {"-.", "0"},
    {"+", "0"},
    {"-", "0"},
    {"Ki", "0"},
    {"E", "0"},
    {"1", "1"},
    {"-1", "-1"},
    {"+1", "+1"},
    {"01", "01"},
    {"1.", "1."},
    {"1.G", "1.G"},
    {"1.0", "1"},
    {"1.000", "1"},
    {"1000", "1k"},
    {"1k", "1k"},
    {"1000m", "1"},
    {"1500m", "1500m"},
    {"1.5", "1500m"},
    {".5", "500m"},
    {".001", "1m"},
    {"0.001", "1m"},
    {"0.0005k", "500m"},
    {"1000u", "1m"},
    {"0.1m", "100u"},
    {"1080000000n", "1080m"},
    {"1n", "1n"},
    {"0.5n", "1n"},
    {"3.001n", "4n"},
    {"-3.001n", "-4n"},
    {"-0.9n", "-1n"},
    {"0.0000000001", "1n"},
    {"0.00000012345", "124n"},
    {"0.123456789", "123456789n"},
    {"0.1234567891", "123456790n"},
    {"-1500m", "-1500m"},
    {"-1.5", "-1500m"},
    {"-1024", "-1024"},
    {"1024", "1024"},
    {"1025", "1025"},
    {"1536", "1536"},
    {"1Ki", "1Ki"},
    {"1.0Ki", "1Ki"},
    {"1.25Ki", "1280"},
    {"1.1Ki", "1126400m"},
    {"0.1Ki", "102400m"},
    {"100.035Ki", "102435840m"},
    {"0.5Ki", "512"},
    {"0.5Mi", "512Ki"},
    {"0.7Mi", "734003200m"},
    {"1.7Mi", "1782579200m"},
    {"8Ki", "8Ki"},
    {"16Ki", "16Ki"},
    {"512Ki", "512Ki"},
    {"1023Ki", "1023Ki"},
    {"1024Ki", "1Mi"},
    {"1025Ki", "1025Ki"},
    {"2048Ki", "2Mi"},
    {"8192Ki", "8Mi"},
    {"307200Ki", "300Mi"},
    {"1000Mi", "1000Mi"},
    {"1024Mi", "1Gi"},
    {"1536Mi", "1536Mi"},
    {"1.5Gi", "1536Mi"},
    {"100Gi", "100Gi"},
    {"4864Mi", "4864Mi"},
    {"81559Mi", "81559Mi"},
    {"141312Mi", "138Gi"},
    {"1025024Mi", "1001Gi"},
    {"7Ei", "7Ei"},
    {"8Ei", "9223372036854775807"},
    {"9Ei", "9223372036854775807"},
    {"-9Ei", "-9223372036854775807"},
    {"9223372036854775807Ki", "9223372036854775807"},
    {"9223372036854775807", "9223372036854775807"},
    {"9223372036854775808", "9223372036854775808"},
    {"92233720368547758070", "92233720368547758070"},
    {"18446744073709551616", "18446744073709551616"},
    {"18446744073709551616Ki", "9223372036854775807"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"12E", "12E"},
    {"100E", "100E"},
    {"1E", "1E"},
    {"10P", "10P"},
    {"10000T", "10P"},
    {"1000000000000000000", "1E"},
    {"0.001T", "1G"},
    {"300.2T", "300200G"},
    {"999999999999999999", "999999999999999999"},
    {"100.035k", "100.035k"},
    {"7.123456M", "7.123456M"},
    {"1.7G", "1700M"},
    {"1e3", "1e3"},
    {"1E3", "1E3"},
    {"1e+3", "1e+3"},
    {"1E-3", "1E-3"},
    {"1e0", "1e0"},
    {"12e6", "12e6"},
    {"1.3E+6", "1300e3"},
    {"1.5e3", "1500"},
    {"1e14", "100e12"},
    {"1e18", "1e18"},
    {"1e19", "10e18"},
    {"1e20", "100e18"},
    {"1e40", "10e39"},
    {"1e100", "10e99"},
    {"1e-9", "1e-9"},
    {"1e-10", "1e-9"},
    {"1e-40", "1e-9"},
    {"1000e-12", "1e-9"},
    {".001e12", "1e9"},
    {".001Ki", "1024m"},
    {".000001Ki", "1024u"},
    {".000000001Ki", "1024n"},
    {"0.000000000001Ki", "2n"},
    {"9223372036854775.807", "9223372036854775807m"},
    {"9223372036854775m", "9223372036854775m"},
    {"9223372036854776", "9223372036854776"},
    {"-0.1Ki", "-102400m"},
    // beyond what upstream prints: nothing is lost where the suffixes end
    {"1000E", "1000E"},
    {"1e1000", "10e999"},
    {"1e-1000", "1e-9"},
    {"0e1000", "0"},
    {"010Mi", "010Mi"},
    {"007", "007"},
});

TEST(QuantityTest, PrintsEveryAcceptedTextAsTheApiServerDoes) {
  for (const auto& [in, out] : kAccepted) EXPECT_EQ(Q(in).ToString(), out) << "of " << in;
}

TEST(QuantityTest, PrintedTextParsesToTheSameValueAndTheSameText) {
  for (const auto& [in, out] : kAccepted) {
    EXPECT_EQ(Q(out), Q(in)) << in;
    EXPECT_EQ(Q(out).ToString(), out) << in;
  }
}

TEST(QuantityTest, RejectsWrongShapesAndNamesThem) {
  for (const std::string_view text : {"",   "1.1.M", "1+1.0M", "0.1am", "aoeu",  " 1",   "1 ",    "1KI",  "1gi", "1GB",         "1GiB",
                                      "1g", "1t",    "1Zi",    "1_000", "1,000", "0x10", "1e1e1", "1e3i", "1\n", "\xef\xbc\x91"}) {
    const auto quantity = Quantity::Parse(text);
    ASSERT_EQ(quantity.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(quantity.status().message()), testing::AnyOf(HasSubstr("shape"), HasSubstr("empty"))) << text;
  }
}

TEST(QuantityTest, RejectsUnknownSuffixesAndNamesThem) {
  for (const std::string_view text : {"0.1mi", ".5i", "1i", "-3.01i", "-3.01e-", "1K", "1ki", "1mi", "1Mm", "1nn", "1e", "e", "--1", "++1", "+-1"}) {
    const auto quantity = Quantity::Parse(text);
    ASSERT_EQ(quantity.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(quantity.status().message()), HasSubstr("suffix")) << text;
  }
}

TEST(QuantityTest, DifferenceExponentBeyondAThousandIsAnError) {
  for (const std::string_view text : {"1e1001", "1e-1001", "1e99999999999", "1E99999999999999999999999", "1e-99999999999999999999999"}) {
    EXPECT_THAT(std::string(Quantity::Parse(text).status().message()), HasSubstr("exponent")) << text;
  }
}

TEST(QuantityTest, RejectsTextsOfUnreasonableLength) {
  EXPECT_TRUE(Quantity::Parse(std::string(1024, '9')).ok());
  EXPECT_FALSE(Quantity::Parse(std::string(1025, '9')).ok());
  EXPECT_FALSE(Quantity::Parse(std::string_view("1\0", 2)).ok());
}

struct Sum {
  std::string_view left, right, sum;
};
constexpr std::array<Sum, 15> kSums = {{
    {"1Gi", "1G", "2073741824"},
    {"1G", "1Gi", "2073741824"},
    {"0", "1Gi", "1Gi"},
    {"1", "0Ki", "1"},
    {"500m", "500m", "1"},
    {"1500m", "500m", "2"},
    {"1Ki", "1", "1025"},
    {"1Ki", "500m", "1024500m"},
    {"9223372036854775807", "1", "9223372036854775808"},
    {"1e3", "1k", "2e3"},
    {"1k", "1e3", "2k"},
    {"8Ei", "8Ei", "18446744073709551614"},
    {"1Mi", "1k", "1049576"},
    {"1n", "1E", "1000000000000000000000000001n"},
    {"1E", "1n", "1000000000000000000000000001n"},
}};

TEST(QuantityTest, AddsExactlyAndKeepsTheReceiversFormat) {
  for (const auto& [left, right, sum] : kSums) EXPECT_EQ((Q(left) + Q(right)).ToString(), sum) << left << " + " << right;
  EXPECT_EQ((Q("1Gi") + Q("1G")).format(), Quantity::Format::kBinarySI);
  EXPECT_EQ((Q("1G") + Q("1Gi")).format(), Quantity::Format::kDecimalSI);
  EXPECT_EQ((Q("0") + Q("1Gi")).format(), Quantity::Format::kBinarySI);
}

TEST(QuantityTest, SubtractsExactly) {
  EXPECT_EQ((Q("1Gi") - Q("1Gi")).ToString(), "0");
  EXPECT_EQ((Q("1Gi") - Q("2Gi")).ToString(), "-1Gi");
  EXPECT_EQ((Q("100m") - Q("1")).ToString(), "-900m");
  EXPECT_EQ((Q("1Gi") - Q("1")).ToString(), "1073741823");
  EXPECT_EQ((Q("1536Mi") - Q("1.5Gi")).ToString(), "0");
  Quantity left = Q("3Mi");
  left -= Q("1Mi");
  left += Q("2Mi");
  EXPECT_EQ(left.ToString(), "4Mi");
}

TEST(QuantityTest, ComparesNumbersNotTexts) {
  const std::array<std::pair<std::string_view, std::string_view>, 9> equal = {{{"1Gi", "1024Mi"},
                                                                               {"1000m", "1"},
                                                                               {"1e3", "1k"},
                                                                               {"1k", "1000"},
                                                                               {"1Ki", "1024"},
                                                                               {"1.0", "1"},
                                                                               {"0", "0Ki"},
                                                                               {"9Ei", "9223372036854775807"},
                                                                               {"1n", "0.5n"}}};
  for (const auto& [left, right] : equal) EXPECT_EQ(Q(left), Q(right)) << left;
  EXPECT_LT(Q("12E"), Q("13E"));
  EXPECT_LT(Q("-1"), Q("1n"));
  EXPECT_GT(Q("10000T"), Q("100Gi"));
}

TEST(QuantityTest, FromInt64PrintsByItsFormat) {
  EXPECT_EQ(Quantity::FromInt64(1000, Quantity::Format::kBinarySI).ToString(), "1k");
  EXPECT_EQ(Quantity::FromInt64(1025, Quantity::Format::kBinarySI).ToString(), "1025");
  EXPECT_EQ(Quantity::FromInt64(1023, Quantity::Format::kBinarySI).ToString(), "1023");
  EXPECT_EQ(Quantity::FromInt64(2048, Quantity::Format::kBinarySI).ToString(), "2Ki");
  EXPECT_EQ(Quantity::FromInt64(0, Quantity::Format::kBinarySI).ToString(), "0");
  EXPECT_EQ(Quantity::FromInt64(std::numeric_limits<std::int64_t>::min()).ToString(), "-9223372036854775808");
}

TEST(QuantityTest, DifferenceConversionsReportOverflowInsteadOfWrapping) {
  EXPECT_EQ(Q("12E").ToInt64().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Q("18446744073709551616").ToInt64().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Q("9223372036854775808").CeilToInt64().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Q("10P").CeilToMilli().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Q("9223372036854776").CeilToMilli().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(*Q("9223372036854775").CeilToMilli(), 9223372036854775000);
  EXPECT_EQ(*Q("-9223372036854775808").ToInt64(), std::numeric_limits<std::int64_t>::min());
}

TEST(QuantityTest, ConvertsExactValuesHoweverTheyAreWritten) {
  for (const auto& [text, value] : std::array<std::pair<std::string_view, std::int64_t>, 6>{
           {{"0m", 0}, {"1000m", 1}, {"1.0", 1}, {"1.5Gi", 1610612736}, {"7Ei", 8070450532247928832}, {"-5", -5}}}) {
    EXPECT_EQ(Q(text).ToInt64().value_or(-99), value) << text;
  }
  EXPECT_EQ(Q("1500m").ToInt64().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(QuantityTest, CeilsTowardPlusInfinity) {
  EXPECT_EQ(*Q("1n").CeilToInt64(), 1);
  EXPECT_EQ(*Q("1.5").CeilToInt64(), 2);
  EXPECT_EQ(*Q("-1.5").CeilToInt64(), -1);
  EXPECT_EQ(*Q("-0.9n").CeilToInt64(), 0);
  EXPECT_EQ(*Q("1.0000001").CeilToMilli(), 1001);
}

TEST(QuantityTest, RoundsUpToTheGrid) {
  EXPECT_EQ(Q("1500Mi").RoundUpToGrid(Q("1Gi"), Q("1Gi")).ToString(), "2Gi");
  EXPECT_EQ(Q("15").RoundUpToGrid(Q("10"), Q("10")).ToString(), "20");
  EXPECT_EQ(Q("250m").RoundUpToGrid(Q("200m"), Q("100m")).ToString(), "300m");
  EXPECT_EQ(Q("5").RoundUpToGrid(Q("10"), Q("10")), Q("10"));
  EXPECT_TRUE(Q("8Gi").IsOnGrid(Q("2Gi"), Q("3Gi")));
  EXPECT_FALSE(Q("7Gi").IsOnGrid(Q("2Gi"), Q("3Gi")));
  EXPECT_FALSE(Q("7Gi").IsOnGrid(Q("2Gi"), Q("0")));
}

TEST(QuantityTest, ScalesDown) {
  EXPECT_EQ(Q("10G").ScaleDown(10, 100).ToString(), "1G");
  EXPECT_EQ(Q("7").ScaleDown(1, 2).ToString(), "3");
  EXPECT_EQ(Q("1500m").ScaleDown(1, 2).ToString(), "750m");
  EXPECT_EQ(Q("3").Times(5).ToString(), "15");
  EXPECT_EQ(Q("-7").ScaleDown(1, 2).ToString(), "-4");
  EXPECT_EQ(Q("9223372036854775807").ScaleDown(std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()), Q("9223372036854775807"));
  EXPECT_EQ(Q("7").ScaleDown(1, 0), Q("7"));
}

TEST(QuantityTest, MovedFromValueIsStillTheValue) {
  Quantity first = Q("5Gi");
  const Quantity second = std::move(first);
  EXPECT_EQ(first, second);  // NOLINT(bugprone-use-after-move): that is what is promised
  EXPECT_EQ(first.ToString(), "5Gi");
}

TEST(ClockTest, FormatsAndParsesRfc3339) {
  const auto time = ParseTime("2026-11-29T12:00:00.123456Z");
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(FormatTime(*time), "2026-11-29T12:00:00.123456Z");
  EXPECT_EQ(FormatTime(WallTime{}), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(FormatTime(*ParseTime("2026-03-01T00:30:00+01:00")), "2026-02-28T23:30:00.000000Z");
  EXPECT_EQ(FormatTime(*ParseTime("1969-12-31T23:59:59.5Z")), "1969-12-31T23:59:59.500000Z");
}

TEST(ClockTest, RefusesOtherTexts) {
  for (const std::string_view text : {"", "2026", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00",
                                      "2026-01-01 00:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00Zx", "9999-01-01T00:00:00Z"}) {
    EXPECT_EQ(ParseTime(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(IdsTest, UuidsAreRandomAndWellFormed) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = NewUuid();
    ASSERT_TRUE(IsUuid(uuid)) << uuid;
    ASSERT_EQ(uuid[14], '4');
    ASSERT_TRUE(seen.insert(uuid).second);
  }
  EXPECT_FALSE(IsUuid("2B3C1DCE-0000-4000-8000-000000000000"));
  EXPECT_FALSE(IsUuid("2b3c1dce000040008000000000000000"));
}

TEST(IdsTest, DigestsAndNames) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(IsDnsLabel("gpu-0"));
  EXPECT_FALSE(IsDnsLabel("-gpu"));
  EXPECT_FALSE(IsDnsLabel("GPU"));
  EXPECT_FALSE(IsDnsLabel(std::string(64, 'a')));
  EXPECT_TRUE(IsDnsSubdomain("vnic.tranche.dev"));
  EXPECT_FALSE(IsDnsSubdomain("vnic..dev"));
  EXPECT_FALSE(IsDnsSubdomain("vnic."));
  EXPECT_TRUE(IsDnsSubdomain(std::string(253, 'a')));  // a name that the API server accepts
  EXPECT_FALSE(IsDnsSubdomain(std::string(254, 'a')));
  EXPECT_TRUE(IsQualifiedName("gpu.example.com/memory"));
  EXPECT_TRUE(IsQualifiedName("copyEngines"));
  EXPECT_FALSE(IsQualifiedName("memory-slice"));
  EXPECT_FALSE(IsQualifiedName("/memory"));
  EXPECT_FALSE(IsQualifiedName(std::string(33, 'a')));
}

TEST(IdsTest, DnsLabelsOfDifferentTextsDiffer) {
  EXPECT_EQ(ToDnsLabel("eth1"), "eth1");
  std::set<std::string> labels;
  for (const std::string& text : {std::string("GPU 0"), std::string("gpu 0"), std::string("gpu_0"), std::string("gpu-0"), std::string(""), std::string("---"),
                                  std::string(100, 'a'), std::string(101, 'a'), std::string("\xff\xfe")}) {
    const std::string label = ToDnsLabel(text);
    EXPECT_TRUE(IsDnsLabel(label)) << label;
    EXPECT_TRUE(labels.insert(label).second) << label;
  }
}

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/tranche-files-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const std::string& name : ListDirectory(directory_).value_or(std::vector<std::string>{})) unlink((directory_ + "/" + name).c_str());
    rmdir(directory_.c_str());
  }
  std::string directory_;
};

TEST_F(FilesTest, ReplacesAFileWholeAndLeavesNoTemporary) {
  const std::string path = directory_ + "/spec.json";
  ASSERT_TRUE(WriteFileAtomically(path, "old", 0640, Durability::kDurable).ok());
  ASSERT_TRUE(WriteFileAtomically(path, "new", 0600, Durability::kVisible).ok());
  EXPECT_EQ(ReadFile(path, 100).value_or(""), "new");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(*ListDirectory(directory_), ElementsAre("spec.json"));
}

TEST_F(FilesTest, ReadersNeverSeeAPart) {
  const std::string path = directory_ + "/value";
  const std::string one(100000, '1'), two(100000, '2');
  ASSERT_TRUE(WriteFileAtomically(path, one, 0600, Durability::kVisible).ok());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      EXPECT_TRUE(WriteFileAtomically(path, two, 0600, Durability::kVisible).ok());
      EXPECT_TRUE(WriteFileAtomically(path, one, 0600, Durability::kVisible).ok());
    }
  });
  for (int i = 0; i < 300; ++i) {
    const auto content = ReadFile(path, 200000);
    EXPECT_TRUE(content.ok() && (*content == one || *content == two));
  }
  stop = true;
  writer.join();
}

TEST_F(FilesTest, ErrorsNameThePath) {
  const std::string path = directory_ + "/none/x";
  EXPECT_EQ(ReadFile(path, 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadFile(path, 10).status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(WriteFileAtomically(path, "", 0600, Durability::kVisible).message()), HasSubstr("none"));
  EXPECT_EQ(ListDirectory(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(directory_ + "/big", "12345", 0600, Durability::kVisible).ok());
  EXPECT_EQ(ReadFile(directory_ + "/big", 4).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ReadFile(directory_ + "/big", 5).ok());
  EXPECT_FALSE(ReadFile(directory_, 5).ok());
  EXPECT_EQ(MakeDirectories(directory_ + "/big", 0755).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FilesTest, RemovingAndMakingAreIdempotent) {
  EXPECT_TRUE(RemoveFile(directory_ + "/absent").ok());
  const std::string nested = directory_ + "/a/b";
  EXPECT_TRUE(MakeDirectories(nested, 0755).ok());
  EXPECT_TRUE(MakeDirectories(nested, 0755).ok());
  rmdir(nested.c_str());
  rmdir((directory_ + "/a").c_str());
}

TEST_F(FilesTest, LockExcludesUntilItIsDestroyed) {
  const std::string path = directory_ + "/lock";
  const int other = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  {
    auto lock = FileLock::Acquire(path);
    ASSERT_TRUE(lock.ok());
    const FileLock moved = *std::move(lock);
    EXPECT_NE(flock(other, LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_EQ(flock(other, LOCK_EX | LOCK_NB), 0);
  close(other);
  EXPECT_FALSE(FileLock::Acquire(directory_ + "/none/lock").ok());
}

TEST(StatusTest, AnnotatesAndClassifies) {
  EXPECT_EQ(Annotate(absl::NotFoundError("gone"), "claim a"), absl::NotFoundError("claim a: gone"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_FALSE(IsRetryable(absl::InvalidArgumentError("")));
  EXPECT_EQ(CodeName(absl::StatusCode::kResourceExhausted), "RESOURCE_EXHAUSTED");
}

TEST(OrderTest, NumbersInNamesCountByValue) {
  const std::vector<std::string> ordered = {
      "", "0", "00", "1", "007", "7", "8", "10", "a", "a1b", "a1b2", "a01c", "a2", "a10", "a99999999999999999999", "a100000000000000000000", "b", "\xff"};
  for (std::size_t left = 0; left < ordered.size(); ++left) {
    for (std::size_t right = 0; right < ordered.size(); ++right) {
      EXPECT_EQ(NaturalLess(ordered[left], ordered[right]), left < right) << ordered[left] << " and " << ordered[right];
    }
  }
}

TEST(Utf8Test, IsRfc3629) {
  for (const char* good : {"", "a", "ü", "\u20ac", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) EXPECT_TRUE(IsUtf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8", "\xC3", "\xE2\x82", "a\xFF"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
  EXPECT_EQ(FrontCodePoint("\u20acx")->value, 0x20ACU);
  EXPECT_FALSE(FrontCodePoint("").has_value());
}

TEST(Utf8Test, ReplacesWhatIsNotUtf8AndCutsOnACharacter) {
  EXPECT_EQ(ToUtf8("plain \xC3\xA9", 100), "plain \xC3\xA9");
  EXPECT_EQ(ToUtf8("a\xC0\x80z", 100), "a\xEF\xBF\xBD\xEF\xBF\xBDz");  // overlong
  EXPECT_EQ(ToUtf8("\xED\xA0\x80", 100).size(), 9U);                   // a surrogate
  EXPECT_EQ(ToUtf8("\xF0\x9F\x98\x80\xF0\x9F", 100), "\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(ToUtf8("ab\xC3\xA9", 3), "ab");
}

TEST(Utf8Test, ShortenedTextsEndWithDots) {
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(Shortened("abcdefg", 6), "abc...");
  EXPECT_EQ(Shortened("ab\xC3\xA9xyz", 6), "ab...");
  EXPECT_EQ(Shortened("abc\xFF\xFF", 6), "abc...");
}

}  // namespace
}  // namespace tranche
