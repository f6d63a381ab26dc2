// Keeps one collection current: lists it, follows its watch, begins anew where the server has forgotten. Internal to the room.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "kube/backoff.h"
#include "kube/client.h"
#include "kube/credentials.h"
#include "kube/engine.h"
#include "kube/event_stream.h"
#include "kube/pages.h"

namespace tranche::kube {

struct WatchTimes {
  std::chrono::milliseconds first_wait{250}, longest_wait{8'000};  // of the back-off
  std::chrono::milliseconds healthy{10'000};                       // a stream that lived this long ends the back-off
  std::chrono::milliseconds silence{30'000};                       // beyond the end that the server was asked for
  std::chrono::seconds shortest_stream{300}, longest_stream{600};
  std::chrono::milliseconds list_timeout{60'000};
};

// Everything happens on the engine's thread.
class WatchLoop : public std::enable_shared_from_this<WatchLoop> {
 public:
  WatchLoop(Engine& engine, Credentials& credentials, std::string user_agent, std::string path, WatchHandler handler, const WatchTimes& times);
  void Begin();
  void Stop();

 private:
  using Next = void (WatchLoop::*)();

  HttpRequest Request(std::string path, std::chrono::milliseconds timeout) const;
  void ListAnew();
  void FetchPage();
  void OnPage(const HttpRequest& request, HttpAnswer answer);
  void Follow();
  void OnOpen(int status);
  bool OnData(std::string_view data);
  bool OnLine(std::string_view line);
  void OnEvent(StreamEvent event);
  void OnClosed(const HttpRequest& request, const HttpAnswer& answer);
  void BeginAnewSoon();
  // Reports the problem and goes on with `next` after a while.
  void Fail(const absl::Status& problem, Next next, std::optional<std::chrono::seconds> retry_after = std::nullopt);
  // Of 401: reads the credentials again and tries once more at once.
  bool RetryUnauthorized(const HttpAnswer& answer, Next next);
  void After(std::chrono::milliseconds wait, Next next);
  void Recovered();
  void Healthy();

  Engine& engine_;
  Credentials& credentials_;
  const std::string user_agent_, path_;
  const WatchHandler handler_;
  const WatchTimes times_;

  bool stopped_ = false;
  Engine::Id exchange_ = 0, timer_ = 0;
  std::optional<PageCollector> pages_;
  std::string resource_version_;
  std::optional<LineSplitter> lines_;
  absl::Status stream_problem_;  // why we ended the stream
  bool gone_ = false;            // the stream said 410
  bool failing_ = false;         // as on_problem was told
  absl::StatusCode told_ = absl::StatusCode::kOk;
  bool unauthorized_ = false;  // the last answer was 401 and was tried again
  bool began_anew_ = false;    // and nothing healthy came since
  std::chrono::steady_clock::time_point opened_;
  Backoff backoff_;
  std::minstd_rand random_;
};

}  // namespace tranche::kube
