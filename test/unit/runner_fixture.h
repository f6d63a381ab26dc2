// A moody backend in a process of its own, and what a test wants to know of it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sched.h>

#include "backend/loader.h"
#include "backend/runner_backend.h"
#include "support/process.h"

namespace tranche::backend {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif
// Why a backend that opens files to the limit cannot be tried under it.
inline constexpr const char* kNeedsDescriptors = "the sanitizer opens a pipe to look at an object's type, and without descriptors reports a wrong one";

class RunnerFixture : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_.path() + "/backends");
    for (const char* suffix : {".so", ".backend.json"}) {
      std::filesystem::copy(std::filesystem::path(TRANCHE_BINARY_DIRECTORY) / "fakes" / (std::string("moody_backend") + suffix), Library(suffix));
    }
  }

  std::string Library(const char* suffix) const { return directory_.path() + "/backends/moody_backend" + suffix; }
  std::string MoodFile() const { return directory_.path() + "/mood"; }
  void Feel(const std::string& mood) const {
    std::ofstream(MoodFile() + ".part") << mood;
    std::filesystem::rename(MoodFile() + ".part", MoodFile());
  }
  void FeelWell() const { std::filesystem::remove(MoodFile()); }

  void Make() {
    const auto library = Loader(directory_.path() + "/backends").Check("moody_backend");
    ASSERT_TRUE(library.ok()) << library.status();
    RunnerOptions runner;
    runner.program = std::string(TRANCHE_BINARY_DIRECTORY) + "/bin/tranche-runner";
    runner.copies_directory = directory_.path() + "/copies";
    runner.first_back_off = std::chrono::milliseconds(20);
    runner.last_back_off = std::chrono::milliseconds(200);
    runner.hang_grace = hang_grace_;
    runner.kill_patience = std::chrono::milliseconds(300);
    runner.probation = probation_;
    auto backend =
        CreateRunnerBackend(*library, {.name = "moody", .config = R"({"moodFile": ")" + MoodFile() + R"("})", .runtime_directory = directory_.path() + "/run"},
                            runner, {.devices_changed = {}, .share_lost = {}, .health = {}, .availability = [this](const absl::Status& status) {
                                       const std::lock_guard lock(mutex_);
                                       availability_.push_back(status);
                                     }});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  static PrepareItem Item(const std::string& claim) {
    PrepareItem item;
    item.key = {claim, "gpu", "gpu.example.com", "node", "dev", "share-" + claim};
    item.physical = "moody-0";
    item.consumed["memory"] = *Quantity::Parse("10Gi");
    return item;
  }
  PrepareOutcome Prepare(const std::string& claim, std::chrono::milliseconds time = std::chrono::seconds(10)) const {
    return backend_->Prepare({Item(claim)}, DeadlineIn(time)).at(0);
  }
  bool Serves() const {
    return test::Eventually([&] { return backend_->Availability().ok(); });
  }
  int Pid() const { return backend_->Process()->pid; }
  std::vector<absl::Status> Availabilities() {
    const std::lock_guard lock(mutex_);
    return availability_;
  }

  // Whether every thread of the process, and there is one, has this scheduling policy.
  bool AllThreadsHave(int policy) const {
    int threads = 0;
    std::error_code ended;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(Pid()) + "/task", ended)) {
      if (::sched_getscheduler(std::stoi(entry.path().filename())) != policy) return false;
      ++threads;
    }
    return threads > 0;
  }

  std::chrono::milliseconds probation_{60000}, hang_grace_{100};
  test::TemporaryDirectory directory_;
  std::mutex mutex_;
  std::vector<absl::Status> availability_;
  std::shared_ptr<Backend> backend_;  // ends before what its events use
};

}  // namespace tranche::backend
