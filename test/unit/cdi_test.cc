#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cdi/cdi.h"

namespace tranche::cdi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDriver[] = "vnic.tranche.dev";
constexpr char kUid[] = "6f1c2d3e-0000-4000-8000-000000000001";

Device EnvDevice(std::string name) {
  Device device{std::move(name), {}};
  device.edits.env = {"TRANCHE_URL=http://h/a"};
  return device;
}

Spec SpecOf(Device device) { return {"vnic.tranche.dev/claim", {std::move(device)}}; }

class CdiDirectory : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/tranche-cdi-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Touch(const std::string& name) const { std::ofstream(path_ + "/" + name) << "x"; }
  std::size_t FileCount() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }
  std::string path_;
};

TEST(CdiVersion, IsTheLowestThatTheFieldsNeed) {
  EXPECT_EQ(MinimumVersion(SpecOf(EnvDevice("a"))), "0.3.0");
  EXPECT_EQ(MinimumVersion(SpecOf(EnvDevice("6a"))), "0.5.0");
  Device node = EnvDevice("a");
  node.edits.device_nodes = {{"/dev/x", "/dev/y", "", "", {}, {}}};
  EXPECT_EQ(MinimumVersion(SpecOf(node)), "0.5.0");
  EXPECT_EQ(MinimumVersion({"v.example/a.b", {EnvDevice("6a")}}), "0.6.0");
  Device net = EnvDevice("a");
  net.edits.net_devices = {{"veth0", "net1"}};
  EXPECT_EQ(MinimumVersion(SpecOf(net)), "1.1.0");
}

TEST(CdiSpec, IsReadBackEqualAndEscapesNoSlash) {
  Device device = EnvDevice("6f-a1");
  device.edits.hooks = {{"createRuntime", "/bin/attach", {"attach", "x"}, {"A=b"}, 5}};
  device.edits.mounts = {{"/run/x", "/etc/ü", {"ro", "bind"}}};
  const absl::StatusOr<std::string> text = EncodeSpec(SpecOf(device));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"cdiVersion\": \"0.5.0\""));
  EXPECT_THAT(*text, HasSubstr("http://h/a"));
  EXPECT_THAT(*text, HasSubstr("/etc/ü"));
  const absl::StatusOr<Spec> again = DecodeSpec(*text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, SpecOf(device));
}

TEST(CdiSpec, RefusesWhatARuntimeWouldDrop) {
  const auto refused = [](const Spec& spec) { return absl::IsInvalidArgument(EncodeSpec(spec).status()); };
  EXPECT_TRUE(refused({"9vnic.dev/claim", {EnvDevice("a")}}));
  EXPECT_TRUE(refused({"vnic.dev", {EnvDevice("a")}}));
  EXPECT_TRUE(refused({"vnic.dev/claim", {}}));
  EXPECT_TRUE(refused({"vnic.dev/claim", {{"a", {}}}}));
  EXPECT_TRUE(refused({"vnic.dev/claim", {EnvDevice("a"), EnvDevice("a")}}));
  EXPECT_TRUE(refused(SpecOf(EnvDevice("a/b"))));
  EXPECT_TRUE(refused(SpecOf(EnvDevice("-a"))));
  Device device = EnvDevice("a");
  device.edits.env = {"=x"};
  EXPECT_TRUE(refused(SpecOf(device)));
  device = EnvDevice("a");
  device.edits.hooks = {{"onTuesday", "/bin/x", {}, {}, {}}};
  EXPECT_TRUE(refused(SpecOf(device)));
  device = EnvDevice("a");
  device.edits.device_nodes = {{"/dev/x", "", "c", "rwx", {}, {}}};
  EXPECT_TRUE(refused(SpecOf(device)));
  device = EnvDevice("a");
  device.edits.net_devices = {{"v0", "n"}, {"v1", "n"}};
  EXPECT_TRUE(refused(SpecOf(device)));
}

TEST(CdiSpec, DecodingNeverAcceptsAnotherShape) {
  for (std::string_view text : {"", "[]", "{}", R"({"kind":"v/c","devices":[1]})", R"({"kind":"v/c","devices":[{"name":"a"}]})",
                                R"({"kind":"v/c","devices":[{"name":"a","containerEdits":{"env":[1]}}]})"}) {
    EXPECT_FALSE(DecodeSpec(text).ok()) << text;
  }
}

TEST(CdiName, CarriesClaimAndShare) {
  const ShareKey key{kUid, "net", kDriver, "n", "eth1-shared", "2b"};
  EXPECT_EQ(DeviceName(key), std::string(kUid) + "-" + ShortId(key));
  EXPECT_EQ(DeviceId(kDriver, key), "vnic.tranche.dev/claim=" + DeviceName(key));
}

TEST_F(CdiDirectory, WritesReplacesAndRemovesOneFileAClaim) {
  const Directory directory(path_);
  ASSERT_TRUE(directory.Write(kDriver, kUid, {EnvDevice("a"), {"empty", {}}}).ok());
  EXPECT_EQ(directory.FilePath(kDriver, kUid), path_ + "/vnic.tranche.dev_claim_" + kUid + ".json");
  EXPECT_EQ(FileCount(), 1U);
  EXPECT_EQ(directory.Read(kDriver, kUid)->devices.size(), 1U);
  ASSERT_TRUE(directory.Write(kDriver, kUid, {EnvDevice("b")}).ok());
  EXPECT_EQ(directory.Read(kDriver, kUid)->devices[0].name, "b");
  EXPECT_THAT(*directory.ListClaims(kDriver), ElementsAre(kUid));
  EXPECT_THAT(*directory.ListClaims("tranche.dev"), IsEmpty());
  ASSERT_TRUE(directory.Remove(kDriver, kUid).ok());
  ASSERT_TRUE(directory.Remove(kDriver, kUid).ok());
  EXPECT_EQ(FileCount(), 0U);
}

TEST_F(CdiDirectory, WritesNoFileWithoutEdits) {
  const Directory directory(path_);
  ASSERT_TRUE(directory.Write(kDriver, kUid, {EnvDevice("a")}).ok());
  ASSERT_TRUE(directory.Write(kDriver, kUid, {{"a", {}}}).ok());
  EXPECT_EQ(FileCount(), 0U);
}

TEST_F(CdiDirectory, NamesCannotLeaveTheDirectory) {
  const Directory directory(path_);
  EXPECT_TRUE(absl::IsInvalidArgument(directory.Write(kDriver, "../x", {EnvDevice("a")})));
  EXPECT_TRUE(absl::IsInvalidArgument(directory.Remove("../x", kUid)));
}

TEST_F(CdiDirectory, ListingRemovesTemporaryFilesOfDeadProcessesOnly) {
  Touch(".vnic.tranche.dev_claim_x.json.2147483646.0");
  Touch(".vnic.tranche.dev_claim_y.json." + std::to_string(getpid()) + ".0");
  Touch(".other.dev_claim_x.json.2147483646.0");
  const Directory directory(path_);
  EXPECT_THAT(*directory.ListClaims(kDriver), IsEmpty());
  EXPECT_EQ(FileCount(), 2U);
}

TEST_F(CdiDirectory, AMissingDirectoryHasNoClaims) {
  EXPECT_THAT(*Directory(path_ + "/none").ListClaims(kDriver), IsEmpty());
  ASSERT_TRUE(Directory(path_ + "/made").Write(kDriver, kUid, {EnvDevice("a")}).ok());
}

}  // namespace
}  // namespace tranche::cdi
