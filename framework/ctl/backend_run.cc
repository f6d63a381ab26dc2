#include "ctl/backend_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <thread>

#include <boost/json.hpp>

#include "base/files.h"
#include "base/quantity.h"
#include "base/status.h"
#include "base/text.h"
#include "ctl/backend_report.h"
#include "ctl/local_commands.h"
#include "ctl/show.h"
#include "ctl/target.h"
#include "model/json.h"

namespace tranche::ctl {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxConfigBytes = 1024 * 1024;
constexpr std::chrono::seconds kStartLimit{30}, kStopLimit{15};
constexpr std::string_view kModes[] = {"whole", "share", "partition"};

// A host of this command: tranched beside tranchectl, its words in a file.
class LocalHost {
 public:
  LocalHost(std::string directory, std::string backends) : directory_(std::move(directory)), backends_(std::move(backends)) {}
  ~LocalHost() { Stop(); }
  LocalHost(const LocalHost&) = delete;
  LocalHost& operator=(const LocalHost&) = delete;

  absl::Status Start() {
    std::error_code error;
    const std::string program = (fs::read_symlink("/proc/self/exe", error).parent_path() / "tranched").string();
    if (::access(program.c_str(), X_OK) != 0) return absl::NotFoundError(Cat(program, " is missing; install the host beside tranchectl"));
    pid_ = ::fork();
    if (pid_ < 0) return absl::ResourceExhaustedError("no process can be started");
    if (pid_ == 0) Run(program);
    Target target;
    target.directory = directory_;
    for (const auto end = std::chrono::steady_clock::now() + kStartLimit; std::chrono::steady_clock::now() < end;) {
      if (Ask(target, "status", json::object()).ok()) return absl::OkStatus();
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return absl::FailedPreconditionError(Cat("tranched does not serve; its last words:\n", LastWords()));
  }

  std::string Log() const { return ReadFile(log_path(), 64 * 1024 * 1024).value_or(""); }

  std::string LastWords() const {
    const std::string log = Log();
    return log.substr(log.size() > 2000 ? log.find('\n', log.size() - 2000) + 1 : 0);
  }

  void Stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    const auto end = std::chrono::steady_clock::now() + kStopLimit;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    pid_ = -1;
  }

 private:
  std::string log_path() const { return directory_ + "/tranched.log"; }

  [[noreturn]] void Run(const std::string& program) const {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int log = ::open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(log, 1);
    ::dup2(log, 2);
    const std::string config = directory_ + "/host.yaml";
    ::execl(program.c_str(), program.c_str(), "--local", directory_.c_str(), "--config", config.c_str(), "--backend-directory", backends_.c_str(),
            "--node-name", "trial", static_cast<char*>(nullptr));
    ::_exit(127);
  }

  const std::string directory_, backends_;
  pid_t pid_ = -1;
};

// Everything that a container edit may contain: this is the author's own machine.
json::object AllowAll() {
  json::array letters{"_"};
  for (char c = 'A'; c <= 'Z'; ++c) letters.emplace_back(std::string(1, c));
  for (char c = 'a'; c <= 'z'; ++c) letters.emplace_back(std::string(1, c));
  return {{"deviceNodes", json::array{"/"}}, {"mounts", json::array{"/"}}, {"hooks", json::array{"/"}}, {"env", std::move(letters)}, {"netDevices", true}};
}

// A host configuration; JSON is YAML.
std::string Configuration(const std::string& name, json::object config, bool in_process) {
  json::array offers, classes;
  for (const std::string_view mode : kModes) {
    offers.push_back(json::object{{"name", mode}, {"backend", "trial"}, {"mode", mode}});
    classes.push_back(json::object{{"name", mode}, {"offer", mode}});
  }
  std::string driver = name;
  std::replace(driver.begin(), driver.end(), '_', '-');
  const json::object backend{
      {"name", "trial"}, {"library", name}, {"isolation", in_process ? "in-process" : "process"}, {"config", std::move(config)}, {"allowEdits", AllowAll()}};
  return ToPrettyJson(json::object{
      {"apiVersion", "tranche.dev/v1alpha1"},
      {"kind", "HostConfiguration"},
      {"backends", json::array{backend}},
      {"drivers", json::array{json::object{{"name", Cat("d-", driver, ".tranche.local")}, {"offers", std::move(offers)}, {"classes", std::move(classes)}}}}});
}

// A quarter of what a share may be, so that there is room to see; the default where only certain amounts may be asked.
json::object Requests(const json::value& device) {
  json::object requests;
  for (const json::value& capacity : Items(device, "capacity")) {
    if (!Items(Member(capacity, "requestPolicy"), "validValues").empty()) continue;
    const absl::StatusOr<Quantity> free = Quantity::Parse(Text(capacity, "free"));
    if (!free.ok()) continue;
    const std::int64_t amount = free->CeilToInt64().value_or(0) / 4;
    if (amount > 0) requests[Text(capacity, "name")] = std::to_string(amount);
  }
  return requests;
}

std::string Claim(std::string_view mode, const json::value& device) {
  json::object exactly{{"deviceClassName", mode}};
  if (mode == "share") exactly["capacity"] = json::object{{"requests", Requests(device)}};
  return ToPrettyJson(json::object{
      {"apiVersion", "resource.k8s.io/v1"},
      {"kind", "ResourceClaim"},
      {"metadata", json::object{{"namespace", "trial"}, {"name", mode}}},
      {"spec", json::object{{"devices", json::object{{"requests", json::array{json::object{{"name", "device"}, {"exactly", std::move(exactly)}}}}}}}}});
}

// The limit in force as the backend reads it back, and what the container would get.
int ShowPrepared(const Target& target) {
  Filter filter;
  filter.verify = true;
  const int shown = ShowShares(target, Format::kTable, filter);
  if (const absl::StatusOr<json::value> shares = Ask(target, "shares", json::object()); shares.ok()) std::cout << EditsReport(*shares);
  return shown;
}

// One claim from its creation to its end.
int Serve(const Target& target, std::string_view mode, const json::value& device) {
  const std::string path = Cat(target.directory, "/claim-", mode, ".yaml");
  if (const absl::Status status = WriteFileAtomically(path, Claim(mode, device), 0600, Durability::kVisible); !status.ok()) return Fail(status);
  const std::vector<std::string> claims = {Cat("trial/", mode)};
  std::cout << "\n== a claim for a device of mode " << mode << "\n";
  int result = LocalApply(target, Format::kTable, {path});
  if (result == kSuccess) result = LocalAllocate(target, Format::kTable, claims);
  if (result == kSuccess) result = LocalPrepare(target, Format::kTable, claims);
  if (result == kSuccess) result = ShowPrepared(target);
  result = std::max(result, LocalUnprepare(target, Format::kTable, claims));
  return std::max(result, LocalDelete(target, Format::kTable, claims));
}

int Trial(const Target& target, const LocalHost& host) {
  const absl::StatusOr<json::value> answer = Ask(target, "devices", json::object());
  if (!answer.ok()) return Fail(answer.status());
  const absl::StatusOr<json::value> status = Ask(target, "status", json::object());
  if (!status.ok()) return Fail(status.status());
  std::cout << "== devices\n" << DevicesReport(*answer, *status, host.Log());
  int served = 0;
  for (const std::string_view mode : kModes) {
    for (const json::value& device : Items(*answer, "devices")) {
      if (Text(device, "mode") != mode) continue;
      if (const int result = Serve(target, mode, device); result != kSuccess) return result;
      ++served;
      break;
    }
  }
  if (served == 0) return Fail(absl::NotFoundError("no device is published; the table says why"));
  std::cout << "\n" << served << (served == 1 ? " claim" : " claims") << " served and released\n";
  return kSuccess;
}

absl::StatusOr<json::object> ReadConfig(const std::string& path) {
  if (path.empty()) return json::object();
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) return absl::InvalidArgumentError(Cat(path, " must hold a JSON object"));
  return value->get_object();
}

std::string NameOf(const fs::path& library) {
  std::string name = library.filename().string();
  for (const std::string_view suffix : {".backend.json", ".so"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

}  // namespace

int RunBackend(const RunOptions& options, Format) {
  std::error_code error;
  const fs::path library = fs::absolute(options.library, error);
  if (!fs::exists(library, error)) return Fail(absl::NotFoundError(Cat(options.library, " does not exist")));
  absl::StatusOr<json::object> config = ReadConfig(options.config);
  if (!config.ok()) return Fail(config.status());
  std::string directory = options.directory;
  if (directory.empty()) {
    directory = (fs::temp_directory_path(error) / "tranche-trial-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr) return Fail(absl::ErrnoToStatus(errno, "cannot make a temporary directory"));
  } else if (const absl::Status made = MakeDirectories(directory, 0700); !made.ok()) {
    return Fail(made);
  }
  Target target;
  target.directory = fs::absolute(directory, error).string();
  int result = kSuccess;
  const std::string text = Configuration(NameOf(library), *std::move(config), options.in_process);
  if (const absl::Status status = WriteFileAtomically(target.directory + "/host.yaml", text, 0600, Durability::kVisible); !status.ok()) {
    result = Fail(status);
  } else {
    LocalHost host(target.directory, library.parent_path().string());
    const absl::Status started = host.Start();
    result = started.ok() ? Trial(target, host) : Fail(started);
    host.Stop();
    const std::string problems = started.ok() && result != kSuccess ? ProblemsReport(host.Log()) : "";
    if (!problems.empty()) std::cerr << "warnings and errors of the host:\n" << problems;
  }
  if (options.directory.empty()) {
    fs::remove_all(directory, error);
  } else {
    std::cout << "configuration, claims and log: " << directory << "\n";
  }
  return result;
}

}  // namespace tranche::ctl
