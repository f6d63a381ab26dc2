// tranche-bench: measures this build on this machine and writes one JSON list. Needs root: it works in network and mount namespaces of its
// own. Exit code 0 when everything was measured, whatever the figures; 1 when something could not be; 2 for wrong usage.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <sys/vfs.h>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "bench/bench.h"
#include "support/network.h"
#include "support/process.h"

namespace tranche::bench {
namespace {

constexpr long kTmpfsMagic = 0x01021994;

// A directory for one run, removed with everything in it. Not on tmpfs: an fsync there costs nothing and says nothing.
class WorkDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<WorkDirectory>> Make(const std::string& parent) {
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(parent, 0755));
    struct statfs file_system {};
    if (statfs(parent.c_str(), &file_system) != 0) return absl::UnavailableError(Cat("\"", parent, "\": ", std::strerror(errno)));
    if (file_system.f_type == kTmpfsMagic) {
      return absl::FailedPreconditionError(Cat("\"", parent, "\" is on tmpfs, where fsync costs nothing; give --directory on a disk"));
    }
    std::string path = parent + "/node-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return absl::UnavailableError(Cat("mkdtemp \"", path, "\": ", std::strerror(errno)));
    return std::unique_ptr<WorkDirectory>(new WorkDirectory(path));
  }
  ~WorkDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit WorkDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

constexpr char kHost[] = "host", kNeighbour[] = "neighbour";

struct Options {
  std::string output, directory;
  std::string only;  // one of the two parts; both when empty
  Sizes sizes;
  NeighbourOptions neighbour;

  bool Wants(const std::string& part) const { return only.empty() || only == part; }
};

using Part = std::function<absl::StatusOr<std::vector<Measurement>>()>;

absl::Status Add(const Part& part, std::vector<Measurement>& report) {
  const absl::StatusOr<std::vector<Measurement>> lines = part();
  if (!lines.ok()) return lines.status();
  report.insert(report.end(), lines->begin(), lines->end());
  return absl::OkStatus();
}

// What was measured until the first failure is reported all the same.
absl::Status Measure(const std::string& directory, const Options& options, std::vector<Measurement>& report) {
  if (options.Wants(kHost)) {
    TRANCHE_RETURN_IF_ERROR(Add([&] { return MeasureHost(directory, options.sizes); }, report));
    TRANCHE_RETURN_IF_ERROR(Add([&] { return MeasureBackend(directory, options.sizes); }, report));
    TRANCHE_RETURN_IF_ERROR(Add([&] { return MeasureKernel(options.sizes); }, report));
    TRANCHE_ASSIGN_OR_RETURN(const Measurement ratio, PrepareBoundRatio(report));
    report.push_back(ratio);
  }
  if (options.Wants(kNeighbour)) TRANCHE_RETURN_IF_ERROR(Add([&] { return MeasureNeighbour(directory, options.neighbour); }, report));
  return absl::OkStatus();
}

std::string Verdict(const Options& options, const std::vector<Measurement>& report) {
  if (options.Wants(kHost) && !IsConsistent(report)) return "UNSTABLE: prepare_1 took less than its two commits; run again on a quiet machine";
  std::string missed;
  for (const Measurement& line : report) {
    if (!line.Keeps()) Append(missed, missed.empty() ? "" : ", ", line.name);
  }
  return missed.empty() ? "PASS: every bound is kept" : Cat("FAIL: above their bounds: ", missed);
}

absl::Status Run(const Options& options) {
  if (!test::EnterPrivateNetwork()) return absl::PermissionDeniedError("network and mount namespaces of its own need root: run as root");
  if (!test::MakeUplink()) return absl::UnavailableError("the uplink up0 could not be made: check that `ip` and `nsenter` work");
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<WorkDirectory> directory, WorkDirectory::Make(std::filesystem::absolute(options.directory)));
  std::vector<Measurement> report;
  const absl::Status status = Measure(directory->path(), options, report);
  std::cout << ToTable(report);
  if (status.ok()) std::cout << Verdict(options, report) << "\n";
  if (!options.output.empty()) TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(options.output, ToJson(report), 0644, Durability::kVisible));
  return status;
}

}  // namespace
}  // namespace tranche::bench

int main(int argc, char** argv) {
  tranche::bench::Options options;
  tranche::bench::Sizes& sizes = options.sizes;
  options.directory = std::filesystem::path(tranche::test::BackendDirectory()).parent_path().parent_path() / "bench";
  CLI::App application("Measures the host of this build on this machine");
  application.add_option("--output", options.output, "JSON file to write");
  application.add_option("--directory", options.directory, "where the state of the run lies; not on tmpfs")->capture_default_str();
  application.add_option("--claims", sizes.claims, "claims per number of calls in flight")->capture_default_str()->check(CLI::Range(1, 3000));
  application.add_option("--shares", sizes.shares, "shares prepared at once on one parent")->capture_default_str()->check(CLI::Range(1, 3000));
  application.add_option("--drained", sizes.drained, "of these, how many one call unprepares")->capture_default_str()->check(CLI::Range(1, 3000));
  application.add_option("--only", options.only, "one part alone: host or neighbour [both]")
      ->check(CLI::IsMember({tranche::bench::kHost, tranche::bench::kNeighbour}));
  application.add_option("--rounds", options.neighbour.rounds, "rounds of the neighbour's part")->capture_default_str()->check(CLI::Range(1, 100));
  application.add_option("--callers", options.neighbour.callers, "of the neighbour's part, calls of the faulty backend at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  application.add_option("--fault", options.neighbour.faults, "of the neighbour's part, this fault alone; may be repeated [all]")
      ->check(CLI::IsMember(tranche::bench::NeighbourFaults()));
  try {
    application.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return application.exit(error) == 0 ? 0 : 2; }
  if (sizes.drained > sizes.shares) {
    std::cerr << "tranche-bench: --drained " << sizes.drained << " is more than --shares " << sizes.shares << "\n";
    return 2;
  }
  const absl::Status status = tranche::bench::Run(options);
  if (status.ok()) return 0;
  std::cerr << "tranche-bench: " << status << "\n";
  return 1;
}
