// The ResourceSlice part of an API server in memory, for tests: validation and feature gates of 1.34 to 1.37, generateName, resource versions,
// owner garbage collection, and a watch that is late and repeats itself. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/text.h"
#include "slices/slice_api.h"

namespace tranche::slices {

struct ServerOptions {
  int minor = 37;
  bool taints = true, partitionable = true, consumable_capacity = true;
  bool tells_version = true, dry_run = true;
  int max_event_delay_ms = 0;
  bool repeats_events = false;
  unsigned seed = 1;
};

// A DNS subdomain as object names are checked: its labels may be longer than 63.
inline bool IsObjectName(const std::string& name) {
  static const std::regex pattern(R"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)");
  return name.size() <= 253 && std::regex_match(name, pattern);
}

// What validation of that version says; OK: accepted.
inline absl::Status ValidateSlice(const Slice& slice, int minor) {
  const auto refuse = [&](auto... why) { return absl::InvalidArgumentError(Cat("ResourceSlice is invalid: ", why...)); };
  const SliceContent& content = *slice.content;
  if (slice.generate_name.size() > 253) return refuse("generateName is too long");
  if (!IsObjectName(slice.name)) return refuse("name ", slice.name);
  if (slice.slice_count < 1 || slice.generation < 0) return refuse("pool");
  if (minor >= 35 && !content.devices.empty() && !content.shared_counters.empty()) return refuse("devices and sharedCounters exclude each other");
  bool demanding = false;
  std::size_t device_counters = 0;
  std::set<std::string> names;
  for (const SliceDevice& device : content.devices) {
    const auto at = [&](auto... why) { return refuse("device ", device.name, ": ", why...); };
    if (!IsDnsLabel(device.name) || !names.insert(device.name).second) return at("name");
    if (device.attributes.size() + device.capacity.size() > 32) return at("too many attributes and capacities");
    for (const auto& [name, value] : device.attributes) {
      if (!IsQualifiedName(name)) return at("attribute name ", name);
      if (const auto* text = std::get_if<std::string>(&value); text != nullptr && text->size() > 64) return at("attribute ", name, " too long");
      if (const auto* version = std::get_if<VersionValue>(&value)) {
        static const std::regex semver(
            R"((0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-((0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?)");
        if (version->text.size() > 64 || !std::regex_match(version->text, semver)) return at("version ", version->text);
      }
    }
    for (const auto& [name, capacity] : device.capacity) {
      if (!IsQualifiedName(name)) return at("capacity name ", name);
      if (capacity.request_policy.has_value() && !device.allow_multiple_allocations) return at("requestPolicy is forbidden");
    }
    if (device.taints.size() > (minor <= 34 ? 4U : 16U)) return at("too many taints");
    if (minor >= 35 && device.consumes_counters.size() > 2) return at("too many counter sets");
    std::size_t counters = 0;
    for (const CounterUse& use : device.consumes_counters) {
      if (use.counters.empty() || use.counters.size() > 32 || !IsDnsLabel(use.counter_set)) return at("consumesCounters");
      counters += use.counters.size();
    }
    if (minor <= 34 && counters > 32) return at("too many counters");
    device_counters += counters;
    demanding = demanding || !device.taints.empty() || !device.consumes_counters.empty();
  }
  const std::size_t most = minor >= 35 && demanding ? 64 : 128;
  if (content.devices.size() > most) return refuse("more than ", most, " devices");
  if (minor <= 34 && device_counters > 1024) return refuse("more than 1024 device counters");
  std::size_t shared = 0;
  for (const CounterSet& set : content.shared_counters) {
    if (set.counters.empty() || set.counters.size() > 32 || !IsDnsLabel(set.name)) return refuse("counter set ", set.name);
    shared += set.counters.size();
  }
  if (minor >= 35 && content.shared_counters.size() > 8) return refuse("more than 8 counter sets");
  if (minor <= 34 && shared > 32) return refuse("more than 32 shared counters");
  return absl::OkStatus();
}

class SliceServer : public SliceApi {
 public:
  explicit SliceServer(ServerOptions options = {}) : options_(options), random_(options.seed) {}
  ~SliceServer() override = default;

  // ---- SliceApi.
  absl::StatusOr<NodeOwner> ReadNode(Deadline) override {
    const std::lock_guard lock(mutex_);
    if (node_.uid.empty()) return absl::NotFoundError("nodes \"node-1\" not found");
    return node_;
  }
  absl::StatusOr<int> ServerMinor(Deadline) override {
    if (!options_.tells_version) return absl::UnimplementedError("no version");
    return options_.minor;
  }
  absl::StatusOr<Slice> Create(const Slice& slice, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++writes_;
    if (absl::Status failure = NextFailure(); !failure.ok()) return failure;
    absl::StatusOr<Slice> made = Admit(slice, nullptr);
    if (!made.ok()) return made;
    made->uid = NewUuid();
    Store(*made);
    if (made->owner.uid != node_.uid) Remove(made->name);  // the garbage collector
    return made;
  }
  absl::StatusOr<Slice> DryRunCreate(const Slice& slice, Deadline) override {
    const std::lock_guard lock(mutex_);
    if (!options_.dry_run) return absl::UnimplementedError("no dry run");
    return Admit(slice, nullptr);
  }
  absl::StatusOr<Slice> Replace(const Slice& slice, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++writes_;
    if (absl::Status failure = NextFailure(); !failure.ok()) return failure;
    const auto stored = slices_.find(slice.name);
    if (stored == slices_.end()) return absl::NotFoundError("not found");
    if (stored->second.uid != slice.uid || stored->second.resource_version != slice.resource_version) return absl::AbortedError("the object has been modified");
    absl::StatusOr<Slice> made = Admit(slice, &stored->second);
    if (made.ok()) Store(*made);
    return made;
  }
  absl::Status Delete(const Slice& slice, Deadline) override {
    const std::lock_guard lock(mutex_);
    ++writes_;
    if (absl::Status failure = NextFailure(); !failure.ok()) return failure;
    const auto stored = slices_.find(slice.name);
    if (stored == slices_.end()) return absl::NotFoundError("not found");
    if (stored->second.uid != slice.uid || stored->second.resource_version != slice.resource_version) return absl::AbortedError("precondition failed");
    Remove(slice.name);
    return absl::OkStatus();
  }
  std::unique_ptr<SliceWatch> Watch(const std::string& driver, SliceWatchHandler handler) override {
    const std::lock_guard lock(mutex_);
    auto watch = std::make_unique<Watcher>(*this, driver, std::move(handler), random_());
    watchers_.insert(watch.get());
    watch->Push({Event::Kind::kList, {}, List(driver)});
    return watch;
  }

  // ---- For tests.
  std::vector<Slice> All() const {
    const std::lock_guard lock(mutex_);
    std::vector<Slice> all;
    for (const auto& [name, slice] : slices_) all.push_back(slice);
    return all;
  }
  std::uint64_t writes() const { return writes_; }
  void FailNext(int count, absl::Status failure) {
    const std::lock_guard lock(mutex_);
    failures_ = count;
    failure_ = std::move(failure);
  }
  // Asked for each create and replace, under the server's lock.
  void SetAdmission(std::function<absl::Status(Slice& slice)> admission) {
    const std::lock_guard lock(mutex_);
    admission_ = std::move(admission);
  }
  void DeleteByHand(std::size_t position) {
    const std::lock_guard lock(mutex_);
    if (slices_.empty()) return;
    Remove(std::next(slices_.begin(), static_cast<std::ptrdiff_t>(position % slices_.size()))->first);
  }
  void DeleteAll() {
    const std::lock_guard lock(mutex_);
    while (!slices_.empty()) Remove(slices_.begin()->first);
  }
  // Puts an object as somebody else would; without a name it is made from generateName.
  void Put(Slice slice) {
    const std::lock_guard lock(mutex_);
    if (slice.name.empty()) slice.name = NewName(slice.generate_name);
    if (slice.uid.empty()) slice.uid = NewUuid();
    Store(slice);
  }
  void Spoil(std::size_t position) {
    const std::lock_guard lock(mutex_);
    if (slices_.empty()) return;
    Slice slice = std::next(slices_.begin(), static_cast<std::ptrdiff_t>(position % slices_.size()))->second;
    slice.content = std::make_shared<const SliceContent>();
    Store(slice);
  }
  // Every watch begins anew, as after a broken connection.
  void BreakWatches() {
    const std::lock_guard lock(mutex_);
    for (Watcher* watcher : watchers_) {
      watcher->Drop();
      watcher->Push({Event::Kind::kList, {}, List(watcher->driver())});
    }
  }
  void SetNode(const std::string& uid) {  // "" deletes it, with all that it owns
    const std::lock_guard lock(mutex_);
    node_.uid = uid;
    std::vector<std::string> orphans;
    for (const auto& [name, slice] : slices_) {
      if (slice.owner.uid != uid) orphans.push_back(name);
    }
    for (const std::string& name : orphans) Remove(name);
  }
  void SetOptions(const ServerOptions& options) {
    const std::lock_guard lock(mutex_);
    options_ = options;
  }

 private:
  struct Event {
    enum class Kind { kList, kChanged, kDeleted };
    Kind kind;
    Slice slice;
    std::vector<Slice> list;
  };

  class Watcher : public SliceWatch {
   public:
    Watcher(SliceServer& server, std::string driver, SliceWatchHandler handler, unsigned seed)
        : server_(server),
          driver_(std::move(driver)),
          handler_(std::move(handler)),
          delay_(server.options_.max_event_delay_ms),
          repeats_(server.options_.repeats_events),
          random_(seed),
          thread_([this] { Run(); }) {}
    ~Watcher() override {
      {
        const std::lock_guard lock(server_.mutex_);
        server_.watchers_.erase(this);
      }
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }
    const std::string& driver() const { return driver_; }
    void Push(Event event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    }
    void Drop() {
      const std::lock_guard lock(mutex_);
      events_.clear();
    }

   private:
    void Run() {
      std::unique_lock lock(mutex_);
      while (true) {
        changed_.wait(lock, [&] { return stopping_ || !events_.empty(); });
        if (stopping_) return;
        if (delay_ > 0) {
          changed_.wait_for(lock, std::chrono::milliseconds(random_() % static_cast<unsigned>(delay_ + 1)), [&] { return stopping_; });
          if (stopping_) return;
          if (events_.empty()) continue;
        }
        const Event event = std::move(events_.front());
        events_.pop_front();
        const bool twice = repeats_ && random_() % 4 == 0;
        lock.unlock();
        for (int i = 0; i < (twice ? 2 : 1); ++i) Deliver(event);
        lock.lock();
      }
    }
    void Deliver(const Event& event) {
      if (event.kind == Event::Kind::kList) handler_.on_list(event.list);
      if (event.kind == Event::Kind::kChanged) handler_.on_changed(event.slice);
      if (event.kind == Event::Kind::kDeleted) handler_.on_deleted(event.slice.name, event.slice.uid);
    }

    SliceServer& server_;
    const std::string driver_;
    const SliceWatchHandler handler_;
    const int delay_;
    const bool repeats_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Event> events_;
    bool stopping_ = false;
    std::minstd_rand random_;
    std::thread thread_;
  };

  absl::Status NextFailure() {
    if (failures_ <= 0) return absl::OkStatus();
    --failures_;
    return failure_;
  }

  std::string NewName(const std::string& generate_name) {
    constexpr std::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
    std::string name = generate_name.substr(0, 58);
    for (int i = 0; i < 5; ++i) name += kLetters[random_() % kLetters.size()];
    return name;
  }

  // The object as the server would store it, through the codec.
  absl::StatusOr<Slice> Admit(const Slice& sent, const Slice* old) {
    absl::StatusOr<Slice> slice = DecodeSlice(boost::json::parse(boost::json::serialize(EncodeSlice(sent))));
    if (!slice.ok()) return slice;
    if (slice->name.empty()) slice->name = NewName(slice->generate_name);
    if (admission_) {
      if (absl::Status refused = admission_(*slice); !refused.ok()) return refused;
    }
    SliceContent content = *slice->content;
    if (!options_.partitionable) content.shared_counters.clear();
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    for (SliceDevice& device : content.devices) {
      if (!options_.taints) device.taints.clear();
      if (!options_.partitionable) device.consumes_counters.clear();
      if (!options_.consumable_capacity) device.allow_multiple_allocations = false;
      for (auto& [name, capacity] : device.capacity) {
        if (!options_.consumable_capacity) capacity.request_policy.reset();
      }
      for (DeviceTaint& taint : device.taints) {
        if (!taint.time_added.has_value()) taint.time_added = now;
      }
    }
    slice->content = std::make_shared<const SliceContent>(std::move(content));
    if (old != nullptr && (old->driver != slice->driver || old->pool_name != slice->pool_name || old->node_name != slice->node_name)) {
      return absl::InvalidArgumentError("field is immutable");
    }
    if (absl::Status valid = ValidateSlice(*slice, options_.minor); !valid.ok()) return valid;
    return slice;
  }

  void Store(Slice& slice) {
    slice.resource_version = std::to_string(++version_);
    slices_[slice.name] = slice;
    for (Watcher* watcher : watchers_) {
      if (watcher->driver() == slice.driver) watcher->Push({Event::Kind::kChanged, slice, {}});
    }
  }
  void Remove(const std::string& name) {
    const auto found = slices_.find(name);
    ++version_;
    for (Watcher* watcher : watchers_) {
      if (watcher->driver() == found->second.driver) watcher->Push({Event::Kind::kDeleted, found->second, {}});
    }
    slices_.erase(found);
  }
  std::vector<Slice> List(const std::string& driver) const {
    std::vector<Slice> list;
    for (const auto& [name, slice] : slices_) {
      if (slice.driver == driver) list.push_back(slice);
    }
    return list;
  }

  mutable std::mutex mutex_;
  ServerOptions options_;
  std::minstd_rand random_;
  NodeOwner node_{"node-1", "node-uid-1"};
  std::uint64_t version_ = 100;
  std::map<std::string, Slice> slices_;
  std::set<Watcher*> watchers_;
  std::function<absl::Status(Slice&)> admission_;
  int failures_ = 0;
  absl::Status failure_;
  std::atomic<std::uint64_t> writes_ = 0;
};

}  // namespace tranche::slices
