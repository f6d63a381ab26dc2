#include "hardware.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace fake_accelerator {
namespace {

class HardwareTest : public testing::Test {
 protected:
  HardwareTest() {
    std::string name = testing::TempDir() + "/hardware-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
  }
  ~HardwareTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(HardwareTest, SlicesOutliveTheObject) {
  Hardware(1, 1000, directory_).Set({"a", "FAKE-0", 400, false});
  const auto slices = Hardware(1, 1000, directory_).Slices();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].tag, "a");
  EXPECT_EQ(slices[0].memory_bytes, 400);
}

TEST_F(HardwareTest, NeverMoreThanTheBoardHas) {
  const Hardware hardware(1, 1000, directory_);
  hardware.Set({"a", "FAKE-0", 600, false});
  EXPECT_THROW(hardware.Set({"b", "FAKE-0", 600, false}), std::runtime_error);
  EXPECT_EQ(hardware.Set({"a", "FAKE-0", 1000, false}).memory_bytes, 1000);
}

TEST_F(HardwareTest, AWholeBoardIsAlone) {
  const Hardware hardware(1, 1000, directory_);
  hardware.Set({"a", "FAKE-0", 1000, true});
  EXPECT_THROW(hardware.Set({"b", "FAKE-0", 1, false}), std::runtime_error);
  hardware.Remove("a");
  hardware.Remove("a");
  EXPECT_EQ(hardware.Set({"b", "FAKE-0", 1, false}).memory_bytes, 1);
}

}  // namespace
}  // namespace fake_accelerator
