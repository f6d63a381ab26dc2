// HTTP on one thread: libcurl's multi interface over HTTP/2 where the server offers it, HTTP/1.1 otherwise. Internal to the room.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kube/exchange.h"

namespace tranche::kube {

class Easy;
struct Transfer;

// Run, RunAndWait and Start may be called from any thread; tasks and handlers run on the engine's.
class Engine {
 public:
  using Task = std::function<void()>;
  using Id = std::uint64_t;

  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Ends every exchange with kStopped and joins the thread. Later calls do nothing, except RunAndWait, which runs its task in the caller's thread.
  void Stop();

  void Run(Task task);
  // Returns when the task has run. From the engine's thread: runs it at once.
  void RunAndWait(const Task& task);

  Id Start(HttpRequest request, HttpHandler handler);
  // On the engine's thread only. Cancel ends an exchange or a timer: none of its handlers is called afterwards.
  Id RunAfter(std::chrono::milliseconds wait, Task task);
  void Cancel(Id id);

  bool OnThread() const { return std::this_thread::get_id() == thread_id_; }

 private:
  struct Multi;

  Id NextId();
  void Push(Task task);
  void Loop();
  void RunTasks();
  void RunTimers();
  void Begin(std::unique_ptr<Transfer> transfer);
  void AddWaiting();
  void SweepCancelled();
  void CollectFinished();
  void Finish(Id id, int curl_code);
  void Recycle(Transfer& transfer);
  int PollMilliseconds();
  void CloseIfDead(const Transfer& transfer) const;
  void EndEverything();

  std::mutex mutex_;
  std::vector<Task> tasks_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  bool stopped_ = false;     // guarded by mutex_: no task is taken any more
  Id next_id_ = 1;           // guarded by mutex_

  // The rest belongs to the engine's thread, save that any thread may wake up multi_.
  std::unique_ptr<Multi> multi_;
  std::vector<std::unique_ptr<Easy>> idle_handles_;
  std::unordered_map<Id, std::unique_ptr<Transfer>> transfers_;
  std::vector<Id> waiting_;  // begun, not yet given to libcurl (which takes none from within its callbacks)
  std::vector<Id> cancelled_;
  std::map<std::pair<std::chrono::steady_clock::time_point, Id>, Task> timers_;
  std::chrono::steady_clock::time_point last_received_;
  bool ended_ = false;

  std::thread::id thread_id_;
  std::thread thread_;
};

}  // namespace tranche::kube
