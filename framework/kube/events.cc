#include "kube/events.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include <boost/json.hpp>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "telemetry/log.h"

namespace tranche::kube {
namespace {

namespace json = boost::json;
using claims::ClaimChange;

constexpr std::size_t kMaxNote = 1024, kMaxInstance = 128, kMaxNamePart = 200;
constexpr int kMostTries = 4;

struct Object {
  std::string api_version, kind, namespace_name, name, uid;
  friend auto operator<=>(const Object&, const Object&) = default;
};

struct News {
  Object object;
  EventType type = EventType::kWarning;
  std::string action, reason, note;
  friend auto operator<=>(const News&, const News&) = default;
};

// What happened once, or again and again.
struct Series {
  std::string name;  // of the Event; empty until it is made
  WallTime first{}, last{};
  std::int64_t count = 1, written = 0;
  int tries = 0;
  bool is_busy = false;
  Deadline due{}, end{};
};

struct Bucket {
  int left = 0;
  Deadline filled{};
};

// Events about what has no namespace are kept in this one.
std::string NamespaceOf(const Object& object) { return object.namespace_name.empty() ? "default" : object.namespace_name; }
std::string CollectionPath(const Object& object) { return Cat("/apis/events.k8s.io/v1/namespaces/", Escape(NamespaceOf(object)), "/events"); }

json::object EncodeObject(const Object& object) {
  json::object reference{{"apiVersion", object.api_version}, {"kind", object.kind}, {"name", object.name}, {"uid", object.uid}};
  if (!object.namespace_name.empty()) reference["namespace"] = object.namespace_name;
  return reference;
}

json::object EncodeSeries(const Series& series) { return json::object{{"count", series.count}, {"lastObservedTime", FormatTime(series.last)}}; }

json::object EncodeEvent(const News& news, const Series& series, const EventOptions& options) {
  json::object event{{"apiVersion", "events.k8s.io/v1"},
                     {"kind", "Event"},
                     {"metadata", {{"name", series.name}, {"namespace", NamespaceOf(news.object)}}},
                     {"eventTime", FormatTime(series.first)},
                     {"reportingController", options.controller},
                     {"reportingInstance", Shortened(options.node_name, kMaxInstance)},
                     {"type", news.type == EventType::kNormal ? "Normal" : "Warning"},
                     {"action", news.action},
                     {"reason", news.reason},
                     {"note", news.note},
                     {"regarding", EncodeObject(news.object)}};
  if (series.count > 1) event["series"] = EncodeSeries(series);
  return event;
}

std::string TextOf(const absl::Status& why) { return Cat(CodeName(why.code()), ": ", View(why.message())); }

}  // namespace

class EventRecorder::Impl {
 public:
  Impl(Client& client, EventOptions options) : client_(client), options_(std::move(options)) {}
  ~Impl();

  void OnClaim(const claims::ClaimEvent& event);
  void Record(News news);
  void RecordNode(News news);
  bool WaitUntilWritten(Deadline deadline);
  EventState state() const;

 private:
  using Entry = std::map<News, Series>::iterator;
  bool TakeToken(const Object& object);
  bool IsSilent(const Series& series) const { return series.written == series.count && !series.is_busy; }
  void ForgetOld();
  std::optional<Entry> Next();
  Deadline WakeUp() const;
  void Work();
  absl::Status Write(const News& news, Series& series);
  void Settle(Entry entry, const Series& written, const absl::Status& status);

  Client& client_;
  const EventOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::map<News, Series> series_;
  std::map<Object, Bucket> buckets_;
  std::set<std::pair<std::string, std::string>> vanished_;  // driver, claim UID: their drift was that nothing was left
  EventState state_;
  bool stopping_ = false, told_forbidden_ = false;
  std::thread thread_;  // started with the first news
};

EventRecorder::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EventRecorder::Impl::OnClaim(const claims::ClaimEvent& event) {
  const ClaimChange change = event.change;
  if (change == ClaimChange::kPrepared || change == ClaimChange::kVerified) return;
  const std::pair<std::string, std::string> id{event.driver, event.claim.uid};
  News news{{"resource.k8s.io/v1", "ResourceClaim", event.claim.namespace_name, event.claim.name, event.claim.uid}, EventType::kWarning, {}, {}, {}};
  const auto fill = [&](EventType type, std::string action, std::string reason, std::string note) {
    news.type = type;
    news.action = std::move(action);
    news.reason = std::move(reason);
    news.note = Cat("driver ", event.driver, ": ", note);
  };
  bool has_vanished = false;
  {
    const std::lock_guard lock(mutex_);
    has_vanished = vanished_.contains(id);
    if (change == ClaimChange::kDrifted && absl::IsNotFound(event.why)) vanished_.insert(id);
    if (change == ClaimChange::kRepaired || change == ClaimChange::kReleased) vanished_.erase(id);
  }
  switch (change) {
    case ClaimChange::kRefused:
    case ClaimChange::kRejoinRefused: fill(EventType::kWarning, "Prepare", "PrepareFailed", TextOf(event.why)); break;
    case ClaimChange::kReleaseFailed: fill(EventType::kWarning, "Unprepare", "UnprepareFailed", TextOf(event.why)); break;
    case ClaimChange::kDrifted: fill(EventType::kWarning, "Verify", "LimitDrift", std::string(View(event.why.message()))); break;
    case ClaimChange::kRepaired:
      fill(EventType::kNormal, "Verify", has_vanished ? "ShareRemade" : "LimitRestored",
           has_vanished ? "what had vanished of the share is there again" : "the limits that were granted are in force again");
      break;
    default: return;
  }
  Record(std::move(news));
}

void EventRecorder::Impl::RecordNode(News news) {
  // The kubelet's way: the UID of a Node in Events is its name, and `kubectl describe node` looks for that.
  news.object = {"v1", "Node", "", options_.node_name, options_.node_name};
  Record(std::move(news));
}

void EventRecorder::Impl::Record(News news) {
  news.note = Shortened(news.note, kMaxNote);
  const WallTime now = std::chrono::system_clock::now();
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  ForgetOld();
  if (const auto known = series_.find(news); known != series_.end()) {
    ++known->second.count;
    known->second.last = now;
    known->second.end = DeadlineIn(options_.series_end);
    changed_.notify_one();
    return;
  }
  if (series_.size() >= options_.max_waiting || !TakeToken(news.object)) {
    ++state_.dropped;
    return;
  }
  Series& series = series_[std::move(news)];
  series.first = series.last = now;
  series.end = DeadlineIn(options_.series_end);
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  changed_.notify_one();
}

bool EventRecorder::Impl::TakeToken(const Object& object) {
  const Deadline now = DeadlineIn(std::chrono::milliseconds(0));
  const auto [found, fresh] = buckets_.try_emplace(object, Bucket{options_.burst, now});
  Bucket& bucket = found->second;
  const auto refills = (now - bucket.filled) / options_.refill;
  if (refills > 0) {
    bucket.left = static_cast<int>(std::min<std::int64_t>(options_.burst, bucket.left + refills));
    bucket.filled += options_.refill * refills;
  }
  if (bucket.left == 0) return false;
  --bucket.left;
  return true;
}

void EventRecorder::Impl::ForgetOld() {
  std::erase_if(series_, [this](const auto& entry) { return IsSilent(entry.second) && Passed(entry.second.end); });
  // A bucket that would be full again says nothing.
  std::erase_if(buckets_, [this](const auto& entry) { return Passed(entry.second.filled + options_.refill * options_.burst); });
}

std::optional<EventRecorder::Impl::Entry> EventRecorder::Impl::Next() {
  for (auto entry = series_.begin(); entry != series_.end(); ++entry) {
    const Series& series = entry->second;
    if (series.written < series.count && Passed(series.due)) return entry;
  }
  return std::nullopt;
}

Deadline EventRecorder::Impl::WakeUp() const {
  Deadline first = Deadline::max();
  for (const auto& [news, series] : series_) {
    if (series.written < series.count) first = std::min(first, series.due);
  }
  return first;
}

void EventRecorder::Impl::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::optional<Entry> entry = Next();
    if (!entry.has_value()) {
      const Deadline due = WakeUp();
      if (due == Deadline::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, due);
      }
      continue;
    }
    (*entry)->second.is_busy = true;
    const News news = (*entry)->first;
    Series series = (*entry)->second;
    lock.unlock();
    const absl::Status status = Write(news, series);
    lock.lock();
    Settle(*entry, series, status);
    idle_.notify_all();
  }
}

absl::Status EventRecorder::Impl::Write(const News& news, Series& series) {
  const Deadline deadline = DeadlineIn(options_.call_timeout);
  if (series.written > 0) {
    return client_
        .Patch(Cat(CollectionPath(news.object), "/", Escape(series.name)), PatchKind::kMerge, json::object{{"series", EncodeSeries(series)}}, deadline)
        .status();
  }
  if (series.name.empty()) series.name = Cat(news.object.name.substr(0, kMaxNamePart), ".", NewUuid());
  const absl::Status created = client_.Create(CollectionPath(news.object), EncodeEvent(news, series, options_), deadline).status();
  return absl::IsAlreadyExists(created) ? absl::OkStatus() : created;  // an earlier try of ours whose answer was lost
}

void EventRecorder::Impl::Settle(Entry entry, const Series& written, const absl::Status& status) {
  Series& series = entry->second;
  series.is_busy = false;
  series.name = written.name;
  if (status.ok()) {
    ++state_.written;
    series.written = written.count;
    series.tries = 0;
    series.due = DeadlineIn(options_.series_interval);
    return;
  }
  if (IsRetryable(status) && ++series.tries < kMostTries) {
    series.due = DeadlineIn(options_.retry * (1 << series.tries));
    return;
  }
  ++state_.dropped;
  if (absl::IsPermissionDenied(status) && !std::exchange(told_forbidden_, true)) {
    LogError("Events may not be written; the log has what they would say",
             {{"reason", std::string(View(status.message()))}, {"rule", "the service account needs apiGroup events.k8s.io: events [create, patch]"}});
  }
  series_.erase(entry);
}

bool EventRecorder::Impl::WaitUntilWritten(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] {
    return std::all_of(series_.begin(), series_.end(), [](const auto& entry) { return entry.second.written > 0 && !entry.second.is_busy; });
  });
}

EventState EventRecorder::Impl::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

EventRecorder::EventRecorder(Client& client, const EventOptions& options) : impl_(std::make_unique<Impl>(client, options)) {}
EventRecorder::~EventRecorder() = default;
void EventRecorder::OnClaim(const claims::ClaimEvent& event) { impl_->OnClaim(event); }
void EventRecorder::RecordNode(EventType type, const std::string& action, const std::string& reason, const std::string& note) {
  impl_->RecordNode({{}, type, action, reason, note});
}
bool EventRecorder::WaitUntilWritten(Deadline deadline) { return impl_->WaitUntilWritten(deadline); }
EventState EventRecorder::state() const { return impl_->state(); }

}  // namespace tranche::kube
