#include "kube/engine.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <pthread.h>
#include <sys/socket.h>

#include "kube/easy.h"

namespace tranche::kube {

namespace {

using std::chrono::steady_clock;

constexpr std::size_t kIdleHandles = 8;
constexpr std::chrono::milliseconds kLongestPoll = std::chrono::minutes(10);
// A connection on which a request ran out of time and that gave not a byte for this long is taken for dead even though the kernel still has it.
constexpr std::chrono::seconds kSilence{5};

}  // namespace

struct Engine::Multi {
  Multi() : multi(curl_multi_init()), share(curl_share_init()) {
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 16L);
    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  }
  ~Multi() {
    curl_multi_cleanup(multi);
    curl_share_cleanup(share);
  }
  CURLM* const multi;
  CURLSH* const share;
};

Engine::Engine() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  multi_ = std::make_unique<Multi>();
  thread_ = std::thread([this] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    pthread_setname_np(pthread_self(), "kube-client");
    Loop();
  });
  thread_id_ = thread_.get_id();  // the thread reads it in tasks only, and none can come before this
}

Engine::~Engine() { Stop(); }

void Engine::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    curl_multi_wakeup(multi_->multi);
  }
  thread_.join();
  std::vector<Task> left;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(tasks_);
  }
  for (const Task& task : left) task();
}

Engine::Id Engine::NextId() {
  const std::lock_guard lock(mutex_);
  return next_id_++;
}

void Engine::Push(Task task) {
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) curl_multi_wakeup(multi_->multi);
}

void Engine::Run(Task task) {
  const std::lock_guard lock(mutex_);
  if (!stopped_) Push(std::move(task));
}

void Engine::RunAndWait(const Task& task) {
  if (OnThread()) return task();
  std::mutex ran_mutex;
  std::condition_variable ran_changed;
  bool ran = false;
  {
    std::unique_lock lock(mutex_);
    if (stopped_) {
      lock.unlock();
      return task();
    }
    Push([&] {
      task();
      const std::lock_guard ran_lock(ran_mutex);
      ran = true;
      ran_changed.notify_one();
    });
  }
  std::unique_lock lock(ran_mutex);
  ran_changed.wait(lock, [&] { return ran; });
}

Engine::Id Engine::Start(HttpRequest request, HttpHandler handler) {
  auto transfer = std::make_unique<Transfer>();
  const Id id = transfer->id = NextId();
  transfer->request = std::move(request);
  transfer->handler = std::move(handler);
  transfer->last_received = &last_received_;
  if (OnThread()) {
    Begin(std::move(transfer));
    return id;
  }
  std::unique_lock lock(mutex_);
  if (!stopped_) {
    Push([this, held = std::make_shared<std::unique_ptr<Transfer>>(std::move(transfer))] { Begin(std::move(*held)); });
    return id;
  }
  lock.unlock();
  transfer->handler.on_done({});
  return id;
}

Engine::Id Engine::RunAfter(std::chrono::milliseconds wait, Task task) {
  const Id id = NextId();
  timers_.emplace(std::pair(steady_clock::now() + wait, id), std::move(task));
  return id;
}

void Engine::Cancel(Id id) {
  if (const auto found = transfers_.find(id); found != transfers_.end()) {
    found->second->cancelled = true;
    cancelled_.push_back(id);
  }
  std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
}

void Engine::Begin(std::unique_ptr<Transfer> transfer) {
  if (ended_) return transfer->handler.on_done({});
  waiting_.push_back(transfer->id);
  transfers_.emplace(transfer->id, std::move(transfer));
}

void Engine::AddWaiting() {
  std::vector<Id> waiting;
  waiting.swap(waiting_);
  for (const Id id : waiting) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end() || found->second->cancelled) continue;
    Transfer& transfer = *found->second;
    if (idle_handles_.empty()) {
      transfer.easy = std::make_unique<Easy>(multi_->share);
    } else {
      transfer.easy = std::move(idle_handles_.back());
      idle_handles_.pop_back();
    }
    transfer.easy->Prepare(transfer);
    curl_multi_add_handle(multi_->multi, transfer.easy->handle());
  }
}

void Engine::Recycle(Transfer& transfer) {
  if (transfer.easy == nullptr) return;
  curl_multi_remove_handle(multi_->multi, transfer.easy->handle());
  if (idle_handles_.size() < kIdleHandles) idle_handles_.push_back(std::move(transfer.easy));
  transfer.easy.reset();
}

void Engine::SweepCancelled() {
  std::vector<Id> cancelled;
  cancelled.swap(cancelled_);
  for (const Id id : cancelled) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) continue;
    Recycle(*found->second);
    transfers_.erase(found);
  }
}

void Engine::CollectFinished() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    Finish(transfer->id, message->data.result);
  }
}

void Engine::Finish(Id id, int curl_code) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end() || found->second->cancelled) return;
  const std::unique_ptr<Transfer> transfer = std::move(found->second);
  transfers_.erase(found);
  transfer->easy->Conclude(*transfer, static_cast<CURLcode>(curl_code));
  CloseIfDead(*transfer);
  Recycle(*transfer);
  transfer->handler.on_done(std::move(transfer->answer));
}

// Other exchanges would go on using a multiplexed connection behind which nobody is left.
void Engine::CloseIfDead(const Transfer& transfer) const {
  if (transfer.answer.outcome != Outcome::kTimedOut || last_received_ > transfer.begun || steady_clock::now() - transfer.begun < kSilence) return;
  const curl_socket_t socket = transfer.easy->Socket();
  if (socket != CURL_SOCKET_BAD) ::shutdown(socket, SHUT_RDWR);
}

void Engine::RunTasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) task();
}

void Engine::RunTimers() {
  while (!timers_.empty() && timers_.begin()->first.first <= steady_clock::now()) {
    const auto timer = timers_.extract(timers_.begin());
    timer.mapped()();
  }
}

int Engine::PollMilliseconds() {
  if (!waiting_.empty() || !cancelled_.empty()) return 0;
  if (timers_.empty()) return static_cast<int>(kLongestPoll.count());
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - steady_clock::now());
  return static_cast<int>(std::clamp(wait, std::chrono::milliseconds(0), kLongestPoll).count());
}

void Engine::Loop() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    RunTasks();
    SweepCancelled();
    AddWaiting();
    int running = 0;
    curl_multi_perform(multi_->multi, &running);
    CollectFinished();
    RunTimers();
    // Tasks that came meanwhile have written a wakeup, which ends the poll at once.
    curl_multi_poll(multi_->multi, nullptr, 0, PollMilliseconds(), nullptr);
  }
  EndEverything();
}

void Engine::EndEverything() {
  ended_ = true;
  timers_.clear();
  SweepCancelled();
  while (!transfers_.empty()) {
    const std::unique_ptr<Transfer> transfer = std::move(transfers_.begin()->second);
    transfers_.erase(transfers_.begin());
    Recycle(*transfer);
    if (!transfer->cancelled) transfer->handler.on_done({});
  }
  idle_handles_.clear();
}

}  // namespace tranche::kube
