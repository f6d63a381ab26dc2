#include "lock.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace fake_accelerator {
namespace {

namespace sdk = tranche::sdk;

std::uint32_t polls = 0;

// A call whose deadline passes while it waits.
class LockTest : public testing::Test {
 protected:
  LockTest() {
    polls = 0;
    host_.cancelled = [](tranche_call*) { return ++polls > 3 ? 1u : 0u; };
    std::string name = testing::TempDir() + "/lock-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
  }
  ~LockTest() override { std::filesystem::remove_all(directory_); }
  tranche_code Take(const std::string& file) {
    const sdk::Call call(&host_, nullptr);
    try {
      const Lock lock(file, call);
      return TRANCHE_OK;
    } catch (const sdk::Error& error) { return error.code(); }
  }
  tranche_host_api host_{};
  std::string directory_;
};

TEST_F(LockTest, OneHolderAtATimeAndNoLongerWaitThanTheCall) {
  const std::string file = directory_ + "/lock";
  {
    const sdk::Call call(&host_, nullptr);
    const Lock lock(file, call);
    EXPECT_EQ(Take(file), TRANCHE_DEADLINE_EXCEEDED);
    EXPECT_GT(polls, 3u) << "the call was not asked whether its time is over";
  }
  EXPECT_EQ(Take(file), TRANCHE_OK);
}

TEST_F(LockTest, AFileThatCannotBeIsNoWait) { EXPECT_EQ(Take(directory_ + "/no/lock"), TRANCHE_UNAVAILABLE); }

}  // namespace
}  // namespace fake_accelerator
