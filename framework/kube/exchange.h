// One HTTP exchange: what is asked and what came of it. Internal to the room.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kube/access.h"

namespace tranche::kube {

struct HttpRequest {
  std::shared_ptr<const Access> access;
  std::string method = "GET";
  std::string path;                // with its query
  std::string content_type, body;  // empty: none
  std::string user_agent;
  std::chrono::milliseconds timeout{0};  // of the whole exchange
  std::size_t max_bytes = 0;             // of the answer where it is collected
};

enum class Outcome {
  kAnswered,   // status and body are the server's
  kNotSent,    // the request cannot have reached the server
  kUntrusted,  // TLS: no certificate that both sides accept; not sent
  kBroken,     // the connection failed after the request, or a part of it, was sent
  kTimedOut,
  kTooLarge,
  kStopped,  // on_data said so, or the engine stops
};

struct HttpAnswer {
  Outcome outcome = Outcome::kStopped;
  int status = 0;
  std::optional<std::chrono::seconds> retry_after;
  std::string body;
  std::string problem;  // where not kAnswered, in libcurl's words
};

// Called on the engine's thread, in this order. May start and cancel exchanges.
struct HttpHandler {
  std::function<void(int status)> on_status;           // the headers are here; may be empty
  std::function<bool(std::string_view data)> on_data;  // of a 200; empty: collected in the answer. False ends the exchange.
  std::function<void(HttpAnswer answer)> on_done;      // once, unless cancelled
};

}  // namespace tranche::kube
