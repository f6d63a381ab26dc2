#include "kube/watch.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "kube/answer.h"

namespace tranche::kube {
namespace json = boost::json;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {
constexpr milliseconds kLongestRetryAfter = std::chrono::seconds(30);  // whatever a server asks for: what we miss meanwhile is not repaired
}  // namespace

WatchLoop::WatchLoop(Engine& engine, Credentials& credentials, std::string user_agent, std::string path, WatchHandler handler, const WatchTimes& times)
    : engine_(engine),
      credentials_(credentials),
      user_agent_(std::move(user_agent)),
      path_(std::move(path)),
      handler_(std::move(handler)),
      times_(times),
      backoff_(times.first_wait, times.longest_wait),
      random_(std::random_device{}()) {}

void WatchLoop::Begin() {
  if (!stopped_) ListAnew();
}

void WatchLoop::Stop() {
  stopped_ = true;
  engine_.Cancel(exchange_);
  engine_.Cancel(timer_);
}

HttpRequest WatchLoop::Request(std::string path, milliseconds timeout) const {
  HttpRequest request;
  request.access = credentials_.Current();
  request.path = std::move(path);
  request.user_agent = user_agent_;
  request.timeout = timeout;
  request.max_bytes = kMaxResponseBytes;
  return request;
}

void WatchLoop::ListAnew() {
  pages_.emplace(path_);
  FetchPage();
}

void WatchLoop::FetchPage() {
  HttpRequest request = Request(pages_->NextPath(), times_.list_timeout);
  HttpHandler handler;
  handler.on_done = [self = shared_from_this(), request](HttpAnswer answer) { self->OnPage(request, std::move(answer)); };
  exchange_ = engine_.Start(std::move(request), std::move(handler));
}

void WatchLoop::OnPage(const HttpRequest& request, HttpAnswer answer) {
  if (stopped_ || answer.outcome == Outcome::kStopped) return;
  const ServerError error = Describe(request, answer);
  if (error.status.code() == absl::StatusCode::kOutOfRange && pages_->Expired()) return FetchPage();
  if (!error.status.ok()) {
    if (RetryUnauthorized(answer, &WatchLoop::ListAnew)) return;
    return Fail(error.status, &WatchLoop::ListAnew, error.retry_after);
  }
  absl::StatusOr<json::object> list = ParseObject(answer.body, Cat("GET ", request.path));
  answer.body = std::string();
  const absl::Status added = list.ok() ? pages_->Add(*std::move(list)) : list.status();
  if (!added.ok()) return Fail(added, &WatchLoop::ListAnew);
  if (!pages_->done()) return FetchPage();
  resource_version_ = pages_->resource_version();
  if (resource_version_.empty()) { return Fail(absl::DataLossError(Cat("GET ", path_, ": the list has no metadata.resourceVersion")), &WatchLoop::ListAnew); }
  unauthorized_ = false;
  std::vector<json::object> items = pages_->TakeItems();
  pages_.reset();
  if (handler_.on_list) handler_.on_list(std::move(items));
  if (!stopped_) Follow();
}

void WatchLoop::Follow() {
  const auto seconds = std::uniform_int_distribution<std::int64_t>(times_.shortest_stream.count(), times_.longest_stream.count())(random_);
  HttpRequest request =
      Request(WithQuery(path_, Cat("watch=1&allowWatchBookmarks=true&resourceVersion=", Escape(resource_version_), "&timeoutSeconds=", seconds)),
              std::chrono::seconds(seconds) + times_.silence);
  lines_.emplace(kMaxWatchEventBytes);
  stream_problem_ = absl::OkStatus();
  gone_ = false;
  opened_ = steady_clock::time_point::max();
  HttpHandler handler;
  handler.on_status = [self = shared_from_this()](int status) { self->OnOpen(status); };
  handler.on_data = [self = shared_from_this()](std::string_view data) { return self->OnData(data); };
  handler.on_done = [self = shared_from_this(), request](const HttpAnswer& answer) { self->OnClosed(request, answer); };
  exchange_ = engine_.Start(std::move(request), std::move(handler));
}

void WatchLoop::OnOpen(int status) {
  if (stopped_ || status != 200) return;
  opened_ = steady_clock::now();
  unauthorized_ = false;
  Recovered();
}

bool WatchLoop::OnData(std::string_view data) {
  const absl::Status appended = lines_->Append(data, [this](std::string_view line) { return OnLine(line); });
  if (!appended.ok()) stream_problem_ = Annotate(appended, Cat("watch of ", path_));
  return !stopped_ && !gone_ && stream_problem_.ok();
}

bool WatchLoop::OnLine(std::string_view line) {
  if (stopped_) return false;
  absl::StatusOr<StreamEvent> event = DecodeEvent(line);
  if (!event.ok()) {
    stream_problem_ = Annotate(event.status(), Cat("watch of ", path_));
  } else {
    OnEvent(*std::move(event));
  }
  return !stopped_ && !gone_ && stream_problem_.ok();
}

void WatchLoop::OnEvent(StreamEvent event) {
  switch (event.kind) {
    case StreamEventKind::kUnknown: return;
    case StreamEventKind::kGone: gone_ = true; return;
    case StreamEventKind::kError: stream_problem_ = Annotate(event.error, Cat("watch of ", path_)); return;
    case StreamEventKind::kBookmark: resource_version_ = std::move(event.resource_version); return Healthy();
    case StreamEventKind::kAdded:
    case StreamEventKind::kModified:
    case StreamEventKind::kDeleted: break;
  }
  resource_version_ = std::move(event.resource_version);
  Healthy();
  const WatchEvent kind = event.kind == StreamEventKind::kAdded      ? WatchEvent::kAdded
                          : event.kind == StreamEventKind::kModified ? WatchEvent::kModified
                                                                     : WatchEvent::kDeleted;
  if (handler_.on_event) handler_.on_event(kind, std::move(event.object));
}

void WatchLoop::OnClosed(const HttpRequest& request, const HttpAnswer& answer) {
  if (stopped_) return;
  lines_.reset();
  if (gone_) return BeginAnewSoon();
  if (!stream_problem_.ok()) return Fail(stream_problem_, &WatchLoop::ListAnew);
  if (answer.outcome == Outcome::kStopped) return;
  const ServerError error = Describe(request, answer);
  if (opened_ == steady_clock::time_point::max()) {  // it never was a stream
    if (error.status.code() == absl::StatusCode::kOutOfRange) return BeginAnewSoon();
    if (RetryUnauthorized(answer, &WatchLoop::Follow)) return;
    if (error.status.ok()) return Fail(absl::UnavailableError(Cat("watch of ", path_, ": answered ", answer.status)), &WatchLoop::ListAnew);
    const bool refused = answer.outcome == Outcome::kAnswered && answer.status < 500 && answer.status != 429;
    return Fail(error.status, refused ? &WatchLoop::ListAnew : &WatchLoop::Follow, error.retry_after);
  }
  // Servers end watches, close connections and restart: nothing is lost, the next stream goes on where this one ended.
  if (steady_clock::now() - opened_ >= times_.healthy) Healthy();
  const bool at_once = steady_clock::now() - opened_ >= std::min(times_.healthy, milliseconds(1000));
  at_once ? Follow() : After(backoff_.Next(), &WatchLoop::Follow);
}

void WatchLoop::BeginAnewSoon() {
  if (began_anew_) return After(backoff_.Next(), &WatchLoop::ListAnew);
  began_anew_ = true;
  ListAnew();
}

void WatchLoop::Fail(const absl::Status& problem, Next next, std::optional<std::chrono::seconds> retry_after) {
  const bool tell = !failing_ || told_ != problem.code();
  failing_ = true;
  told_ = problem.code();
  pages_.reset();
  if (tell && handler_.on_problem) handler_.on_problem(problem);
  if (stopped_) return;
  milliseconds wait = backoff_.Next();
  if (retry_after.has_value()) wait += std::min<milliseconds>(*retry_after, kLongestRetryAfter);
  After(wait, next);
}

bool WatchLoop::RetryUnauthorized(const HttpAnswer& answer, Next next) {
  const bool refused = answer.outcome == Outcome::kUntrusted || (answer.outcome == Outcome::kAnswered && answer.status == 401);
  if (!refused || unauthorized_) return false;
  unauthorized_ = true;
  credentials_.Reload();
  (this->*next)();
  return true;
}

void WatchLoop::After(milliseconds wait, Next next) {
  timer_ = engine_.RunAfter(wait, [self = shared_from_this(), next] {
    if (!self->stopped_) (self.get()->*next)();
  });
}

void WatchLoop::Recovered() {
  if (!failing_) return;
  failing_ = false;
  if (handler_.on_problem) handler_.on_problem(absl::OkStatus());
}

void WatchLoop::Healthy() {
  backoff_.Reset();
  began_anew_ = false;
}

}  // namespace tranche::kube
