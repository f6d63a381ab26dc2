#include "hardware.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <tranche/backend.hpp>

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
  EXPECT_THROW(hardware.Set({"b", "FAKE-0", 600, false}), tranche::sdk::Error);
  EXPECT_EQ(hardware.Set({"a", "FAKE-0", 1000, false}).memory_bytes, 1000);
}

TEST_F(HardwareTest, AWholeBoardIsAlone) {
  const Hardware hardware(1, 1000, directory_);
  hardware.Set({"a", "FAKE-0", 1000, true});
  EXPECT_THROW(hardware.Set({"b", "FAKE-0", 1, false}), tranche::sdk::Error);
  hardware.Remove("FAKE-0", "a");
  hardware.Remove("FAKE-0", "a");
  EXPECT_EQ(hardware.Set({"b", "FAKE-0", 1, false}).memory_bytes, 1);
}

// The host repairs nothing after an error; after a list with a gap it would give the memory away again.
TEST_F(HardwareTest, ASliceThatCannotBeReadIsAnError) {
  const Hardware hardware(1, 1000, directory_);
  hardware.Set({"a", "FAKE-0", 400, false});
  std::ofstream(directory_ + "/7.slice") << "FAKE-0 half";
  try {
    hardware.Slices();
    FAIL() << "no error";
  } catch (const tranche::sdk::Error& error) {
    EXPECT_EQ(error.code(), TRANCHE_DATA_LOSS);
    EXPECT_NE(std::string(error.what()).find(directory_ + "/7.slice"), std::string::npos) << error.what();
  }
}

TEST_F(HardwareTest, ASliceOfABoardThatIsGoneCanBeRemoved) {
  Hardware(2, 1000, directory_).Set({"a", "FAKE-1", 400, false});
  const Hardware smaller(1, 1000, directory_);
  ASSERT_EQ(smaller.Slices().size(), 1u);
  smaller.Remove("FAKE-1", "a");
  EXPECT_TRUE(smaller.Slices().empty());
}

}  // namespace
}  // namespace fake_accelerator
