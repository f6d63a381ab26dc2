#include "host_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include <absl/strings/str_replace.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "local/directory.h"
#include "local/dra_client.h"
#include "local/scheduler.h"

namespace tranche::bench {
namespace {

constexpr char kNamespace[] = "bench";
constexpr int kMostShares = 1000, kDrain = 300, kRound = 200;

constexpr char kConfiguration[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: vnic_tc
  isolation: in-process
  config:
    parents: [{interface: $UPLINK, bandwidth: 100G, subnet: 10.99.0.0/16}]
    attachHook: "$PROGRAMS/vnic-attach"
  allowEdits: {hooks: ["$PROGRAMS/"]}
drivers:
- name: vnic.tranche.dev
  offers:
  - name: shared
    backend: uplink
    mode: share
    capacity:
      bandwidth: {default: 10M, min: 10M, max: 1G, step: 10M}
  classes:
  - name: vnic-shared
    offer: shared
)";

constexpr char kManifest[] = R"(apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: bench, name: first}
spec:
  devices:
    requests:
    - name: nic
      exactly:
        deviceClassName: vnic-shared
        capacity: {requests: {bandwidth: 10M}}
)";

class Host {
 public:
  explicit Host(const HostSetup& setup) : setup_(setup) {}
  ~Host() { Stop(SIGKILL); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Until the driver answers on its registration socket.
  absl::StatusOr<local::Plugin> Start() {
    pid_ = fork();
    if (pid_ == 0) Exec();
    if (pid_ < 0) return absl::ResourceExhaustedError("fork failed");
    const Deadline deadline = DeadlineIn(std::chrono::seconds(30));
    while (!Passed(deadline)) {
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return absl::UnavailableError(Cat("tranched ended at start, see ", setup_.directory, "/tranched.log"));
      }
      // FindPlugins opens a connection for each socket, so it is asked only when there is one.
      const auto names = ListDirectory(setup_.directory + "/plugins_registry");
      if (names.ok() && !names->empty()) {
        const auto plugins = local::FindPlugins(setup_.directory + "/plugins_registry", DeadlineIn(std::chrono::seconds(2)));
        if (plugins.ok() && !plugins->empty()) return plugins->front();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::DeadlineExceededError("tranched does not serve within 30 s");
  }

  void Stop(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  // Of /proc/PID/status, MiB.
  double Memory(const std::string& field) const {
    std::ifstream file(Cat("/proc/", pid_, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1)) / 1024;
    }
    return 0;
  }

 private:
  [[noreturn]] void Exec() const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = open((setup_.directory + "/tranched.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(log, 1);
    dup2(log, 2);
    const std::string program = setup_.programs + "/tranched", backends = setup_.programs + "/../backends";
    const std::string configuration = setup_.directory + "/host.yaml";
    execl(program.c_str(), "tranched", "--local", setup_.directory.c_str(), "--config", configuration.c_str(), "--backend-directory", backends.c_str(),
          "--node-name", "bench-node", "--log-level", "warning", static_cast<char*>(nullptr));
    _exit(127);
  }

  const HostSetup& setup_;
  pid_t pid_ = -1;
};

// Claims that are allocated and reserved already, as the scheduler leaves them.
absl::StatusOr<std::vector<ClaimReference>> MakeClaims(const local::Directory& directory, int count) {
  const local::Scheduler scheduler(directory);
  TRANCHE_RETURN_IF_ERROR(scheduler.Apply(kManifest).status());
  TRANCHE_ASSIGN_OR_RETURN(Claim claim, scheduler.Allocate(kNamespace, "first"));
  std::vector<ClaimReference> references = {{claim.namespace_name, claim.name, claim.uid}};
  for (int i = 1; i < count; ++i) {
    claim.name = Cat("claim-", i);
    claim.uid = NewUuid();
    for (AllocationResult& result : claim.allocation->results) result.share_id = NewUuid();
    TRANCHE_RETURN_IF_ERROR(directory.WriteClaim(claim));
    references.push_back({claim.namespace_name, claim.name, claim.uid});
  }
  return references;
}

using Call = std::function<absl::Status(const ClaimReference&)>;

// Each reference once, `in_flight` at a time; milliseconds of each call.
absl::StatusOr<std::vector<double>> CallAll(const std::vector<ClaimReference>& references, int in_flight, const Call& call) {
  std::vector<double> samples(references.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  absl::Status first_error;
  const auto work = [&] {
    for (std::size_t i = next++; i < references.size(); i = next++) {
      const auto begin = Clock::now();
      const absl::Status status = call(references[i]);
      samples[i] = Milliseconds(Clock::now() - begin);
      const std::lock_guard lock(mutex);
      if (first_error.ok() && !status.ok()) first_error = status;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < in_flight; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  TRANCHE_RETURN_IF_ERROR(first_error);
  return samples;
}

class Load {
 public:
  Load(const local::DraClient& client, Results& results) : client_(client), results_(results) {}

  absl::StatusOr<double> Round(const std::vector<ClaimReference>& references, int in_flight, const std::string& suffix) const {
    TRANCHE_ASSIGN_OR_RETURN(std::vector<double> prepared, CallAll(references, in_flight, [this](const ClaimReference& claim) { return Prepare(claim); }));
    const double p50 = results_.Add("prepare_" + suffix, "ms", std::move(prepared)).p50;
    TRANCHE_ASSIGN_OR_RETURN(std::vector<double> released, CallAll(references, in_flight, [this](const ClaimReference& claim) { return Unprepare({claim}); }));
    results_.Add("unprepare_" + suffix, "ms", std::move(released));
    return p50;
  }

  absl::Status Full(const std::vector<ClaimReference>& references) const {
    const auto begin = Clock::now();
    TRANCHE_ASSIGN_OR_RETURN(std::vector<double> prepared, CallAll(references, 8, [this](const ClaimReference& claim) { return Prepare(claim); }));
    results_.AddOne(Cat("prepare_", references.size(), "_shares_total"), "ms", Milliseconds(Clock::now() - begin));
    results_.Add(Cat("prepare_to_", references.size(), "_shares_8_in_flight"), "ms", std::move(prepared));
    const auto middle = references.begin() + kDrain;
    const auto drain = Clock::now();
    TRANCHE_RETURN_IF_ERROR(Unprepare({references.begin(), middle}));
    results_.AddOne(Cat("drain_", kDrain, "_shares_in_one_call"), "ms", Milliseconds(Clock::now() - drain));
    const std::vector<ClaimReference> rest(middle, references.end());
    TRANCHE_ASSIGN_OR_RETURN(std::vector<double> released, CallAll(rest, 8, [this](const ClaimReference& claim) { return Unprepare({claim}); }));
    results_.Add(Cat("unprepare_from_", rest.size(), "_shares_8_in_flight"), "ms", std::move(released));
    return absl::OkStatus();
  }

 private:
  absl::Status Prepare(const ClaimReference& claim) const {
    for (const auto& [uid, answer] : client_.Prepare({claim}, DeadlineIn(std::chrono::seconds(45)))) TRANCHE_RETURN_IF_ERROR(answer.status());
    return absl::OkStatus();
  }
  absl::Status Unprepare(const std::vector<ClaimReference>& claims) const {
    for (const auto& [uid, status] : client_.Unprepare(claims, DeadlineIn(std::chrono::seconds(45)))) TRANCHE_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }
  const local::DraClient& client_;
  Results& results_;
};

absl::Status MeasureStart(Host& host, Results& results) {
  std::vector<double> starts;
  for (int i = 0; i < 10; ++i) {
    const auto begin = Clock::now();
    TRANCHE_RETURN_IF_ERROR(host.Start().status());
    starts.push_back(Milliseconds(Clock::now() - begin));
    host.Stop(SIGTERM);
  }
  results.Add("start_to_serving", "ms", std::move(starts));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> MeasureHost(const HostSetup& setup, Results& results) {
  TRANCHE_ASSIGN_OR_RETURN(const local::Directory directory, local::Directory::Open(setup.directory));
  const std::string text = absl::StrReplaceAll(kConfiguration, {{"$UPLINK", setup.uplink}, {"$PROGRAMS", setup.programs}});
  TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(setup.directory + "/host.yaml", text, 0640, Durability::kVisible));
  Host host(setup);
  TRANCHE_RETURN_IF_ERROR(MeasureStart(host, results));
  TRANCHE_ASSIGN_OR_RETURN(const local::Plugin plugin, host.Start());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  results.AddOne("idle_rss", "MiB", host.Memory("VmRSS"));
  results.AddOne("idle_rss_anonymous", "MiB", host.Memory("RssAnon"));
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ClaimReference> claims, MakeClaims(directory, kMostShares));
  TRANCHE_ASSIGN_OR_RETURN(const auto client, local::DraClient::Connect(plugin, local::ProtocolVersion::kFirstSupported));
  const Load load(*client, results);
  const std::vector<ClaimReference> round(claims.begin(), claims.begin() + kRound);
  double p50 = 0;
  for (const int in_flight : {1, 8, 64}) {
    TRANCHE_ASSIGN_OR_RETURN(const double measured, load.Round(round, in_flight, Cat(in_flight, "_in_flight")));
    if (in_flight == 1) p50 = measured;
  }
  TRANCHE_RETURN_IF_ERROR(load.Full(claims));
  results.AddOne("rss_after_load", "MiB", host.Memory("VmRSS"));
  host.Stop(SIGTERM);
  return p50;
}

}  // namespace tranche::bench
