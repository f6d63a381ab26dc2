#include "local/runtime.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <boost/json.hpp>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "cdi/cdi.h"
#include "local/subprocess.h"
#include "model/json.h"

namespace tranche::local {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxSpecBytes = 1024 * 1024;
// OCI leaves a hook without a timeout unbounded; a player must not hang.
constexpr std::chrono::seconds kDefaultHookTime{30};

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string NamespacePath(const std::string& netns) { return IsNumber(netns) ? Cat("/proc/", netns, "/ns/net") : netns; }

// A child process in a network namespace that waits to be killed, as a created container's first process does.
class Holder {
 public:
  static absl::StatusOr<std::unique_ptr<Holder>> Start(const std::string& netns) {
    const std::string path = NamespacePath(netns);
    const int target = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (target < 0) return absl::ErrnoToStatus(errno, Cat("cannot open network namespace \"", path, "\""));
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      const int error = errno;
      close(target);
      return absl::ErrnoToStatus(error, "cannot make a pipe");
    }
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) Hold(target, ends[1], parent);
    const int fork_error = errno;
    close(target);
    close(ends[1]);
    const int error = pid < 0 ? fork_error : ReadError(ends[0]);
    close(ends[0]);
    std::unique_ptr<Holder> holder(new Holder(pid));
    if (error != 0) return absl::ErrnoToStatus(error, Cat("cannot enter network namespace \"", path, "\""));
    return holder;
  }

  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
  }
  pid_t pid() const { return pid_; }

 private:
  explicit Holder(pid_t pid) : pid_(pid) {}

  // Runs in the child of a possibly threaded process: async-signal-safe calls only.
  [[noreturn]] static void Hold(int target, int report, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int error = setns(target, CLONE_NEWNET) == 0 ? 0 : errno;
    if (getppid() != parent) error = ESRCH;
    // Nothing inherited stays open here, least of all another thread's file lock.
    constexpr int kReport = 3;
    dup2(report, kReport);
    close_range(kReport + 1, ~0U, 0);
    if (write(kReport, &error, sizeof error) != static_cast<ssize_t>(sizeof error) || error != 0) _exit(1);
    for (;;) pause();
  }

  static int ReadError(int fd) {
    int error = 0;
    ssize_t count = 0;
    do { count = read(fd, &error, sizeof error); } while (count < 0 && errno == EINTR);
    return count == static_cast<ssize_t>(sizeof error) ? error : ECHILD;
  }

  const pid_t pid_;
};

// "vendor/class=name" → kind and name.
absl::StatusOr<std::pair<std::string, std::string>> SplitId(const std::string& id) {
  const std::size_t separator = id.find('=');
  if (separator == std::string::npos || separator == 0 || separator + 1 == id.size()) {
    return absl::InvalidArgumentError(Cat("\"", id, "\" is not a CDI device id (vendor/class=name)"));
  }
  return std::make_pair(id.substr(0, separator), id.substr(separator + 1));
}

absl::StatusOr<std::map<std::string, ContainerEdits>> ReadSpecs(const std::string& cdi_directory) {
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(cdi_directory));
  std::map<std::string, ContainerEdits> edits;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, ".") || !absl::EndsWith(name, ".json")) continue;
    const std::string path = Cat(cdi_directory, "/", name);
    const absl::StatusOr<std::string> text = ReadFile(path, kMaxSpecBytes);
    if (absl::IsNotFound(text.status())) continue;  // released meanwhile
    if (!text.ok()) return text.status();
    const absl::StatusOr<cdi::Spec> spec = cdi::DecodeSpec(*text);
    if (!spec.ok()) continue;  // a runtime ignores a bad file too; a device that is needed is reported as missing
    for (const cdi::Device& device : spec->devices) edits.emplace(Cat(spec->kind, "=", device.name), device.edits);
  }
  return edits;
}

std::string OciState(const Claim& claim, const std::string& bundle, pid_t pid) {
  return json::serialize(json::object{{"ociVersion", "1.0.2"},
                                      {"id", Cat("tranche-local-", claim.uid)},
                                      {"status", "creating"},
                                      {"pid", pid},
                                      {"bundle", bundle},
                                      {"annotations", json::object{}}});
}

absl::Status RunHook(const Hook& hook, const std::string& state) {
  Command command{hook.path, hook.args, hook.env, state, kDefaultHookTime};
  if (command.arguments.empty()) command.arguments = {hook.path};
  if (hook.timeout_seconds.has_value()) command.timeout = std::chrono::seconds(std::clamp<std::int64_t>(*hook.timeout_seconds, 1, 600));
  TRANCHE_ASSIGN_OR_RETURN(const Outcome outcome, RunCommand(command));
  if (outcome.timed_out) {
    return absl::DeadlineExceededError(Cat("hook ", hook.path, " did not end within ", command.timeout.count(), " ms: ", outcome.error_output));
  }
  if (outcome.exit_code == 0) return absl::OkStatus();
  std::string words = outcome.error_output;
  absl::StripTrailingAsciiWhitespace(&words);
  return absl::FailedPreconditionError(Cat("hook ", hook.path, " failed with exit code ", outcome.exit_code, words.empty() ? "" : ": ", words));
}

std::vector<std::string> DeviceIds(const PreparedClaim& prepared) {
  std::vector<std::string> ids;
  for (const PreparedByDriver& driver : prepared.drivers) {
    for (const claims::PreparedDevice& device : driver.devices) ids.insert(ids.end(), device.cdi_device_ids.begin(), device.cdi_device_ids.end());
  }
  // A device that serves several requests is listed for each.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<ContainerEdits>> ResolveCdiDevices(const std::string& cdi_directory, const std::vector<std::string>& ids) {
  TRANCHE_ASSIGN_OR_RETURN(const auto specs, ReadSpecs(cdi_directory));
  std::vector<ContainerEdits> edits;
  for (const std::string& id : ids) {
    TRANCHE_RETURN_IF_ERROR(SplitId(id).status());
    const auto found = specs.find(id);
    if (found == specs.end()) {
      return absl::NotFoundError(Cat("CDI device \"", id, "\" is in no specification of \"", cdi_directory, "\": prepare the claim again"));
    }
    edits.push_back(found->second);
  }
  return edits;
}

absl::StatusOr<Attachment> Runtime::Attach(const std::string& namespace_name, const std::string& claim_name, const std::string& netns) const {
  TRANCHE_ASSIGN_OR_RETURN(const PreparedClaim prepared, Kubelet(directory_).FindPrepared(namespace_name, claim_name));
  TRANCHE_ASSIGN_OR_RETURN(const Claim claim, directory_.ReadClaim(namespace_name, claim_name));
  Attachment attachment;
  attachment.cdi_device_ids = DeviceIds(prepared);
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<ContainerEdits> edits, ResolveCdiDevices(directory_.cdi(), attachment.cdi_device_ids));
  TRANCHE_ASSIGN_OR_RETURN(const std::unique_ptr<Holder> holder, Holder::Start(netns));
  const std::string state = OciState(claim, directory_.run(), holder->pid());
  for (const ContainerEdits& edit : edits) {
    attachment.environment.insert(attachment.environment.end(), edit.env.begin(), edit.env.end());
    for (const Hook& hook : edit.hooks) {
      if (hook.hook_name != "createRuntime") continue;
      const absl::Status status = RunHook(hook, state);
      if (!status.ok()) return Annotate(status, Cat("claim ", namespace_name, "/", claim_name, " cannot be attached to ", netns));
      attachment.hooks.push_back(hook.path);
    }
  }
  return attachment;
}

}  // namespace tranche::local
