#include "proof/traffic.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "base/status.h"

namespace tranche::proof {
namespace {

using std::chrono::milliseconds;
constexpr int kFirstPort = 20'201;
constexpr milliseconds kListenTimeout(5000);
constexpr int kTcpListen = 0x0a;

// Looks into the server's own namespace by its pid: a connection would use up its one test.
bool Listens(pid_t pid, int port) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/net/tcp"));
  std::string line;
  while (std::getline(file, line)) {
    unsigned local = 0, state = 0;
    if (std::sscanf(line.c_str(), "%*d: %*8X:%4X %*8X:%*4X %2X", &local, &state) == 2 && static_cast<int>(local) == port && state == kTcpListen) {
      return true;
    }
  }
  return false;
}

absl::Status WaitUntilListening(Process& server, int port) {
  const auto end = std::chrono::steady_clock::now() + kListenTimeout;
  while (!Listens(server.pid(), port)) {
    if (!server.Running()) {
      const std::string words = server.Output();
      return absl::FailedPreconditionError(absl::StrCat("the iperf3 server on port ", port, " ended: ", words.empty() ? "is iperf3 installed?" : words));
    }
    if (std::chrono::steady_clock::now() >= end) { return absl::DeadlineExceededError(absl::StrCat("the iperf3 server does not listen on port ", port)); }
    std::this_thread::sleep_for(milliseconds(3));
  }
  return absl::OkStatus();
}

Command ServerCommand(const Peer& peer, int port) { return {{"iperf3", "-s", "-1", "-B", peer.address, "-p", absl::StrCat(port)}, peer.network_namespace, ""}; }

Command ClientCommand(const Peer& peer, const Stream& stream, int port, milliseconds duration) {
  const auto seconds = (duration.count() + 999) / 1000 + 3;
  Command command{{"iperf3", "-c", peer.address, "-B", stream.pod_address, "-p", absl::StrCat(port), "-t", absl::StrCat(seconds), "-J", "-i", "0"},
                  stream.pod_namespace,
                  ""};
  const auto add = [&](std::initializer_list<std::string> more) { command.arguments.insert(command.arguments.end(), more); };
  if (stream.traffic == Traffic::kUdp) add({"-u", "-l", "1448", "-b", absl::StrCat(stream.udp_bits_per_second)});
  if (stream.direction == Direction::kDown) add({"-R"});
  return command;
}

}  // namespace

std::string_view TrafficName(Traffic traffic) { return traffic == Traffic::kTcp ? "tcp" : "udp"; }
std::string_view DirectionName(Direction direction) { return direction == Direction::kUp ? "up" : "down"; }

absl::StatusOr<TrafficRun> TrafficRun::Start(const Peer& peer, const std::vector<Stream>& streams, milliseconds duration) {
  TrafficRun run({}, {});
  const auto port = [](std::size_t i) { return kFirstPort + static_cast<int>(i); };
  for (std::size_t i = 0; i < streams.size(); ++i) {
    TRANCHE_ASSIGN_OR_RETURN(Process server, Process::Start(ServerCommand(peer, port(i))));
    run.servers_.push_back(std::move(server));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) TRANCHE_RETURN_IF_ERROR(WaitUntilListening(run.servers_[i], port(i)));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    TRANCHE_ASSIGN_OR_RETURN(Process client, Process::Start(ClientCommand(peer, streams[i], port(i), duration)));
    run.clients_.push_back(std::move(client));
  }
  return run;
}

absl::Status TrafficRun::Check() {
  for (Process& client : clients_) {
    if (client.Running()) continue;
    return absl::FailedPreconditionError(absl::StrCat("traffic ended early; iperf3 says: ", client.Output().substr(0, 800)));
  }
  return absl::OkStatus();
}

void TrafficRun::Stop() {
  // Both ends at once: a receiver that is gone resets the connection, so that nothing is left in the sender's queue for the next phase.
  for (Process& process : servers_) process.Signal(SIGKILL);
  for (Process& process : clients_) process.Signal(SIGKILL);
  servers_.clear();
  clients_.clear();
}

}  // namespace tranche::proof
