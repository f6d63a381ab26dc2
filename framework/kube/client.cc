#include "kube/client.h"

#include <charconv>
#include <optional>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "kube/client_impl.h"

namespace tranche::kube {
namespace json = boost::json;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Ends the loop at destruction; holds what the loop uses.
class WatchHandle : public Watch {
 public:
  WatchHandle(std::shared_ptr<Core> core, std::shared_ptr<WatchLoop> loop) : core_(std::move(core)), loop_(std::move(loop)) {}
  ~WatchHandle() override {
    core_->engine.RunAndWait([this] { loop_->Stop(); });
  }

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<WatchLoop> loop_;
};

std::string_view ContentTypeOf(PatchKind kind) {
  switch (kind) {
    case PatchKind::kMerge: return "application/merge-patch+json";
    case PatchKind::kStrategic: return "application/strategic-merge-patch+json";
    case PatchKind::kJson: return "application/json-patch+json";
    case PatchKind::kApply: return "application/apply-patch+yaml";  // JSON is YAML
  }
  return "application/json";
}

HttpRequest Ask(std::string method, const std::string& path, std::string body = "", std::string_view content_type = "application/json") {
  HttpRequest request;
  request.method = std::move(method);
  request.path = path;
  request.body = std::move(body);
  request.content_type = content_type;
  return request;
}

milliseconds Left(Deadline deadline) { return std::chrono::ceil<milliseconds>(deadline - steady_clock::now()); }

// Whether the server certainly did nothing with the request, or may do it twice without harm.
bool MayRepeat(const HttpRequest& request, const HttpAnswer& answer, const ServerError& error) {
  const bool get = request.method == "GET";
  switch (answer.outcome) {
    case Outcome::kNotSent: return true;
    case Outcome::kBroken: return get;
    case Outcome::kAnswered: break;
    case Outcome::kUntrusted:
    case Outcome::kTimedOut:
    case Outcome::kTooLarge:
    case Outcome::kStopped: return false;
  }
  if (answer.status == 429 || answer.status == 503) return error.retry_after.has_value() || (get && answer.status == 503);
  return get && answer.status >= 500;
}

bool IsRefused(const HttpAnswer& answer) { return answer.outcome == Outcome::kUntrusted || (answer.outcome == Outcome::kAnswered && answer.status == 401); }

std::optional<int> LeadingNumber(const json::object& object, std::string_view field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  const json::string& text = value->get_string();
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end != text.data() ? std::optional(number) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const ClientOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<Credentials> credentials, Credentials::Load(options));
  return std::make_unique<ClientImpl>(options, std::move(credentials));
}

std::string Escape(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      escaped.push_back(c);
    } else {
      escaped += {'%', kHex[byte >> 4U], kHex[byte & 15U]};
    }
  }
  return escaped;
}

ClientImpl::ClientImpl(const ClientOptions& options, std::unique_ptr<Credentials> credentials, const RetryTimes& retry_times, const WatchTimes& watch_times)
    : options_(options), retry_times_(retry_times), watch_times_(watch_times), core_(std::make_shared<Core>()) {
  core_->credentials = std::move(credentials);
}

ClientImpl::~ClientImpl() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    closing_changed_.notify_all();
    slot_freed_.notify_all();
  }
  core_->engine.Stop();
  std::unique_lock lock(mutex_);
  calls_changed_.wait(lock, [this] { return calls_ == 0; });
}

bool ClientImpl::Wait(milliseconds duration, Deadline deadline) {
  const auto until = steady_clock::now() + duration;
  if (until >= deadline) return false;
  std::unique_lock lock(mutex_);
  return !closing_changed_.wait_until(lock, until, [this] { return closing_; });
}

absl::StatusOr<HttpAnswer> ClientImpl::Exchange(HttpRequest request, Deadline deadline) {
  const std::string what = Cat(request.method, " ", request.path);
  {
    std::unique_lock lock(mutex_);
    const bool free = slot_freed_.wait_until(lock, deadline, [this] { return closing_ || in_flight_ < options_.max_in_flight; });
    if (closing_) return absl::CancelledError(Cat(what, ": the client stops"));
    if (!free || Passed(deadline))
      return absl::DeadlineExceededError(Cat(what, ": not sent before its deadline, as ", in_flight_, " other calls are in flight"));
    ++in_flight_;
  }
  struct {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<HttpAnswer> answer;
  } wait;
  HttpHandler handler;
  handler.on_done = [&wait](HttpAnswer answer) {
    const std::lock_guard lock(wait.mutex);
    wait.answer = std::move(answer);
    wait.done.notify_one();
  };
  request.timeout = Left(deadline);
  core_->engine.Start(std::move(request), std::move(handler));
  {
    std::unique_lock lock(wait.mutex);
    wait.done.wait(lock, [&wait] { return wait.answer.has_value(); });  // the engine keeps the deadline
  }
  const std::lock_guard lock(mutex_);
  --in_flight_;
  slot_freed_.notify_one();
  return *std::move(wait.answer);
}

// A caller inside the client, which destruction waits for.
class ClientImpl::Slot {
 public:
  explicit Slot(ClientImpl& client) : client_(client) {
    const std::lock_guard lock(client_.mutex_);
    ++client_.calls_;
  }
  ~Slot() {
    const std::lock_guard lock(client_.mutex_);
    --client_.calls_;
    client_.calls_changed_.notify_all();
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  ClientImpl& client_;
};

absl::StatusOr<std::string> ClientImpl::Call(HttpRequest request, Deadline deadline) {
  const Slot slot(*this);
  std::optional<Backoff> backoff;  // made when needed: its random seed costs more than the rest of a call
  request.user_agent = options_.user_agent;
  request.max_bytes = kMaxResponseBytes;
  bool refused = false;
  absl::Status before;  // why the try before this one failed
  for (;;) {
    request.access = core_->credentials->Current();
    TRANCHE_ASSIGN_OR_RETURN(HttpAnswer answer, Exchange(request, deadline));
    const ServerError error = Describe(request, answer);
    if (error.status.ok()) return std::move(answer.body);
    if (answer.outcome == Outcome::kTimedOut && !before.ok()) {
      return absl::DeadlineExceededError(Cat(View(error.status.message()), "; before that: ", View(before.message())));
    }
    if (IsRefused(answer) && !std::exchange(refused, true)) {
      core_->credentials->Reload();
      continue;
    }
    if (!MayRepeat(request, answer, error)) return error.status;
    if (!backoff.has_value()) backoff.emplace(retry_times_.first_wait, retry_times_.longest_wait);
    const milliseconds wait = backoff->Next() + error.retry_after.value_or(std::chrono::seconds(0));
    if (!Wait(wait, deadline)) return error.status;
    before = error.status;
  }
}

absl::StatusOr<json::object> ClientImpl::CallForObject(HttpRequest request, Deadline deadline) {
  const std::string what = Cat(request.method, " ", request.path);
  TRANCHE_ASSIGN_OR_RETURN(const std::string body, Call(std::move(request), deadline));
  return ParseObject(body, what);
}

absl::StatusOr<json::object> ClientImpl::Get(const std::string& path, Deadline deadline) { return CallForObject(Ask("GET", path), deadline); }

absl::StatusOr<std::vector<json::object>> ClientImpl::List(const std::string& path, Deadline deadline) {
  PageCollector pages(path);
  while (!pages.done()) {
    absl::StatusOr<json::object> page = Get(pages.NextPath(), deadline);
    if (page.status().code() == absl::StatusCode::kOutOfRange && pages.Expired()) continue;
    if (!page.ok()) return page.status();
    TRANCHE_RETURN_IF_ERROR(pages.Add(*std::move(page)));
  }
  return pages.TakeItems();
}

absl::StatusOr<json::object> ClientImpl::Create(const std::string& path, const json::object& object, Deadline deadline) {
  return CallForObject(Ask("POST", path, json::serialize(object)), deadline);
}

absl::StatusOr<json::object> ClientImpl::Replace(const std::string& path, const json::object& object, Deadline deadline) {
  return CallForObject(Ask("PUT", path, json::serialize(object)), deadline);
}

absl::StatusOr<json::object> ClientImpl::Patch(const std::string& path, PatchKind kind, const json::value& patch, Deadline deadline) {
  return CallForObject(Ask("PATCH", path, json::serialize(patch), ContentTypeOf(kind)), deadline);
}

absl::Status ClientImpl::Delete(const std::string& path, const Preconditions& preconditions, Deadline deadline) {
  json::object conditions;
  if (!preconditions.uid.empty()) conditions["uid"] = preconditions.uid;
  if (!preconditions.resource_version.empty()) conditions["resourceVersion"] = preconditions.resource_version;
  std::string body;
  if (!conditions.empty()) body = json::serialize(json::object{{"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"preconditions", std::move(conditions)}});
  return Call(Ask("DELETE", path, std::move(body)), deadline).status();
}

std::unique_ptr<Watch> ClientImpl::Watch(const std::string& path, WatchHandler handler) {
  auto loop = std::make_shared<WatchLoop>(core_->engine, *core_->credentials, options_.user_agent, path, std::move(handler), watch_times_);
  core_->engine.Run([loop] { loop->Begin(); });
  return std::make_unique<WatchHandle>(core_, std::move(loop));
}

absl::StatusOr<ServerVersion> ClientImpl::Version(Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const json::object object, Get("/version", deadline));
  const std::optional<int> major = LeadingNumber(object, "major"), minor = LeadingNumber(object, "minor");  // "37+" on some builds
  if (!major.has_value() || !minor.has_value()) return absl::DataLossError("GET /version: major and minor are no numbers");
  ServerVersion version{.major = *major, .minor = *minor, .text = ""};
  if (const json::value* text = object.if_contains("gitVersion"); text != nullptr && text->is_string()) {
    version.text.assign(text->get_string().data(), text->get_string().size());
  }
  return version;
}

}  // namespace tranche::kube
