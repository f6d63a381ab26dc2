// A well-behaved backend beside one that is wrong in every call: what the first one's prepares take.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "bench/client.h"
#include "bench/node.h"

namespace tranche::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr char kGood[] = "good.tranche.dev";
constexpr char kMoody[] = "moody.tranche.dev";
constexpr milliseconds kPeriod{50};          // of the calls of the moody one: 20 a second, while none of them hangs
constexpr milliseconds kMoodyCallTime{500};  // a call that hangs is given up so soon, and made again
constexpr milliseconds kHangGrace{1500};     // after which its process has been replaced
constexpr milliseconds kRecovery{30000};
constexpr const char* kLongestPause = "100";  // milliseconds between restarts: with the usual pauses it would rest for most of the time

struct Fault {
  std::string kind;     // a mood of moody_backend
  bool refuses = true;  // its calls fail
  bool hangs = false;
  double p50 = 1.3, p99 = 1.5;  // bounds of the ratios

  milliseconds time() const { return milliseconds(hangs ? 2000 : 800); }  // of a window
};

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = {
      {.kind = "segv"},
      {.kind = "abort"},
      {.kind = "exit"},
      {.kind = "spin", .hangs = true, .p50 = 3, .p99 = 3},
      {.kind = "sleep", .hangs = true},
      {.kind = "allocate", .p50 = 3, .p99 = 3},
      {.kind = "descriptors"},
      {.kind = "thread", .refuses = false},
      {.kind = "throw"},
      {.kind = "garbage"},
      {.kind = "oversize"},
      {.kind = "huge", .refuses = false},
      {.kind = "utf8"},
      {.kind = "print", .refuses = false},
  };
  return faults;
}

std::string Configuration(const std::string& mood) {
  const auto driver = [](const std::string& name) {
    return Cat("- name: ", name, ".tranche.dev\n  offers:\n  - name: ", name, "\n    backend: ", name,
               "\n    mode: share\n    capacity:\n      memory: {default: 1Mi, min: 1Mi, max: 1Gi, step: 1Mi}\n  classes:\n  - name: ", name,
               "\n    offer: ", name, "\n    namespaces: {allow: [bench]}\n");
  };
  return Cat(
      "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n- name: good\n  library: null_backend\n  isolation: process\n"
      "- name: moody\n  library: moody_backend\n  isolation: process\n  config: {moodFile: ",
      mood, "}\ndrivers:\n", driver("good"), driver("moody"));
}

ShareRequest ShareOf(const std::string& name) { return {Cat(name, ".tranche.dev"), name, "memory", *Quantity::Parse("1Mi")}; }

// The two libraries with their manifests, side by side.
absl::Status Install(const std::string& directory) {
  const fs::path good = test::BackendDirectory();
  const std::map<std::string, fs::path> folders = {{"null_backend", good}, {"moody_backend", good.parent_path() / "fakes"}};
  std::error_code error;
  fs::create_directories(directory, error);
  for (const auto& [name, from] : folders) {
    for (const char* suffix : {".so", ".backend.json"}) {
      if (!error) fs::copy_file(from / (name + suffix), fs::path(directory) / (name + suffix), error);
      if (error) return absl::UnavailableError(Cat("copy ", (from / (name + suffix)).string(), ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

// Prepares and unprepares claims of the moody backend at a fixed rate, at most, from construction to Stop.
class MoodyLoad {
 public:
  MoodyLoad(const Client& client, const std::vector<ClaimReference>& claims) : client_(client) {
    for (std::size_t i = 0; i < claims.size(); ++i) {
      const auto count = static_cast<int>(claims.size());
      threads_.emplace_back([this, &claim = claims[i], lead = kPeriod * static_cast<int>(i), period = kPeriod * count] { Run(claim, lead, period); });
    }
  }
  ~MoodyLoad() { Stop().IgnoreError(); }
  MoodyLoad(const MoodyLoad&) = delete;
  MoodyLoad& operator=(const MoodyLoad&) = delete;

  // The last failure; OK without one.
  absl::Status Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void Run(const ClaimReference& claim, milliseconds lead, milliseconds period) {
    auto next = std::chrono::steady_clock::now() + lead;
    for (bool prepared = false; !stopping_; next = std::max(next + period, std::chrono::steady_clock::now())) {
      std::this_thread::sleep_until(next);
      const absl::Status status = prepared ? client_.Unprepare({claim}) : client_.Prepare({claim});
      if (status.ok()) prepared = !prepared;
      const std::lock_guard lock(mutex_);
      if (!status.ok()) failure_ = status;
    }
  }

  const Client& client_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  absl::Status failure_;
  std::vector<std::thread> threads_;
};

struct Window {
  Measurement prepare;
  absl::Status moody;  // the last failure of the other's calls
};

class Pair {
 public:
  static absl::StatusOr<std::unique_ptr<Pair>> Start(const std::string& directory, int callers) {
    const std::string backends = directory + "/backends", mood = directory + "/mood";
    TRANCHE_RETURN_IF_ERROR(Install(backends));
    const NodeOptions options{
        .configuration = Configuration(mood), .drivers = 2, .backend_directory = backends, .arguments = {"--longest-restart-pause", kLongestPause}};
    TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<Node> node, Node::Start(directory + "/node", options));
    TRANCHE_ASSIGN_OR_RETURN(const std::string good, node->ServiceSocket(kGood));
    TRANCHE_ASSIGN_OR_RETURN(const std::string moody, node->ServiceSocket(kMoody));
    auto pair = std::unique_ptr<Pair>(new Pair(std::move(node), good, moody, mood));
    TRANCHE_ASSIGN_OR_RETURN(pair->good_claims_, pair->node_->WriteClaims("good", 1, ShareOf("good")));
    TRANCHE_ASSIGN_OR_RETURN(pair->moody_claims_, pair->node_->WriteClaims("moody", callers, ShareOf("moody")));
    TRANCHE_RETURN_IF_ERROR(pair->Watch(milliseconds(500)).status());  // caches and connections
    return pair;
  }

  // The good one's prepares, one after the other, each undone at once, while the other is called.
  absl::StatusOr<Window> Watch(milliseconds time) {
    MoodyLoad load(moody_, moody_claims_);
    std::vector<Microseconds> samples;
    for (const Deadline end = DeadlineIn(time); !Passed(end) || samples.empty();) {
      const auto start = std::chrono::steady_clock::now();
      TRANCHE_RETURN_IF_ERROR(good_.Prepare(good_claims_));
      samples.push_back(Since(start));
      TRANCHE_RETURN_IF_ERROR(good_.Unprepare(good_claims_));
    }
    return Window{Series("prepare", std::move(samples)), load.Stop()};
  }

  absl::StatusOr<Window> WatchWith(const Fault& fault) {
    TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(mood_, Cat("prepare ", fault.kind, "\n"), 0644, Durability::kVisible));
    absl::StatusOr<Window> window = Watch(fault.time());
    TRANCHE_RETURN_IF_ERROR(RemoveFile());
    if (fault.hangs) std::this_thread::sleep_for(kHangGrace);
    if (absl::Status recovered = Recover(); !recovered.ok()) return node_->Failed(Cat("after ", fault.kind, ": ", recovered.ToString()));
    return window;
  }

  absl::Status Stop() { return node_->Stop(); }

 private:
  Pair(std::unique_ptr<Node> node, const std::string& good, const std::string& moody, std::string mood)
      : mood_(std::move(mood)), node_(std::move(node)), good_(good), moody_(moody, kMoodyCallTime) {}

  absl::Status RemoveFile() const {
    std::error_code error;
    fs::remove(mood_, error);
    return error ? absl::UnavailableError(Cat("remove ", mood_, ": ", error.message())) : absl::OkStatus();
  }

  // As the kubelet: again, until every claim was prepared and is gone.
  absl::Status Recover() const {
    absl::Status status;
    for (const Deadline end = DeadlineIn(kRecovery); !Passed(end); std::this_thread::sleep_for(milliseconds(20))) {
      status = moody_.Unprepare(moody_claims_);
      if (status.ok()) status = moody_.Prepare(moody_claims_);
      if (status.ok()) status = moody_.Unprepare(moody_claims_);
      if (status.ok()) return status;
    }
    return status;
  }

  const std::string mood_;
  const std::unique_ptr<Node> node_;
  const Client good_, moody_;
  std::vector<ClaimReference> good_claims_, moody_claims_;
};

struct Ratios {
  std::vector<double> p50, p99;  // one a round
};

absl::Status MeasureFault(Pair& pair, const Fault& fault, Ratios& ratios, Ratios& baselines) {
  TRANCHE_ASSIGN_OR_RETURN(const Window well, pair.Watch(fault.time()));
  if (!well.moody.ok()) return Annotate(well.moody, Cat("moody_backend behaves before ", fault.kind, ", and yet"));
  TRANCHE_ASSIGN_OR_RETURN(const Window ill, pair.WatchWith(fault));
  if (fault.refuses && ill.moody.ok()) return absl::InternalError(Cat("no call of moody_backend failed with ", fault.kind));
  ratios.p50.push_back(ill.prepare.p50 / well.prepare.p50);
  ratios.p99.push_back(ill.prepare.p99 / well.prepare.p99);
  baselines.p50.push_back(well.prepare.p50);
  baselines.p99.push_back(well.prepare.p99);
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& NeighbourFaults() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> all;
    for (const Fault& fault : Faults()) all.push_back(fault.kind);
    return all;
  }();
  return kinds;
}

absl::StatusOr<std::vector<Measurement>> MeasureNeighbour(const std::string& directory, const NeighbourOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<Pair> pair, Pair::Start(directory + "/neighbour", options.callers));
  std::map<std::string, Ratios> ratios;
  Ratios baselines;
  const std::vector<std::string>& wanted = options.faults.empty() ? NeighbourFaults() : options.faults;
  for (int round = 0; round < options.rounds; ++round) {
    for (const Fault& fault : Faults()) {
      if (std::find(wanted.begin(), wanted.end(), fault.kind) == wanted.end()) continue;
      TRANCHE_RETURN_IF_ERROR(MeasureFault(*pair, fault, ratios[fault.kind], baselines));
    }
  }
  TRANCHE_RETURN_IF_ERROR(pair->Stop());
  std::vector<Measurement> report = {Rounds("neighbour_baseline_p50", "us", baselines.p50), Rounds("neighbour_baseline_p99", "us", baselines.p99)};
  for (const Fault& fault : Faults()) {
    if (!ratios.contains(fault.kind)) continue;
    report.push_back(Rounds(Cat("neighbour_p50_", fault.kind), "ratio", ratios[fault.kind].p50));
    report.back().bound = fault.p50;
    report.push_back(Rounds(Cat("neighbour_p99_", fault.kind), "ratio", ratios[fault.kind].p99));
    report.back().bound = fault.p99;
  }
  return report;
}

}  // namespace tranche::bench
