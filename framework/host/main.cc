// tranched: see host/host.h.
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <memory>

#include "host/host.h"
#include "host/options.h"
#include "telemetry/log.h"

namespace {

constexpr int kFailure = 1;
constexpr int kConfigurationError = 2;
// A backend that hangs in destroy must not keep the process: its shares stay in force without it.
constexpr unsigned kShutdownSeconds = 40;

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// Until SIGTERM or SIGINT; SIGHUP reads the configuration again.
void WaitForEnd(tranche::host::Host& host, const sigset_t& signals) {
  while (true) {
    int received = 0;
    if (sigwait(&signals, &received) != 0) continue;
    if (received != SIGHUP) return;
    host.RequestReload();
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Threads come and go with load; an arena for each would hold memory for nothing.
  mallopt(M_ARENA_MAX, 2);
  std::signal(SIGPIPE, SIG_IGN);
  tranche::host::ParsedOptions parsed = tranche::host::ParseOptions(argc, argv);
  if (!parsed.options.has_value()) return parsed.exit_code;

  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread exists: they inherit it
  absl::StatusOr<std::unique_ptr<tranche::host::Host>> host = tranche::host::Host::Start(*std::move(parsed.options));
  if (!host.ok()) {
    std::cerr << "tranched: " << host.status().message() << "\n";
    return absl::IsInvalidArgument(host.status()) ? kConfigurationError : kFailure;
  }
  malloc_trim(0);  // what only starting needed goes back
  WaitForEnd(**host, signals);
  tranche::LogInfo("shutting down; prepared shares stay in force");
  alarm(kShutdownSeconds);
  host->reset();
  tranche::LogInfo("ended");
  return 0;
}
