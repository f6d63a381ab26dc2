// Keeps the ResourceSlices of one driver on this node as they should be: made from the newest inventory, put back within seconds when anyone deletes or
// changes them, in agreement with a second host of ours during a rolling update. One thread a driver; everything it knows of the API comes from a watch
// and from the answers to its own writes.
//
//   Publisher publisher(api, {.driver = "vnic.tranche.dev", .node = "node-1"});
//   publisher.Publish({.snapshot = inventory.Current()});      // now and after each change
//   publisher.Withdraw(DeadlineIn(10s));                       // only when the driver left the configuration
//
// Destruction stops the work and leaves the slices in place, as a restart needs it. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/status.h>

#include "inventory/inventory.h"
#include "slices/dropped.h"
#include "slices/planner.h"
#include "slices/pool.h"
#include "slices/slice_api.h"

namespace tranche::slices {

struct PublisherOptions {
  std::string driver, node;
  std::chrono::milliseconds call_timeout{5000};
  std::chrono::milliseconds longest_wait{8000};   // between tries after failures, and when somebody keeps undoing our work
  std::chrono::milliseconds refusal_wait{30000};  // before content that the server refused is tried again; doubles up to 20 times this
  std::size_t parallel_writes = 4;
  std::function<void()> on_settled{};  // called, from the publisher's thread, when the API has what is wanted after something was written
};

// What should be published. The newest wins; equal input costs nothing.
struct PublishedInput {
  std::shared_ptr<const inventory::Snapshot> snapshot;
  DeviceTaints taints;
};

// For status views.
struct PublisherStatus {
  std::string driver;
  std::int64_t generation = 0;
  std::size_t slices_wanted = 0;
  std::size_t slices_published = 0;        // of those wanted, as the API has them
  std::string last_error;                  // empty: the API has what is wanted, as far as the server can keep it
  std::vector<Problem> problems;           // of the plan
  std::vector<std::string> refused;        // what the server said to slices that it does not take
  std::vector<std::string> dropped_gates;  // feature gates whose fields the server drops
  std::uint64_t writes = 0;                // creates, replaces and deletes that were sent
};

class Publisher {
 public:
  // `api` outlives the publisher.
  Publisher(SliceApi& api, PublisherOptions options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  void Publish(PublishedInput input);
  // Deletes every slice of the driver on this node and publishes nothing until the next Publish. DeadlineExceeded says what is in the way; the
  // work goes on nevertheless.
  absl::Status Withdraw(Deadline deadline);
  PublisherStatus Status() const;

 private:
  enum class Goal { kNone, kPublished, kWithdrawn };
  struct Result {
    Write write;
    absl::StatusOr<Slice> stored;  // of a delete: the slice itself
  };

  void Run();
  SliceWatchHandler Handler();
  // One look at everything. Each answers what stands in the way; OK with nothing to do means that the API has what is wanted.
  absl::Status Step(std::unique_lock<std::mutex>& lock);
  absl::Status LearnServer(std::unique_lock<std::mutex>& lock);
  absl::Status LearnOwner(std::unique_lock<std::mutex>& lock);
  absl::Status TryGates(std::unique_lock<std::mutex>& lock);
  void Replan();
  bool MustWait(const std::vector<Write>& writes);
  absl::Status Carry(std::vector<Write> writes, std::unique_lock<std::mutex>& lock);
  absl::Status Take(Result result);
  void TakeStored(const Write& write, Slice stored);
  void TakeRefusal(const Write& write, const absl::Status& refusal);
  std::vector<Result> Send(std::vector<Write> writes);
  Result SendOne(Write write);
  void NoteDropped(const Dropped& dropped);
  void NoteOutcome(const absl::Status& outcome);
  std::chrono::milliseconds Jittered(std::chrono::milliseconds wait);
  void Wake();

  SliceApi& api_;
  const PublisherOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool awake_ = true;  // look again at once
  Goal goal_ = Goal::kNone;
  PublishedInput input_;
  bool replan_ = false;
  Pool pool_;
  std::vector<Problem> problems_;
  std::map<std::size_t, std::string> refused_;  // by index: what the server said
  std::map<std::size_t, int> refusals_;         // how often in a row
  std::string counters_refused_;                // what the server said to counter sets; they are left out until the input changes

  bool server_known_ = false;
  bool lists_seen_ = false;
  ServerFeatures features_;
  std::set<std::string> dropped_;  // names of gates
  bool try_gates_ = false;         // a dry run may find gates on that we took for off
  NodeOwner owner_;
  bool owner_known_ = false;

  std::string watch_error_, last_error_;
  std::uint64_t writes_ = 0;
  bool settled_ = true;                           // nothing was written since on_settled
  int failures_ = 0;                              // in a row
  TimePoint not_before_{};                        // after failures
  std::map<std::size_t, std::uint64_t> written_;  // epoch of the last write by index
  int undone_ = 0;                                // how often in a row somebody undid our work
  TimePoint repeat_not_before_{};
  TimePoint last_repeat_{};
  std::mt19937 random_;

  std::unique_ptr<SliceWatch> watch_;  // touched by the thread only
  std::thread thread_;
};

}  // namespace tranche::slices
