#include "host/backend_pool.h"

#include <algorithm>
#include <utility>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "backend/in_process.h"
#include "backend/runner_backend.h"
#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kFirstRetry{1};
constexpr std::chrono::seconds kLastRetry{60};
constexpr std::chrono::seconds kCreateTimeout{30};
constexpr std::size_t kMaxSavedBytes = 1024 * 1024;

std::chrono::milliseconds BackOff(int failures) { return std::min<std::chrono::milliseconds>(kFirstRetry * (1 << std::min(failures, 10)), kLastRetry); }

bool SameInstance(const config::BackendConfiguration& left, const config::BackendConfiguration& right) {
  return left.library == right.library && left.config == right.config && left.isolation == right.isolation;
}

}  // namespace

std::string_view BackendStateName(BackendState state) {
  switch (state) {
    case BackendState::kServing: return "serving";
    case BackendState::kRefused: return "refused";
    case BackendState::kRetained: return "retained";
  }
  return "refused";
}

BackendPool::BackendPool(Options options) : options_(std::move(options)), loader_(options_.backend_directory) {}

absl::StatusOr<BackendPool::Created> BackendPool::Create(const config::BackendConfiguration& configuration) {
  const backend::CreateOptions options{.name = configuration.name,
                                       .config = configuration.config,
                                       .runtime_directory = options_.runtime_directory + "/" + configuration.name,
                                       .timeout = kCreateTimeout,
                                       .limits = {}};
  return configuration.isolation == config::Isolation::kProcess ? CreateProcess(configuration, options) : CreateInProcess(configuration, options);
}

absl::StatusOr<BackendPool::Created> BackendPool::CreateInProcess(const config::BackendConfiguration& configuration, const backend::CreateOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(const std::shared_ptr<const backend::LoadedLibrary> library, loader_.Load(configuration.library));
  TRANCHE_ASSIGN_OR_RETURN(std::shared_ptr<backend::Backend> instance, backend::CreateBackend(*library, options, options_.events(configuration.name)));
  return Created{.instance = std::move(instance), .version = library->version, .sha256 = {}, .files = {}};
}

absl::StatusOr<BackendPool::Created> BackendPool::CreateProcess(const config::BackendConfiguration& configuration, const backend::CreateOptions& options) {
  if (options_.runner.empty() || ::access(options_.runner.c_str(), X_OK) != 0) {
    return absl::FailedPreconditionError(Cat("backend ", configuration.name, " wants a process of its own (isolation: process), and ",
                                             options_.runner.empty() ? "tranche-runner" : options_.runner,
                                             " is not there to run it: install it beside tranched or name it with --runner, or set isolation: in-process"));
  }
  std::string files = LookOfFiles(configuration.library);  // before it is read: a change while it is read is seen later
  TRANCHE_ASSIGN_OR_RETURN(const backend::CheckedLibrary library, loader_.Check(configuration.library));
  backend::RunnerOptions runner;
  runner.program = options_.runner;
  runner.copies_directory = CopiesDirectory();
  runner.last_back_off = options_.longest_pause;
  TRANCHE_ASSIGN_OR_RETURN(std::shared_ptr<backend::Backend> instance,
                           backend::CreateRunnerBackend(library, options, runner, options_.events(configuration.name)));
  const std::optional<backend::ProcessStatus> process = instance->Process();
  std::string version = process.has_value() ? process->version : library.manifest.version;
  return Created{.instance = std::move(instance), .version = std::move(version), .sha256 = library.manifest.sha256, .files = std::move(files)};
}

// Beside the sockets, unless nothing may be executed there, as on many a /run.
std::string BackendPool::CopiesDirectory() const {
  struct statvfs place {};
  const bool executable = ::statvfs(options_.runtime_directory.c_str(), &place) != 0 || (place.f_flag & ST_NOEXEC) == 0;
  return (executable ? options_.runtime_directory : options_.saved_directory) + "/libraries";
}

// Changes with every replacement of the library or its manifest.
std::string BackendPool::LookOfFiles(const std::string& library) const {
  std::string look;
  for (const char* suffix : {".so", ".backend.json"}) {
    struct stat file {};
    if (::stat(Cat(options_.backend_directory, "/", library, suffix).c_str(), &file) != 0) {
      Append(look, "absent;");
      continue;
    }
    Append(look, file.st_dev, " ", file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec, ";");
  }
  return look;
}

void BackendPool::Save(const config::BackendConfiguration& configuration) const {
  const json::object saved{{"library", configuration.library},
                           {"config", configuration.config},
                           {"isolation", configuration.isolation == config::Isolation::kProcess ? "process" : "in-process"}};
  const std::string text = ToPrettyJson(saved);
  if (const absl::StatusOr<std::string> before = ReadFile(SavedPath(configuration.name), kMaxSavedBytes); before.ok() && *before == text) return;
  const absl::Status status = WriteFileAtomically(SavedPath(configuration.name), text, 0600, Durability::kDurable);
  if (!status.ok()) {
    LogWarning("a backend's configuration was not saved; its shares need this configuration to be released after a restart",
               {{"backend", configuration.name}, {"reason", std::string(status.message())}});
  }
}

BackendPool::Entry BackendPool::Refused(const config::BackendConfiguration& configuration, const absl::Status& why, int failures) {
  Entry entry;
  entry.configuration = configuration;
  entry.problem = why;
  entry.failures = failures + 1;
  entry.retry_at = DeadlineIn(BackOff(failures));
  LogError("backend refused; the others serve", {{"backend", configuration.name}, {"reason", std::string(why.message())}});
  return entry;
}

// The backend as it was last created, to release what it prepared.
BackendPool::Entry BackendPool::Restore(const std::string& name, const absl::Status& why) {
  config::BackendConfiguration configuration;
  configuration.name = name;
  const absl::StatusOr<std::string> text = ReadFile(SavedPath(name), kMaxSavedBytes);
  if (!text.ok()) return Refused(configuration, text.status(), 0);
  const absl::StatusOr<json::value> saved = ParseJson(*text);
  const json::object* fields = saved.ok() ? saved->if_object() : nullptr;
  const json::value* library = fields == nullptr ? nullptr : fields->if_contains("library");
  const json::value* config = fields == nullptr ? nullptr : fields->if_contains("config");
  if (library == nullptr || config == nullptr || !library->is_string() || !config->is_string()) {
    return Refused(configuration, absl::DataLossError(Cat(SavedPath(name), " does not say how backend ", name, " was created")), 0);
  }
  configuration.library = library->get_string().c_str();
  configuration.config = config->get_string().c_str();
  const json::value* isolation = fields->if_contains("isolation");
  if (isolation != nullptr && *isolation == json::value("in-process")) configuration.isolation = config::Isolation::kInProcess;
  absl::StatusOr<Created> created = Create(configuration);
  if (!created.ok()) return Refused(configuration, created.status(), 0);
  Entry entry;
  entry.configuration = std::move(configuration);
  entry.state = BackendState::kRetained;
  entry.created = *std::move(created);
  entry.problem = why;
  LogWarning("backend is retained for the shares it prepared", {{"backend", name}, {"reason", std::string(why.message())}});
  return entry;
}

std::optional<BackendPool::Entry> BackendPool::Known(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<BackendPool::Entry> BackendPool::Next(const config::BackendConfiguration& configuration, bool in_use) {
  std::optional<Entry> known = Known(configuration.name);
  const bool lives = known.has_value() && known->created.instance != nullptr;
  if (lives && known->failures == 0 && SameInstance(known->configuration, configuration)) {
    known->configuration = configuration;
    known->configured = true;
    if (known->state == BackendState::kRetained) known->problem = absl::OkStatus();
    known->state = BackendState::kServing;
    return *std::move(known);
  }
  absl::StatusOr<Created> created = Create(configuration);
  if (!created.ok() && lives && known->state == BackendState::kServing) {
    return Annotate(created.status(), Cat("backend ", configuration.name, " (line ", configuration.line, ") cannot serve with the changed configuration"));
  }
  if (!created.ok()) {
    if (!in_use) return Refused(configuration, created.status(), 0);
    Entry retained = lives ? *std::move(known) : Restore(configuration.name, created.status());
    retained.problem = created.status();
    retained.configured = true;
    // What is wanted is tried again; until then the old instance releases shares.
    retained.configuration = configuration;
    retained.failures = 1;
    retained.retry_at = DeadlineIn(BackOff(0));
    return retained;
  }
  Entry entry;
  entry.configuration = configuration;
  entry.state = BackendState::kServing;
  entry.created = *std::move(created);
  return entry;
}

absl::StatusOr<std::vector<std::string>> BackendPool::Configure(const std::vector<config::BackendConfiguration>& backends,
                                                                const std::set<std::string>& in_use) {
  std::map<std::string, Entry> next;
  std::vector<std::string> fresh;
  for (const config::BackendConfiguration& configuration : backends) {
    TRANCHE_ASSIGN_OR_RETURN(Entry entry, Next(configuration, in_use.contains(configuration.name)));
    if (entry.created.instance != nullptr && entry.created.instance != Find(configuration.name)) fresh.push_back(configuration.name);
    next[configuration.name] = std::move(entry);
  }
  for (const std::string& name : in_use) {
    if (next.contains(name)) continue;
    const absl::Status why = absl::FailedPreconditionError("the configuration no longer has it; it stays until its last share ends");
    std::optional<Entry> known = Known(name);
    Entry entry = known.has_value() && known->created.instance != nullptr ? *std::move(known) : Restore(name, why);
    if (entry.created.instance != nullptr) entry.state = BackendState::kRetained;
    if (entry.created.instance != nullptr) entry.problem = why;
    entry.configured = false;
    next[name] = std::move(entry);
  }
  {
    const std::lock_guard lock(mutex_);
    entries_.swap(next);
  }
  for (const config::BackendConfiguration& configuration : backends) {
    const std::optional<Entry> entry = Known(configuration.name);
    if (entry->state == BackendState::kServing) Save(configuration);
  }
  return fresh;  // `next` holds what was replaced: destroyed here, outside the lock
}

std::vector<std::string> BackendPool::Retry() {
  std::vector<std::pair<std::string, Entry>> due;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry.failures > 0 && Passed(entry.retry_at)) due.emplace_back(name, entry);
    }
  }
  std::vector<std::string> serving;
  for (auto& [name, entry] : due) {
    absl::StatusOr<Created> created = Create(entry.configuration);
    if (created.ok()) {
      entry.state = entry.configured ? BackendState::kServing : BackendState::kRetained;
      entry.created = *std::move(created);
      entry.previous = {};
      entry.problem = entry.not_replaced = absl::OkStatus();
      entry.failures = 0;
      serving.push_back(name);
      Save(entry.configuration);
      LogInfo("backend serves now", {{"backend", name}});
    } else {
      entry.problem = created.status();
      entry.retry_at = DeadlineIn(BackOff(entry.failures++));
    }
    const std::lock_guard lock(mutex_);
    std::swap(entries_[name], entry);  // what was replaced ends with `due`, outside the lock
  }
  return serving;
}

std::optional<std::chrono::milliseconds> BackendPool::UntilRetry() const {
  const std::lock_guard lock(mutex_);
  std::optional<std::chrono::milliseconds> until;
  for (const auto& [name, entry] : entries_) {
    if (entry.failures == 0) continue;
    const auto left =
        std::max(std::chrono::milliseconds(0), std::chrono::duration_cast<std::chrono::milliseconds>(entry.retry_at - std::chrono::steady_clock::now()));
    until = until.has_value() ? std::min(*until, left) : left;
  }
  return until;
}

void BackendPool::ReleaseUnused(const std::set<std::string>& in_use) {
  std::vector<Entry> released;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->second.configured || in_use.contains(entry->first)) {
      ++entry;
      continue;
    }
    RemoveFile(SavedPath(entry->first)).IgnoreError();  // a leftover only costs a look at the next start
    LogInfo("backend released: its last share ended", {{"backend", entry->first}});
    released.push_back(std::move(entry->second));
    entry = entries_.erase(entry);
  }
}

bool BackendPool::HasRetained() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) { return !entry.second.configured; });
}

absl::StatusOr<PhysicalDevices> BackendPool::Discover(const std::string& name, Deadline deadline) {
  const std::optional<Entry> entry = Known(name);
  if (!entry.has_value() || entry->state != BackendState::kServing) return absl::NotFoundError(Cat("backend ", name, " does not serve"));
  absl::StatusOr<std::vector<PhysicalDevice>> discovered = entry->created.instance->Discover(deadline);
  const absl::Status status = discovered.status();
  const PhysicalDevices devices = status.ok() ? std::make_shared<const std::vector<PhysicalDevice>>(*std::move(discovered)) : nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end() && found->second.created.instance == entry->created.instance) {
    found->second.problem = status;
    if (status.ok()) found->second.devices = devices;
  }
  if (!status.ok()) return status;
  return devices;
}

absl::Status BackendPool::Availability(const std::string& name) const {
  const std::shared_ptr<backend::Backend> instance = Find(name);
  if (instance == nullptr) return absl::UnavailableError(Cat("backend ", name, " does not serve"));
  return instance->Availability();
}

std::shared_ptr<backend::Backend> BackendPool::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.created.instance;
}

std::vector<std::string> BackendPool::Serving() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.state == BackendState::kServing) names.push_back(name);
  }
  return names;
}

std::vector<BackendStatus> BackendPool::Statuses() const {
  const std::lock_guard lock(mutex_);
  std::vector<BackendStatus> statuses;
  for (const auto& [name, entry] : entries_) {
    BackendStatus status{.name = name,
                         .library = entry.configuration.library,
                         .version = entry.created.version,
                         .state = entry.state,
                         .configured = entry.configured,
                         .requested_isolation = entry.configuration.isolation,
                         .process = {},
                         .available = absl::OkStatus(),
                         .problem = entry.problem,
                         .retry_at = std::nullopt,
                         .devices = entry.devices,
                         .prepare = entry.created.instance == nullptr ? backend::CallTimes{} : entry.created.instance->PrepareTimes(),
                         .metrics = entry.created.instance == nullptr ? std::map<std::string, std::int64_t>{} : entry.created.instance->Metrics()};
    if (entry.created.instance != nullptr) {
      status.process = entry.created.instance->Process();
      status.available = entry.created.instance->Availability();
      if (!status.available.ok()) status.problem = status.available;
    }
    if (status.problem.ok()) status.problem = entry.not_replaced;
    if (entry.failures > 0) {
      status.retry_at =
          std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(entry.retry_at - std::chrono::steady_clock::now());
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

}  // namespace tranche::host
