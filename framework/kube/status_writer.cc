#include "kube/status_writer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "telemetry/log.h"

namespace tranche::kube {
namespace {

namespace json = boost::json;
using ClaimId = std::pair<std::string, std::string>;  // driver, claim UID
using claims::ClaimChange;

// A drift, what came of it, and one that is being written.
constexpr std::size_t kMostWaiting = 2;

struct Wish {
  std::optional<std::vector<DeviceStatus>> devices = {};  // nullopt: our entries are to go
  bool is_drift = false;
};

// What is known of the entries that the API server has.
enum class Known { kNothing, kAbsent, kWritten };

struct Entry {
  ClaimReference claim;
  std::deque<Wish> wishes;            // to be written, in this order; while `is_busy` the first is being written
  std::vector<DeviceStatus> written;  // kWritten
  Known known = Known::kNothing;
  std::int64_t generation = 0;
  bool is_busy = false;
  int failures = 0;
  std::optional<Deadline> due;  // set while it is in the queue
};

// One wish on its way.
struct Job {
  ClaimId id;
  ClaimReference claim;
  Wish wish;
  std::vector<DeviceStatus> written;
  Known known = Known::kNothing;
  std::int64_t generation = 0;
};

// How it ended: OK with what the API server has now, or why it must be tried again.
struct Outcome {
  absl::Status status = {};
  Known known = Known::kAbsent;
  std::vector<DeviceStatus> written = {};
  std::int64_t generation = 0;
  bool changed = false;
};

std::string ClaimPath(const ClaimReference& claim) {
  return Cat("/apis/resource.k8s.io/v1/namespaces/", Escape(claim.namespace_name), "/resourceclaims/", Escape(claim.name));
}

std::string FieldManager(const std::string& driver) { return Cat("tranche.dev/", driver); }

const json::value* MetadataMember(const json::object& object, std::string_view name) {
  const json::value* metadata = object.if_contains("metadata");
  return metadata != nullptr && metadata->is_object() ? metadata->get_object().if_contains(name) : nullptr;
}

bool HasUid(const json::object& claim, const std::string& uid) {
  const json::value* member = MetadataMember(claim, "uid");
  return member != nullptr && member->is_string() && member->get_string() == uid;
}

std::int64_t GenerationOf(const json::object& claim) {
  const json::value* member = MetadataMember(claim, "generation");
  return member != nullptr && member->is_int64() ? member->get_int64() : 0;
}

// Server-side apply: what our field manager does not name any more goes, what others set stays. The UID is the precondition.
json::object ApplyBody(const ClaimReference& claim, const std::vector<DeviceStatus>& devices, std::int64_t generation) {
  json::array entries;
  for (const DeviceStatus& device : devices) entries.push_back(EncodeDeviceStatus(device, generation));
  return json::object{{"apiVersion", "resource.k8s.io/v1"},
                      {"kind", "ResourceClaim"},
                      {"metadata", {{"name", claim.name}, {"namespace", claim.namespace_name}, {"uid", claim.uid}}},
                      {"status", {{"devices", std::move(entries)}}}};
}

// The server is away or overloaded: no claim can be written.
bool IsServerAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) || absl::IsUnauthenticated(status) ||
         absl::IsCancelled(status);
}

std::string MissingRule(const std::string& driver) {
  return Cat(
      "the service account needs apiGroup resource.k8s.io: resourceclaims [get], resourceclaims/status [patch] and, from Kubernetes 1.36, "
      "resourceclaims/driver [associated-node:patch] with resourceNames [",
      driver, "] and a token that is bound to this pod; `tranchectl render` writes the rules");
}

bool IsNewByItself(ClaimChange change) { return change == ClaimChange::kPrepared || change == ClaimChange::kRefused; }

}  // namespace

class StatusWriter::Impl {
 public:
  Impl(Client& client, const StatusWriterOptions& options) : client_(client), options_(options), random_(std::random_device{}()) {}
  ~Impl();

  void OnClaim(const claims::ClaimEvent& event);
  void SetHealth(const std::string& backend, const std::string& physical, const Condition& health);
  bool WaitUntilWritten(Deadline deadline);
  StatusWriterState state() const;

 private:
  // With the lock held.
  void Want(const ClaimId& id, Entry& entry, Wish wish, std::chrono::milliseconds delay);
  void Enqueue(const ClaimId& id, Entry& entry, Deadline due);
  void Dequeue(const ClaimId& id, Entry& entry);
  void TakeHealth(std::vector<DeviceStatus>& devices) const;
  bool IsUpToDate(const Entry& entry, const Wish& wish) const;
  std::optional<Job> TakeJob();
  void Settle(const Job& job, Outcome outcome);
  void SettleFailure(const Job& job, Entry& entry, const absl::Status& failure);
  std::chrono::milliseconds Pause(int failures);

  void Work();
  // Without it.
  Outcome Perform(const Job& job);
  Outcome Remove(const Job& job);
  Outcome Write(const Job& job);
  Outcome WriteAfterLook(const Job& job);
  Outcome Apply(const Job& job, std::vector<DeviceStatus> devices, std::int64_t generation);
  // nullopt: the claim is gone, or another one has its name.
  absl::StatusOr<std::optional<json::object>> Look(const Job& job);
  void Report(const Job& job, const absl::Status& failure);

  Client& client_;
  const StatusWriterOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::map<ClaimId, Entry> entries_;
  std::set<std::pair<Deadline, ClaimId>> queue_;
  std::map<std::pair<std::string, std::string>, Condition> health_;  // by backend, physical device
  StatusWriterState state_;
  std::size_t busy_ = 0, sleeping_ = 0;
  Deadline paused_until_{};
  int server_failures_ = 0;
  bool stopping_ = false, told_forbidden_ = false, told_dropped_ = false, told_full_ = false;
  std::minstd_rand random_;
  std::vector<std::thread> threads_;  // started when there is work for them
};

StatusWriter::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// ---- What is wanted

void StatusWriter::Impl::OnClaim(const claims::ClaimEvent& event) {
  const ClaimId id{event.driver, event.claim.uid};
  Wish wish;
  if (event.change != ClaimChange::kReleased) wish.devices = StatusOf(event, std::chrono::system_clock::now());
  wish.is_drift = event.change == ClaimChange::kDrifted;
  const std::lock_guard lock(mutex_);
  auto found = entries_.find(id);
  if (wish.devices.has_value() && wish.devices->empty()) return;  // none of its devices is ours
  if (found == entries_.end()) {
    if (entries_.size() >= options_.max_claims) {
      ++state_.dropped;
      if (!std::exchange(told_full_, true)) LogWarning("too many claims wait for their status to be written; that of others is left out");
      return;
    }
    found = entries_.try_emplace(id).first;
    found->second.claim = event.claim;
    if (IsNewByItself(event.change)) found->second.known = Known::kAbsent;
  }
  Entry& entry = found->second;
  if (!wish.devices.has_value()) {
    if (entry.known == Known::kAbsent && !entry.is_busy) {  // written never, or removed: nothing is to be done
      Dequeue(id, entry);
      entries_.erase(found);
      idle_.notify_all();
      return;
    }
    Want(id, entry, std::move(wish), options_.removal_delay);
    return;
  }
  TakeHealth(*wish.devices);
  const bool can_wait = event.change == ClaimChange::kPrepared;
  Want(id, entry, std::move(wish), can_wait ? options_.prepared_delay : std::chrono::milliseconds(0));
}

void StatusWriter::Impl::Want(const ClaimId& id, Entry& entry, Wish wish, std::chrono::milliseconds delay) {
  const std::size_t fixed = entry.is_busy ? 1 : 0;
  const bool is_removal = !wish.devices.has_value();
  if (is_removal) {
    entry.wishes.resize(fixed);
  } else if (entry.wishes.empty() && IsUpToDate(entry, wish)) {
    return;
  }
  // A drift that was put right before it was written must be seen all the same.
  const std::size_t waiting = entry.wishes.size() - fixed;
  const bool keeps_last = waiting > 0 && waiting < kMostWaiting && entry.wishes.back().is_drift && !wish.is_drift;
  if (waiting > 0 && !keeps_last) {
    entry.wishes.back() = std::move(wish);
  } else {
    entry.wishes.push_back(std::move(wish));
  }
  if (entry.is_busy) return;
  Deadline due = DeadlineIn(delay);
  if (entry.due.has_value() && entry.failures > 0) due = std::max(due, *entry.due);
  if (entry.due.has_value() && entry.failures == 0 && !is_removal && waiting > 0) due = std::min(due, *entry.due);  // repeated news put nothing off
  Enqueue(id, entry, due);
}

bool StatusWriter::Impl::IsUpToDate(const Entry& entry, const Wish& wish) const {
  if (entry.known != Known::kWritten || !wish.devices.has_value() || !SaysTheSame(entry.written, *wish.devices)) return false;
  const WallTime verified = VerifiedAt(entry.written);
  return verified == WallTime::max() || VerifiedAt(*wish.devices) - verified < options_.verified_interval;
}

void StatusWriter::Impl::TakeHealth(std::vector<DeviceStatus>& devices) const {
  for (DeviceStatus& device : devices) {
    const auto health = health_.find({device.backend, device.physical});
    if (health == health_.end()) continue;
    const WallTime now = device.healthy.since;
    device.healthy = health->second;
    device.healthy.since = now;
  }
}

void StatusWriter::Impl::SetHealth(const std::string& backend, const std::string& physical, const Condition& health) {
  const std::lock_guard lock(mutex_);
  health_[{backend, physical}] = health;
  for (auto& [id, entry] : entries_) {
    const bool has_wish = !entry.wishes.empty();
    if (has_wish && !entry.wishes.back().devices.has_value()) continue;
    Wish wish = has_wish ? entry.wishes.back() : Wish{entry.written, false};
    const bool has_device = std::any_of(wish.devices->begin(), wish.devices->end(),
                                        [&](const DeviceStatus& device) { return device.backend == backend && device.physical == physical; });
    if (!has_device) continue;
    for (DeviceStatus& device : *wish.devices) device.healthy.since = std::chrono::system_clock::now();
    TakeHealth(*wish.devices);
    Want(id, entry, std::move(wish), std::chrono::milliseconds(0));
  }
}

// ---- Queue

void StatusWriter::Impl::Dequeue(const ClaimId& id, Entry& entry) {
  if (!entry.due.has_value()) return;
  queue_.erase({*entry.due, id});
  entry.due.reset();
}

void StatusWriter::Impl::Enqueue(const ClaimId& id, Entry& entry, Deadline due) {
  Dequeue(id, entry);
  entry.due = due;
  queue_.insert({due, id});
  const bool needs_thread = sleeping_ == 0 && threads_.size() < static_cast<std::size_t>(options_.max_in_flight);
  if (needs_thread && !stopping_) threads_.emplace_back([this] { Work(); });
  changed_.notify_one();
}

std::optional<Job> StatusWriter::Impl::TakeJob() {
  const auto [due, id] = *queue_.begin();
  Entry& entry = entries_.at(id);
  Dequeue(id, entry);
  if (entry.wishes.empty()) return std::nullopt;
  entry.is_busy = true;
  ++busy_;
  return Job{id, entry.claim, entry.wishes.front(), entry.written, entry.known, entry.generation};
}

void StatusWriter::Impl::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Deadline due = queue_.empty() ? Deadline::max() : std::max(queue_.begin()->first, paused_until_);
    if (!Passed(due)) {
      ++sleeping_;
      if (due == Deadline::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, due);
      }
      --sleeping_;
      continue;
    }
    const std::optional<Job> job = TakeJob();
    if (!job.has_value()) continue;
    lock.unlock();
    Outcome outcome = Perform(*job);
    lock.lock();
    Settle(*job, std::move(outcome));
    idle_.notify_all();
  }
}

void StatusWriter::Impl::Settle(const Job& job, Outcome outcome) {
  --busy_;
  Entry& entry = entries_.at(job.id);
  entry.is_busy = false;
  if (!outcome.status.ok()) {
    SettleFailure(job, entry, outcome.status);
    return;
  }
  if (outcome.changed) ++state_.written;
  state_.problem = absl::OkStatus();
  server_failures_ = 0;
  paused_until_ = {};
  entry.failures = 0;
  entry.known = outcome.known;
  entry.generation = outcome.generation;
  entry.written = std::move(outcome.written);
  entry.wishes.pop_front();
  while (!entry.wishes.empty() && IsUpToDate(entry, entry.wishes.front())) entry.wishes.pop_front();
  const bool is_nothing_left = entry.known == Known::kAbsent && (entry.wishes.empty() || !entry.wishes.front().devices.has_value());
  if (is_nothing_left) {
    entries_.erase(job.id);
  } else if (!entry.wishes.empty()) {
    const bool is_removal = !entry.wishes.front().devices.has_value();
    Enqueue(job.id, entry, DeadlineIn(is_removal ? options_.removal_delay : std::chrono::milliseconds(0)));
  }
}

void StatusWriter::Impl::SettleFailure(const Job& job, Entry& entry, const absl::Status& failure) {
  ++state_.failed;
  state_.problem = failure;
  // What the call changed before it failed is not known: the next try looks first.
  if (job.known != Known::kAbsent || !absl::IsPermissionDenied(failure)) entry.known = Known::kNothing;
  ++entry.failures;
  const bool is_away = IsServerAway(failure);
  // Forbidden for one is mostly forbidden for all: seldom from the start.
  const auto pause = absl::IsPermissionDenied(failure) ? options_.last_retry : Pause(is_away ? ++server_failures_ : entry.failures);
  if (is_away) paused_until_ = DeadlineIn(pause);
  if (entry.wishes.size() > 1 && !entry.wishes[1].devices.has_value()) entry.wishes.pop_front();  // released meanwhile
  Enqueue(job.id, entry, is_away ? paused_until_ : DeadlineIn(pause));
}

// Doubling, each shortened at random by up to a half.
std::chrono::milliseconds StatusWriter::Impl::Pause(int failures) {
  const auto full = std::min<std::chrono::milliseconds>(options_.last_retry, options_.first_retry * (1LL << std::min(failures - 1, 16)));
  return std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(full.count() / 2, full.count())(random_));
}

// ---- Calls

Outcome StatusWriter::Impl::Perform(const Job& job) {
  Outcome outcome = job.wish.devices.has_value() ? Write(job) : Remove(job);
  if (!outcome.status.ok()) Report(job, outcome.status);
  return outcome;
}

absl::StatusOr<std::optional<json::object>> StatusWriter::Impl::Look(const Job& job) {
  absl::StatusOr<json::object> claim = client_.Get(ClaimPath(job.claim), DeadlineIn(options_.call_timeout));
  if (absl::IsNotFound(claim.status())) return std::nullopt;
  if (!claim.ok()) return claim.status();
  if (!HasUid(*claim, job.claim.uid)) return std::nullopt;
  return std::optional<json::object>(*std::move(claim));
}

// Mostly the claim is gone or deallocated by now, and our entries with it: a look costs the server less than a write.
Outcome StatusWriter::Impl::Remove(const Job& job) {
  absl::StatusOr<std::optional<json::object>> claim = Look(job);
  if (!claim.ok()) return {.status = claim.status()};
  if (!claim->has_value() || DecodeDeviceStatuses(**claim, job.id.first).empty()) return {};
  Outcome outcome = Apply(job, {}, 0);
  if (absl::IsNotFound(outcome.status)) return {};
  outcome.known = Known::kAbsent;
  return outcome;
}

Outcome StatusWriter::Impl::Write(const Job& job) {
  if (job.known == Known::kNothing) return WriteAfterLook(job);
  std::vector<DeviceStatus> devices = *job.wish.devices;
  KeepTransitions(devices, job.written);
  Outcome outcome = Apply(job, std::move(devices), job.generation);
  if (absl::IsNotFound(outcome.status)) return {};
  // The claim is another one by now, or it lost its allocation: looked at again.
  const bool is_refused = absl::IsAborted(outcome.status) || absl::IsInvalidArgument(outcome.status) || absl::IsAlreadyExists(outcome.status);
  return is_refused ? WriteAfterLook(job) : outcome;
}

Outcome StatusWriter::Impl::WriteAfterLook(const Job& job) {
  absl::StatusOr<std::optional<json::object>> claim = Look(job);
  if (!claim.ok()) return {.status = claim.status()};
  if (!claim->has_value()) return {};
  std::vector<DeviceStatus> devices = Allocated(*job.wish.devices, **claim);
  const std::vector<DeviceStatus> before = DecodeDeviceStatuses(**claim, job.id.first);
  if (devices.empty() && before.empty()) return {};
  KeepTransitions(devices, before);
  const std::int64_t generation = GenerationOf(**claim);
  const bool is_fresh = VerifiedAt(devices) == WallTime::max() || VerifiedAt(devices) - VerifiedAt(before) < options_.verified_interval;
  if (SaysTheSame(devices, before) && is_fresh) {
    for (DeviceStatus& device : devices) {
      for (LimitInForce& limit : device.limits) limit.verified_at = VerifiedAt(before);
    }
    return {.status = {}, .known = Known::kWritten, .written = std::move(devices), .generation = generation, .changed = false};
  }
  Outcome outcome = Apply(job, devices, generation);
  if (absl::IsNotFound(outcome.status)) return {};
  if (!absl::IsInvalidArgument(outcome.status)) return outcome;
  // A backend's network data must not cost the conditions.
  for (DeviceStatus& device : devices) device.network.reset();
  return Apply(job, std::move(devices), generation);
}

Outcome StatusWriter::Impl::Apply(const Job& job, std::vector<DeviceStatus> devices, std::int64_t generation) {
  const std::string path = Cat(ClaimPath(job.claim), "/status?fieldManager=", Escape(FieldManager(job.id.first)), "&force=true");
  const json::object body = ApplyBody(job.claim, devices, generation);
  absl::StatusOr<json::object> answer = client_.Patch(path, PatchKind::kApply, body, DeadlineIn(options_.call_timeout));
  if (!answer.ok()) return {.status = answer.status()};
  if (!devices.empty() && DecodeDeviceStatuses(*answer, job.id.first).empty()) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(told_dropped_, true)) {
      LogWarning("the API server drops status.devices: claims do not show their shares; enable the feature gate DRAResourceClaimDeviceStatus");
    }
  }
  return {.status = {}, .known = Known::kWritten, .written = std::move(devices), .generation = GenerationOf(*answer), .changed = true};
}

void StatusWriter::Impl::Report(const Job& job, const absl::Status& failure) {
  const std::string reason(View(failure.message()));
  if (absl::IsPermissionDenied(failure)) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(told_forbidden_, true)) return;
    }
    LogError("the status of claims may not be written; prepare goes on without", {{"reason", reason}, {"rule", MissingRule(job.id.first)}});
    return;
  }
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = IsServerAway(failure) ? server_failures_ == 0 : entries_.at(job.id).failures == 0;
  }
  if (!is_first) return;
  LogWarning("the status of a claim could not be written; it is tried again",
             {{"claim", job.claim.uid}, {"namespace", job.claim.namespace_name}, {"name", job.claim.name}, {"reason", reason}});
}

// ---- For others

bool StatusWriter::Impl::WaitUntilWritten(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return queue_.empty() && busy_ == 0; });
}

StatusWriterState StatusWriter::Impl::state() const {
  const std::lock_guard lock(mutex_);
  StatusWriterState state = state_;
  state.claims = entries_.size();
  state.waiting = queue_.size() + busy_;
  return state;
}

StatusWriter::StatusWriter(Client& client, const StatusWriterOptions& options) : impl_(std::make_unique<Impl>(client, options)) {}
StatusWriter::~StatusWriter() = default;
void StatusWriter::OnClaim(const claims::ClaimEvent& event) { impl_->OnClaim(event); }
void StatusWriter::SetHealth(const std::string& backend, const std::string& physical, const Condition& health) { impl_->SetHealth(backend, physical, health); }
bool StatusWriter::WaitUntilWritten(Deadline deadline) { return impl_->WaitUntilWritten(deadline); }
StatusWriterState StatusWriter::state() const { return impl_->state(); }

}  // namespace tranche::kube
