#include "host/host.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "dra/socket.h"
#include "host/control_plane.h"
#include "host/methods.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

constexpr std::chrono::seconds kReconcileDeadline{30};
constexpr std::chrono::seconds kDiscoverDeadline{20};
constexpr std::chrono::seconds kPollInterval{5};
constexpr std::chrono::seconds kTrialInterval{1};
constexpr std::chrono::seconds kServerRetry{5};
constexpr std::chrono::milliseconds kLostShareRetry{1000};
constexpr int kLostShareAttempts = 5;
constexpr std::size_t kMaxConfigurationBytes = 1024 * 1024;

std::string VersionOf(const std::string& text) { return Cat("sha256:", Sha256Hex(text)); }

std::set<std::string> DriverNames(const config::HostConfiguration& configuration) {
  std::set<std::string> names;
  for (const config::DriverConfiguration& driver : configuration.drivers) names.insert(driver.name);
  return names;
}

std::string BesideThisProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : (program.parent_path() / name).string();
}

}  // namespace

Host::Host(Options options)
    : options_(std::move(options)),
      inventory_(options_.node_name, [this] { return claims_ == nullptr ? std::vector<inventory::HeldOffer>() : claims_->HeldOffers(); }) {
  configuration_status_.file = options_.config;
}

absl::StatusOr<std::unique_ptr<Host>> Host::Start(Options options) {
  TRANCHE_RETURN_IF_ERROR(SetLogLevel(options.log_level));
  std::unique_ptr<Host> host(new Host(std::move(options)));
  TRANCHE_RETURN_IF_ERROR(host->Initialise());
  return host;
}

absl::Status Host::Initialise() {
  // Before anything is touched: a wrong file must leave no trace.
  TRANCHE_ASSIGN_OR_RETURN(const std::string text, ReadConfigurationText());
  TRANCHE_ASSIGN_OR_RETURN(const config::HostConfiguration configuration, config::ParseConfiguration(text, options_.config));
  TRANCHE_RETURN_IF_ERROR(CheckSockets(DriverNames(configuration)));
  TRANCHE_RETURN_IF_ERROR(OpenState());
  TRANCHE_RETURN_IF_ERROR(Apply(text));
  // Before the comparison with the kernel, which grows with what is prepared: the store and the claims' locks keep both apart.
  TRANCHE_RETURN_IF_ERROR(UpdateServers(DriverNames(inventory_.Current()->configuration), ReadInUse().drivers));
  RecordApplied(VersionOf(text));
  // By a host that serves, and not before every backend was asked once: a restart must not take away for a moment what is published.
  publishing_ = true;
  Publish();
  if (const auto repairs = Reconcile(""); !repairs.ok()) {
    LogWarning("not everything could be compared with the kernel at start; it is tried again", {{"reason", std::string(repairs.status().message())}});
  }
  return StartServing();
}

// A host that cannot serve must not publish: pods would be sent to it.
absl::Status Host::CheckSockets(const std::set<std::string>& drivers) const {
  for (const std::string& driver : drivers) {
    TRANCHE_RETURN_IF_ERROR(dra::ServiceSocketPath(options_.plugin_directory, driver, options_.instance).status());
    TRANCHE_RETURN_IF_ERROR(dra::RegistrationSocketPath(options_.registry_directory, driver, options_.instance).status());
  }
  return admin::AdminServer::CheckPath(AdminSocket());
}

std::string Host::AdminSocket() const {
  const std::string name = options_.instance.empty() ? "admin.sock" : Cat("admin-", options_.instance, ".sock");
  return Cat(options_.runtime_directory, "/", name);
}

absl::Status Host::OpenState() {
  TRANCHE_ASSIGN_OR_RETURN(plane_, options_.local.empty() ? MakeClusterControlPlane(options_) : MakeLocalControlPlane(options_));
  for (const std::string& path : {options_.state_directory, options_.state_directory + "/backends", options_.runtime_directory,
                                  options_.runtime_directory + "/backends", options_.plugin_directory, options_.registry_directory, options_.cdi_directory}) {
    TRANCHE_RETURN_IF_ERROR(MakeDirectories(path, 0750));
  }
  const std::string database = options_.state_directory + "/tranche.db";
  TRANCHE_ASSIGN_OR_RETURN(lock_, HostLock::Acquire(database + ".host"));
  TRANCHE_ASSIGN_OR_RETURN(store_, store::Store::Open(database, store::OpenMode::kReadWrite));
  pool_ = std::make_unique<BackendPool>(BackendPool::Options{.backend_directory = options_.backend_directory,
                                                             .runtime_directory = options_.runtime_directory + "/backends",
                                                             .saved_directory = options_.state_directory + "/backends",
                                                             .events = [this](const std::string& name) { return EventsOf(name); },
                                                             .runner = options_.runner.empty() ? BesideThisProgram("tranche-runner") : options_.runner,
                                                             .trial = options_.trial,
                                                             .longest_pause = options_.longest_pause});
  claims_ = std::make_unique<claims::Claims>(claims::Dependencies{.store = *store_,
                                                                  .inventory = inventory_,
                                                                  .reader = plane_->claim_reader(),
                                                                  .backend = [this](const std::string& name) { return pool_->Find(name); },
                                                                  .cdi_directory = options_.cdi_directory,
                                                                  .sole_host = [this] { return lock_->Alone(); },
                                                                  .observer = plane_->observer()});
  inventory_.OnChange([this] { Publish(); });
  return absl::OkStatus();
}

absl::Status Host::StartServing() {
  TRANCHE_ASSIGN_OR_RETURN(admin_, admin::AdminServer::Start({.path = AdminSocket(), .methods = MakeMethods(*this)}));
  watcher_ = std::make_unique<ConfigWatcher>(options_.config, kPollInterval, [this] { changes_.Post("configuration", [this] { Reload(false); }); });
  changes_.Post("lengthen-log", [this] {
    if (const absl::Status status = store_->LengthenLog(); !status.ok()) {
      LogWarning("the store's log was not lengthened; commits are slower until it has grown", {{"reason", std::string(status.message())}});
    }
  });
  // A change between the first read and the watch.
  changes_.Post("configuration", [this] { Reload(false); });
  PostRetry();
  PostRefresh(kPollInterval);
  PostPeriodicReconcile();
  PostPeriodicVerification();
  LogInfo("serving", {{"node", options_.node_name}, {"drivers", Cat(drivers().size())}, {"devices", Cat(inventory_.Current()->devices.size())}});
  return absl::OkStatus();
}

Host::~Host() {
  watcher_.reset();
  if (plane_ != nullptr) plane_->Stop();
  std::map<std::string, Driver> drivers;
  {
    const std::lock_guard lock(mutex_);
    drivers.swap(drivers_);
  }
  drivers.clear();  // registration goes, calls in flight end
  admin_.reset();
  changes_.Stop();
  events_.Stop();
  claims_.reset();
  pool_.reset();
}

// ---- Configuration

absl::StatusOr<std::string> Host::ReadConfigurationText() const {
  // A pipe would hold the thread that reads it for ever.
  std::error_code error;
  const std::filesystem::file_status file = std::filesystem::status(options_.config, error);
  if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file)) {
    return absl::InvalidArgumentError(Cat("the configuration cannot be read: ", options_.config, " is not a regular file; put the YAML file there"));
  }
  absl::StatusOr<std::string> text = ReadFile(options_.config, kMaxConfigurationBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(Cat("the configuration cannot be read: ", View(text.status().message())));
}

absl::Status Host::Apply(const std::string& text) {
  TRANCHE_ASSIGN_OR_RETURN(const config::HostConfiguration configuration, config::ParseConfiguration(text, options_.config));
  const InUse in_use = ReadInUse();
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<std::string> fresh, pool_->Configure(configuration.backends, in_use.backends));
  inventory_.SetConfiguration(configuration);
  for (const std::string& backend : pool_->Serving()) Discover(backend);
  for (const std::string& backend : fresh) PostReconcile(backend, std::chrono::milliseconds(0), 1);
  return absl::OkStatus();
}

void Host::Reload(bool again) {
  absl::StatusOr<std::string> text = ReadConfigurationText();
  // A file that cannot be read at this moment may be about to be replaced; its absence is reported like a wrong one.
  const std::string version = text.ok() ? VersionOf(*text) : Cat("unreadable: ", View(text.status().message()));
  {
    const std::lock_guard lock(mutex_);
    if (version == configuration_status_.version) {
      configuration_status_.last_error.clear();
      refused_version_.clear();
      return;
    }
    if (version == refused_version_ && !again) return;
  }
  absl::Status applied = text.status();
  if (applied.ok()) applied = Apply(*text);
  if (!applied.ok()) {
    RecordRefused(version, applied);
    return;
  }
  RecordApplied(version);
  const absl::Status served = UpdateServers(DriverNames(inventory_.Current()->configuration), ReadInUse().drivers);
  if (!served.ok()) LogError("not every driver serves; it is tried again", {{"reason", std::string(served.message())}});
  PostRetry();
}

void Host::RequestReload() {
  changes_.Post("configuration", [this] { Reload(true); });
  PostRefresh(std::chrono::milliseconds(0));
}

void Host::RecordApplied(const std::string& version) {
  {
    const std::lock_guard lock(mutex_);
    configuration_status_.version = version;
    configuration_status_.loaded_at = std::chrono::system_clock::now();
    configuration_status_.last_error.clear();
    configuration_status_.last_error_at.reset();
    refused_version_.clear();
  }
  LogInfo("configuration in force", {{"version", version}});
  AuditConfiguration(version, absl::OkStatus());
}

void Host::RecordRefused(const std::string& version, const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    configuration_status_.last_error = std::string(why.message());
    configuration_status_.last_error_at = std::chrono::system_clock::now();
    refused_version_ = version;
  }
  LogError("configuration refused; the old one stays in force", {{"file", options_.config}, {"reason", std::string(why.message())}});
  AuditConfiguration(version, why);
}

void Host::AuditConfiguration(const std::string& version, const absl::Status& outcome) {
  plane_->ReportConfiguration(version, outcome);
  AuditRecord record;
  record.at = std::chrono::system_clock::now();
  record.actor = "configuration";
  record.action = "apply-configuration";
  record.capacity = "{}";
  record.policy_version = version;
  record.outcome = CodeName(outcome.code());
  record.message = std::string(outcome.message());
  const absl::Status written = store_->Write([&](store::Transaction& transaction) { return transaction.AppendAudit(record); });
  if (!written.ok()) LogError("an audit record was not written", {{"action", record.action}, {"reason", std::string(written.message())}});
}

ConfigurationStatus Host::configuration() const {
  const std::lock_guard lock(mutex_);
  return configuration_status_;
}

// ---- Backends

backend::Events Host::EventsOf(const std::string& backend) {
  return {.devices_changed = [this, backend] { events_.Post(Cat("discover/", backend), [this, backend] { Discover(backend); }); },
          .share_lost =
              [this, backend](const ShareKey& key) {
                LogWarning("a share vanished from the kernel; it is compared and made again", {{"backend", backend}, {"share", Describe(key)}});
                PostReconcile(backend, std::chrono::milliseconds(0), 1);
              },
          .health =
              [backend](const std::string& json) {
                LogInfo("health verdict", {{"backend", backend}, {"verdict", json}});
              },
          .availability =
              [this, backend](const absl::Status& status) {
                PostRefresh(std::chrono::milliseconds(0));  // it may be on trial
                if (!status.ok()) return;
                events_.Post(Cat("discover/", backend), [this, backend] { Discover(backend); });
                PostReconcile(backend, std::chrono::milliseconds(0), 1);
              }};
}

void Host::Discover(const std::string& backend) {
  absl::StatusOr<PhysicalDevices> devices = pool_->Discover(backend, DeadlineIn(kDiscoverDeadline));
  if (devices.ok()) {
    inventory_.SetDiscovered(backend, *std::move(devices));
    return;
  }
  if (absl::IsNotFound(devices.status()) && pool_->Find(backend) == nullptr) return;  // it was removed meanwhile
  LogError("devices could not be discovered; what was known stays", {{"backend", backend}, {"reason", std::string(devices.status().message())}});
  events_.Post(
      Cat("discover/", backend), [this, backend] { Discover(backend); }, kServerRetry);
}

void Host::PostRetry() {
  const std::optional<std::chrono::milliseconds> until = pool_->UntilRetry();
  if (!until.has_value()) return;
  changes_.Post(
      "retry",
      [this] {
        TakeUp(pool_->Retry());
        PostRetry();
      },
      *until);
}

// Backends with a new instance.
void Host::TakeUp(const std::vector<std::string>& backends) {
  for (const std::string& backend : backends) {
    Discover(backend);
    PostReconcile(backend, std::chrono::milliseconds(0), 1);
  }
}

void Host::PostRefresh(std::chrono::milliseconds delay) {
  changes_.Post(
      "refresh",
      [this] {
        TakeUp(pool_->Refresh());
        PostRefresh(pool_->OnTrial() ? kTrialInterval : kPollInterval);
      },
      delay);
}

absl::StatusOr<std::vector<claims::Repair>> Host::Reconcile(const std::string& backend) {
  absl::StatusOr<std::vector<claims::Repair>> repairs = [&] {
    const HostLock::Scope scope(*lock_);
    return claims_->Reconcile(backend, DeadlineIn(kReconcileDeadline));
  }();
  NoteRepairs(repairs);
  const std::lock_guard lock(mutex_);
  reconcile_status_.last_at = std::chrono::system_clock::now();
  reconcile_status_.problem = repairs.status();
  return repairs;
}

void Host::NoteRepairs(const absl::StatusOr<std::vector<claims::Repair>>& repairs) {
  if (!repairs.ok()) return;
  const std::lock_guard lock(mutex_);
  for (const claims::Repair& repair : *repairs) {
    ++reconcile_status_.repairs[repair.what];
    LogInfo("repaired", {{"what", repair.what}, {"share", Describe(repair.key)}, {"detail", repair.detail}});
  }
}

absl::StatusOr<std::vector<ShareKey>> Host::ReleaseUnknown(const std::string& claim_uid) {
  // Looked at again first: what another host released or prepared meanwhile is not unknown any more.
  TRANCHE_RETURN_IF_ERROR(Reconcile("").status());
  return claims_->ReleaseUnknown(claim_uid, DeadlineIn(kReconcileDeadline));
}

void Host::PostReconcile(const std::string& backend, std::chrono::milliseconds delay, int attempt) {
  events_.Post(
      Cat("reconcile/", backend),
      [this, backend, attempt] {
        const auto repairs = Reconcile(backend);
        if (repairs.ok()) return;
        LogWarning("comparing with the kernel did not end", {{"backend", backend}, {"reason", std::string(repairs.status().message())}});
        if (attempt < kLostShareAttempts) PostReconcile(backend, kLostShareRetry, attempt + 1);
      },
      delay);
}

void Host::PostPeriodicReconcile() {
  events_.Post(
      "periodic",
      [this] {
        if (const auto repairs = Reconcile(""); !repairs.ok()) {
          LogWarning("not everything could be compared with the kernel", {{"reason", std::string(repairs.status().message())}});
        }
        changes_.Post("release", [this] { ReleaseUnused(); });
        PostPeriodicReconcile();
      },
      options_.reconcile_interval);
}

void Host::PostPeriodicVerification() {
  events_.Post(
      "verify",
      [this] {
        const auto repairs = [&] {
          const HostLock::Scope scope(*lock_);
          return claims_->VerifyAll(DeadlineIn(kReconcileDeadline));
        }();
        NoteRepairs(repairs);
        if (!repairs.ok()) LogWarning("not every limit could be verified; it is tried again", {{"reason", std::string(repairs.status().message())}});
        PostPeriodicVerification();
      },
      options_.verify_interval);
}

ReconcileStatus Host::reconciliation() const {
  const std::lock_guard lock(mutex_);
  return reconcile_status_;
}

// ---- What shares still need

Host::InUse Host::ReadInUse() {
  InUse in_use;
  const absl::Status status = store_->Read([&](store::Transaction& transaction) -> absl::Status {
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::OfferInUse> offers, transaction.OffersInUse());
    for (const store::OfferInUse& offer : offers) in_use.backends.insert(offer.backend);
    TRANCHE_ASSIGN_OR_RETURN(const std::vector<store::ClaimRow> claims, transaction.Claims());
    for (const store::ClaimRow& claim : claims) in_use.drivers.insert(claim.driver);
    return absl::OkStatus();
  });
  if (status.ok()) return in_use;
  // Nothing may be let go of on the word of a store that cannot be read.
  LogError("what is in use could not be read", {{"reason", std::string(status.message())}});
  for (const BackendStatus& backend : pool_->Statuses()) in_use.backends.insert(backend.name);
  for (const DriverStatus& driver : drivers()) in_use.drivers.insert(driver.name);
  return in_use;
}

void Host::ReleaseUnused() {
  const InUse in_use = ReadInUse();
  pool_->ReleaseUnused(in_use.backends);
  UpdateServers(DriverNames(inventory_.Current()->configuration), in_use.drivers).IgnoreError();  // in `status`, and posted again
}

// ---- Drivers

absl::StatusOr<std::unique_ptr<dra::DraServer>> Host::StartServer(const std::string& driver) {
  dra::Handler handler;
  handler.prepare = [this](const std::string& name, const std::vector<ClaimReference>& claims, Deadline deadline, const claims::GivenUp& given_up) {
    return claims_->Prepare(name, claims, deadline, given_up);
  };
  handler.unprepare = [this](const std::string& name, const std::vector<ClaimReference>& claims, Deadline deadline, const claims::GivenUp& given_up) {
    claims::UnprepareAnswers answers = claims_->Unprepare(name, claims, deadline, given_up);
    if (pool_->HasRetained() || !DriverNames(inventory_.Current()->configuration).contains(name)) {
      changes_.Post("release", [this] { ReleaseUnused(); });
    }
    return answers;
  };
  dra::ServerOptions options;
  options.driver = driver;
  options.plugin_directory = options_.plugin_directory;
  options.registry_directory = options_.registry_directory;
  options.instance = options_.instance;
  options.handler = std::move(handler);
  return dra::DraServer::Start(std::move(options));
}

absl::Status Host::UpdateServers(const std::set<std::string>& configured, const std::set<std::string>& in_use) {
  std::set<std::string> wanted = configured;
  wanted.insert(in_use.begin(), in_use.end());
  std::vector<Driver> ended;  // shut down outside the lock: calls in flight may want it
  std::set<std::string> missing;
  {
    const std::lock_guard lock(mutex_);
    for (auto driver = drivers_.begin(); driver != drivers_.end();) {
      if (wanted.contains(driver->first)) {
        driver->second.configured = configured.contains(driver->first);
        ++driver;
        continue;
      }
      ended.push_back(std::move(driver->second));
      driver = drivers_.erase(driver);
    }
    for (const std::string& name : wanted) {
      if (!drivers_.contains(name) || drivers_[name].server == nullptr) missing.insert(name);
    }
  }
  absl::Status first_problem;
  for (const std::string& name : missing) {
    absl::StatusOr<std::unique_ptr<dra::DraServer>> server = StartServer(name);
    Driver driver{.server = nullptr, .configured = configured.contains(name), .problem = server.status()};
    if (server.ok()) driver.server = *std::move(server);
    if (first_problem.ok()) first_problem = Annotate(driver.problem, Cat("driver ", name));
    const std::lock_guard lock(mutex_);
    drivers_.insert_or_assign(name, std::move(driver));
  }
  if (!first_problem.ok())
    changes_.Post(
        "release", [this] { ReleaseUnused(); }, kServerRetry);
  return first_problem;
}

std::vector<DriverStatus> Host::drivers() const {
  const std::lock_guard lock(mutex_);
  std::vector<DriverStatus> statuses;
  for (const auto& [name, driver] : drivers_) {
    DriverStatus status{.name = name, .service_socket = {}, .registration_socket = {}, .configured = driver.configured, .problem = driver.problem};
    if (driver.server != nullptr) {
      status.service_socket = driver.server->service_socket();
      status.registration_socket = driver.server->registration_socket();
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

void Host::Publish() {
  if (!publishing_) return;
  const std::lock_guard lock(publish_mutex_);
  plane_->Publish(inventory_.Current());
}

}  // namespace tranche::host
