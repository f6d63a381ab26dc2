// Events (events.k8s.io/v1) about ResourceClaims and the Node, from what the claims room tells and from the host.
//
//   claim   Warning PrepareFailed, UnprepareFailed, LimitDrift; Normal LimitRestored, ShareRemade
//   node    what the host records: ConfigurationRefused, ConfigurationApplied, …
//
// Recording never waits: one thread writes. The same news about the same object again is one Event whose series counts it, written at most every
// `series_interval`; an object that has much news is held to `burst` Events and then one every `refill`. Events are a hint for people: what cannot be
// written after a few tries is dropped and counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "claims/observer.h"
#include "kube/client.h"

namespace tranche::kube {

struct EventOptions {
  std::string node_name;
  std::string controller = "tranche.dev/host";
  std::size_t max_waiting = 512;  // kinds of news that are remembered at once
  int burst = 10;
  std::chrono::milliseconds refill{60'000};
  std::chrono::milliseconds series_interval{30'000};
  std::chrono::milliseconds series_end{360'000};  // without the same news for so long, the next is an Event of its own
  std::chrono::milliseconds retry{2'000};
  std::chrono::milliseconds call_timeout{10'000};
};

struct EventState {
  std::uint64_t written = 0, dropped = 0;
};

enum class EventType { kNormal, kWarning };

// Thread-safe. The destructor drops what waits and lets the call in flight end.
class EventRecorder final : public claims::Observer {
 public:
  EventRecorder(Client& client, const EventOptions& options);
  ~EventRecorder() override;
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void OnClaim(const claims::ClaimEvent& event) override;
  // `action` and `reason` in CamelCase: "Configure", "ConfigurationRefused". The note is cut to what the API takes.
  void RecordNode(EventType type, const std::string& action, const std::string& reason, const std::string& note);

  // Until nothing waits to be written, series not counted; false: the deadline passed.
  bool WaitUntilWritten(Deadline deadline);
  EventState state() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tranche::kube
