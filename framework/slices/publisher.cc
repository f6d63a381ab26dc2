#include "slices/publisher.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "telemetry/log.h"

namespace tranche::slices {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kFirstFailureWait{20};
constexpr milliseconds kFirstRepeatWait{100};
constexpr milliseconds kCalm{30000};  // without repeats: what was undone before is forgotten
constexpr int kMostDoublings = 20;
constexpr int kQuietConflicts = 8;

milliseconds Doubled(milliseconds first, int times, milliseconds most) { return std::min(most, first * (std::int64_t{1} << std::min(times, kMostDoublings))); }

}  // namespace

Publisher::Publisher(SliceApi& api, PublisherOptions options)
    : api_(api), options_(std::move(options)), pool_(options_.driver, options_.node), random_(std::random_device{}()) {
  thread_ = std::thread([this] { Run(); });
}

Publisher::~Publisher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Publisher::Wake() {
  awake_ = true;
  changed_.notify_all();
}

void Publisher::Publish(PublishedInput input) {
  const std::lock_guard lock(mutex_);
  input_ = std::move(input);
  goal_ = input_.snapshot == nullptr ? Goal::kNone : Goal::kPublished;
  if (!counters_refused_.empty()) {
    counters_refused_.clear();
    features_.partitionable = true;
  }
  replan_ = true;
  Wake();
}

absl::Status Publisher::Withdraw(Deadline deadline) {
  std::unique_lock lock(mutex_);
  goal_ = Goal::kWithdrawn;
  input_ = {};
  replan_ = true;
  Wake();
  const bool gone = changed_.wait_until(lock, deadline, [&] { return goal_ != Goal::kWithdrawn || (pool_.listed() && pool_.known() == 0); });
  if (goal_ != Goal::kWithdrawn) return absl::CancelledError(Cat("driver ", options_.driver, " is published again"));
  if (gone) return absl::OkStatus();
  return absl::DeadlineExceededError(Cat("slices of driver ", options_.driver, " are still there: ",
                                         last_error_.empty() ? std::string("no answer of the API server") : last_error_, "; deleting goes on"));
}

PublisherStatus Publisher::Status() const {
  const std::lock_guard lock(mutex_);
  PublisherStatus status;
  status.driver = options_.driver;
  status.generation = pool_.generation();
  status.slices_wanted = pool_.wanted();
  status.slices_published = pool_.Right();
  status.last_error = !last_error_.empty() ? last_error_ : watch_error_;
  status.problems = problems_;
  for (const auto& [index, text] : refused_) {
    if (pool_.IsRefused(index)) status.refused.push_back(text);
  }
  if (!counters_refused_.empty()) status.refused.push_back(counters_refused_);
  status.dropped_gates.assign(dropped_.begin(), dropped_.end());
  status.writes = writes_;
  return status;
}

// ---- What the API tells.

SliceWatchHandler Publisher::Handler() {
  SliceWatchHandler handler;
  handler.on_list = [this](std::vector<Slice> slices) {
    const std::lock_guard lock(mutex_);
    if (pool_.List(std::move(slices), steady_clock::now())) owner_known_ = owner_known_ && !lists_seen_;
    if (lists_seen_) {  // the server may have been another one meanwhile
      server_known_ = false;
      try_gates_ = !dropped_.empty();
    }
    lists_seen_ = true;
    Wake();
  };
  handler.on_changed = [this](Slice slice) {
    const std::lock_guard lock(mutex_);
    pool_.Changed(std::move(slice));
    Wake();
  };
  handler.on_deleted = [this](const std::string& name, const std::string& uid) {
    const std::lock_guard lock(mutex_);
    if (!pool_.Deleted(name, uid)) return;
    owner_known_ = false;  // the garbage collector deletes what an earlier Node owned
    Wake();
  };
  handler.on_problem = [this](const absl::Status& problem) {
    const std::lock_guard lock(mutex_);
    std::string text = problem.ok() ? std::string() : Cat("watching slices: ", View(problem.message()));
    if (!text.empty() && text != watch_error_) LogWarning("slices cannot be watched; tried again", {{"driver", options_.driver}, {"error", text}});
    watch_error_ = std::move(text);
  };
  return handler;
}

// ---- The thread.

void Publisher::Run() {
  watch_ = api_.Watch(options_.driver, Handler());
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::optional<TimePoint> due = pool_.NextLook();
    if (awake_) due = TimePoint{};
    const TimePoint blocked = std::max(not_before_, TimePoint{});
    if (due.has_value()) due = std::max(*due, blocked);
    if (!due.has_value()) {
      changed_.wait(lock);
      continue;
    }
    if (*due > steady_clock::now()) {
      changed_.wait_until(lock, *due);
      continue;
    }
    awake_ = false;
    NoteOutcome(Step(lock));
  }
  lock.unlock();
  watch_.reset();
}

absl::Status Publisher::Step(std::unique_lock<std::mutex>& lock) {
  if (goal_ == Goal::kNone) return absl::OkStatus();
  TRANCHE_RETURN_IF_ERROR(LearnServer(lock));
  if (goal_ == Goal::kPublished) TRANCHE_RETURN_IF_ERROR(LearnOwner(lock));
  if (!pool_.listed()) return absl::OkStatus();  // the list wakes us
  if (try_gates_) TRANCHE_RETURN_IF_ERROR(TryGates(lock));
  if (replan_) Replan();
  if (goal_ == Goal::kNone) return absl::OkStatus();  // changed while we asked
  if (goal_ == Goal::kPublished && !owner_known_) {
    awake_ = true;
    return absl::OkStatus();
  }
  std::vector<Write> writes = pool_.Decide(owner_, steady_clock::now());
  if (writes.empty() && !std::exchange(settled_, true) && options_.on_settled) options_.on_settled();
  if (writes.empty() || MustWait(writes)) return absl::OkStatus();
  return Carry(std::move(writes), lock);
}

absl::Status Publisher::LearnServer(std::unique_lock<std::mutex>& lock) {
  if (server_known_) return absl::OkStatus();
  lock.unlock();
  absl::StatusOr<int> minor = api_.ServerMinor(DeadlineIn(options_.call_timeout));
  lock.lock();
  if (absl::IsUnimplemented(minor.status())) minor = kNewestMinor;
  if (!minor.ok()) return Annotate(minor.status(), "reading the API server's version");
  server_known_ = true;
  if (lists_seen_ && pool_.wanted() > 0 && features_.minor == *minor) return absl::OkStatus();
  features_ = ServerFeatures::Defaults(*minor);
  dropped_.clear();
  try_gates_ = *minor < 36;  // off by default there, but someone may have switched them on
  replan_ = true;
  return absl::OkStatus();
}

absl::Status Publisher::LearnOwner(std::unique_lock<std::mutex>& lock) {
  if (owner_known_) return absl::OkStatus();
  owner_known_ = true;  // unless something vanishes while we read
  lock.unlock();
  const absl::StatusOr<NodeOwner> owner = api_.ReadNode(DeadlineIn(options_.call_timeout));
  lock.lock();
  if (owner.ok()) {
    owner_ = *owner;
    return absl::OkStatus();
  }
  owner_known_ = false;
  return Annotate(owner.status(), Cat("reading node ", options_.node, ", the owner of the slices"));
}

// Asks the server what it would keep, with everything on. A server that cannot tell leaves what we took for granted.
absl::Status Publisher::TryGates(std::unique_lock<std::mutex>& lock) {
  if (goal_ != Goal::kPublished) return absl::OkStatus();
  try_gates_ = false;
  const Slice probe = GateProbe(options_.driver, options_.node, owner_, features_.minor);
  lock.unlock();
  const absl::StatusOr<Slice> stored = api_.DryRunCreate(probe, DeadlineIn(options_.call_timeout));
  lock.lock();
  if (IsRetryable(stored.status())) {
    try_gates_ = true;
    return Annotate(stored.status(), "asking the API server what it keeps of a slice");
  }
  const Dropped all{.taints = true, .counters = true, .sharing = true, .other = false};
  const Dropped dropped = stored.ok() ? FindDropped(*probe.content, *stored->content) : all;
  if (!stored.ok() && features_.minor >= 36) return absl::OkStatus();
  const ServerFeatures found = Without({features_.minor, true, true, true}, dropped);
  replan_ = replan_ || !(found == features_);
  features_ = found;
  dropped_.clear();
  NoteDropped(dropped);
  return absl::OkStatus();
}

void Publisher::Replan() {
  replan_ = false;
  problems_.clear();
  if (goal_ == Goal::kWithdrawn) {
    refused_.clear();
    counters_refused_.clear();
    pool_.WantNothing();
    return;
  }
  SlicePlan plan = Plan(options_.driver, options_.node, *input_.snapshot, input_.taints, features_);
  const std::uint64_t epoch = pool_.epoch();
  pool_.SetPlan(plan);
  problems_ = std::move(plan.problems);
  if (pool_.epoch() == epoch) return;
  std::erase_if(refused_, [&](const auto& entry) { return !pool_.IsRefused(entry.first); });
  std::erase_if(refusals_, [&](const auto& entry) { return !pool_.IsRefused(entry.first); });
}

// A write that repeats an earlier one for the same plan undoes what somebody did: at once the first time, then ever more slowly, so that two
// who disagree do not fill the API server's log.
bool Publisher::MustWait(const std::vector<Write>& writes) {
  const bool repeats = std::any_of(writes.begin(), writes.end(), [&](const Write& write) {
    const auto written = written_.find(write.index);
    return write.kind != Write::Kind::kDelete && written != written_.end() && written->second == pool_.epoch();
  });
  if (!repeats) return false;
  const TimePoint now = steady_clock::now();
  if (now < repeat_not_before_) {
    not_before_ = std::max(not_before_, repeat_not_before_);
    awake_ = true;
    return true;
  }
  if (now - last_repeat_ > kCalm) undone_ = 0;
  last_repeat_ = now;
  repeat_not_before_ = now + Jittered(Doubled(kFirstRepeatWait, undone_++, options_.longest_wait));
  return false;
}

// ---- Writing.

absl::Status Publisher::Carry(std::vector<Write> writes, std::unique_lock<std::mutex>& lock) {
  writes_ += writes.size();
  settled_ = false;
  lock.unlock();
  std::vector<Result> results = Send(std::move(writes));
  lock.lock();
  absl::Status outcome;
  for (Result& result : results) {
    absl::Status one = Take(std::move(result));
    if (outcome.ok() || absl::IsAborted(outcome)) outcome = one.ok() ? outcome : one;  // a conflict explains least
  }
  awake_ = true;  // until there is nothing left to do
  changed_.notify_all();
  return outcome;
}

std::vector<Publisher::Result> Publisher::Send(std::vector<Write> writes) {
  std::vector<Result> results;
  if (writes.size() == 1) {
    results.push_back(SendOne(std::move(writes.front())));
    return results;
  }
  std::mutex results_mutex;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < writes.size(); i = next++) {
      Result result = SendOne(std::move(writes[i]));
      const std::lock_guard lock(results_mutex);
      results.push_back(std::move(result));
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t threads = std::min(writes.size(), std::max<std::size_t>(options_.parallel_writes, 1));
  for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return results;
}

Publisher::Result Publisher::SendOne(Write write) {
  const Deadline deadline = DeadlineIn(options_.call_timeout);
  switch (write.kind) {
    case Write::Kind::kCreate: {
      absl::StatusOr<Slice> stored = api_.Create(write.slice, deadline);
      return {std::move(write), std::move(stored)};
    }
    case Write::Kind::kReplace: {
      absl::StatusOr<Slice> stored = api_.Replace(write.slice, deadline);
      return {std::move(write), std::move(stored)};
    }
    case Write::Kind::kDelete: break;
  }
  const absl::Status deleted = api_.Delete(write.slice, deadline);
  Slice slice = write.slice;
  if (deleted.ok()) return {std::move(write), std::move(slice)};
  return {std::move(write), deleted};
}

absl::Status Publisher::Take(Result result) {
  const absl::Status status = result.stored.status();
  const Write& write = result.write;
  const bool existed = write.kind != Write::Kind::kCreate;
  if (existed && (absl::IsNotFound(status) || (status.ok() && write.kind == Write::Kind::kDelete))) {
    const bool known = pool_.Deleted(write.slice.name, write.slice.uid);
    if (!status.ok() && known && write.kind == Write::Kind::kReplace) owner_known_ = false;
    return absl::OkStatus();
  }
  if (status.ok()) {
    TakeStored(write, *std::move(result.stored));
    return status;
  }
  if (absl::IsInvalidArgument(status) && write.kind != Write::Kind::kDelete) {
    TakeRefusal(write, status);
    return absl::OkStatus();  // shown as refused; the others are not held up
  }
  return Annotate(status, Cat("slice ", write.slice.name.empty() ? write.slice.generate_name : write.slice.name, " of pool ", options_.node));
}

void Publisher::TakeStored(const Write& write, Slice stored) {
  const Dropped dropped = FindDropped(*write.slice.content, *stored.content);
  const ServerFeatures left = Without(features_, dropped);
  if (!(left == features_)) {
    features_ = left;
    NoteDropped(dropped);
    replan_ = true;
  } else if (dropped.other || dropped.any_gate()) {
    pool_.Accept(write.index, write.wanted, stored.content);
    LogWarning("the API server stores a slice otherwise than it was sent; what it stored is taken as it is",
               {{"driver", options_.driver}, {"slice", stored.name}});
  }
  pool_.Stored(std::move(stored));
  pool_.Passed(write.index);
  refused_.erase(write.index);
  refusals_.erase(write.index);
  written_[write.index] = pool_.epoch();
}

void Publisher::TakeRefusal(const Write& write, const absl::Status& refusal) {
  const int before = refusals_[write.index]++;
  const milliseconds wait = Jittered(Doubled(options_.refusal_wait, before, options_.refusal_wait * 20));
  std::string text = Cat("slice ", write.index, " of pool ", options_.node, " is refused: ", View(refusal.message()));
  if (refused_[write.index] != text) LogError("the API server refuses a slice", {{"driver", options_.driver}, {"error", text}});
  refused_[write.index] = std::move(text);
  if (before == 0) server_known_ = false;  // the layout depends on the version
  if (!write.slice.content->shared_counters.empty() && features_.partitionable) {
    features_.partitionable = false;  // devices must not point to counters that are not there
    counters_refused_ = std::exchange(refused_[write.index], {});
    replan_ = true;
    return;
  }
  pool_.Refuse(write.index, write.wanted, steady_clock::now() + wait);
}

void Publisher::NoteDropped(const Dropped& dropped) {
  const auto note = [&](bool is_dropped, const char* gate) {
    if (!is_dropped || !dropped_.insert(gate).second) return;
    LogWarning("the API server drops fields of a feature gate; slices are planned without them", {{"driver", options_.driver}, {"gate", gate}});
  };
  note(dropped.taints, "DRADeviceTaints");
  note(dropped.counters, "DRAPartitionableDevices");
  note(dropped.sharing, "DRAConsumableCapacity");
}

// ---- Errors.

void Publisher::NoteOutcome(const absl::Status& outcome) {
  if (outcome.ok()) {
    if (!last_error_.empty()) LogInfo("slices are published again", {{"driver", options_.driver}});
    last_error_.clear();
    failures_ = 0;
    return;
  }
  awake_ = true;  // after the wait
  not_before_ = steady_clock::now() + Jittered(Doubled(kFirstFailureWait, failures_++, options_.longest_wait));
  if (absl::IsAborted(outcome) && failures_ < kQuietConflicts) return;  // somebody was faster; the watch says what
  std::string text(outcome.message());
  if (text != last_error_) LogWarning("slices cannot be published; tried again", {{"driver", options_.driver}, {"error", text}});
  last_error_ = std::move(text);
}

milliseconds Publisher::Jittered(milliseconds wait) {
  return milliseconds(std::uniform_int_distribution<std::int64_t>(wait.count() / 2, wait.count())(random_));
}

}  // namespace tranche::slices
