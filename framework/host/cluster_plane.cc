// A Kubernetes node: claims and slices are the API server's.
#include <malloc.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/status.h"
#include "base/text.h"
#include "host/control_plane.h"
#include "host/host.h"
#include "kube/claim_reader.h"
#include "kube/client.h"
#include "kube/events.h"
#include "kube/slice_api.h"
#include "kube/status_writer.h"
#include "slices/publisher.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

kube::EventOptions EventsOf(const std::string& node) {
  kube::EventOptions options;
  options.node_name = node;
  return options;
}

// What only planning and writing needed goes back to the system.
slices::PublisherOptions OptionsOf(const std::string& driver, const std::string& node) {
  slices::PublisherOptions options;
  options.driver = driver;
  options.node = node;
  options.on_settled = [] { malloc_trim(0); };
  return options;
}

PublishedStatus StatusOf(const slices::Publisher& publisher) {
  const slices::PublisherStatus status = publisher.Status();
  PublishedStatus result{.driver = status.driver,
                         .generation = status.generation,
                         .wanted = static_cast<int>(status.slices_wanted),
                         .published = static_cast<int>(status.slices_published),
                         .problems = status.refused,
                         .problem = status.last_error.empty() ? absl::OkStatus() : absl::UnavailableError(status.last_error)};
  for (const std::string& gate : status.dropped_gates) {
    result.problems.push_back(Cat("the API server drops fields of feature gate ", gate, "; what needs them is not published"));
  }
  for (const slices::Problem& problem : status.problems) {
    result.problems.push_back(Cat(problem.device, ", ", problem.field, ": ", problem.message,
                                  problem.devices > 1 ? Cat(" (and ", problem.devices - 1, " more devices)") : std::string()));
  }
  return result;
}

class ClusterControlPlane final : public ControlPlane {
 public:
  ClusterControlPlane(std::unique_ptr<kube::Client> client, std::string node)
      : client_(std::move(client)),
        node_(std::move(node)),
        reader_(*client_),
        slice_api_(*client_, node_),
        status_writer_(*client_, {}),
        events_(*client_, EventsOf(node_)),
        observers_({&status_writer_, &events_}) {}

  ~ClusterControlPlane() override { Stop(); }

  claims::ClaimReader& claim_reader() override { return reader_; }
  claims::Observer* observer() override { return &observers_; }

  void Publish(std::shared_ptr<const inventory::Snapshot> snapshot) override {
    std::set<std::string> drivers;
    for (const config::DriverConfiguration& driver : snapshot->configuration.drivers) drivers.insert(driver.name);
    for (const PublishedDevice& device : snapshot->devices) drivers.insert(device.driver);  // draining ones outlive their configuration
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    for (const std::string& driver : drivers) {
      std::unique_ptr<slices::Publisher>& publisher = publishers_[driver];
      if (publisher == nullptr) publisher = std::make_unique<slices::Publisher>(slice_api_, OptionsOf(driver, node_));
      withdrawn_.erase(driver);
      publisher->Publish({.snapshot = snapshot, .taints = {}});
    }
    for (const auto& [driver, publisher] : publishers_) {
      if (drivers.contains(driver) || !withdrawn_.insert(driver).second) continue;
      // It goes on by itself after a deadline: nobody needs to wait.
      if (const absl::Status status = publisher->Withdraw(DeadlineIn(std::chrono::milliseconds(0))); !status.ok()) {
        LogInfo("the slices of a driver that is no longer configured are being deleted", {{"driver", driver}});
      }
    }
  }

  void ReportConfiguration(const std::string& version, const absl::Status& outcome) override {
    if (outcome.ok()) {
      events_.RecordNode(kube::EventType::kNormal, "Configure", "ConfigurationApplied", Cat("configuration ", version, " is in force"));
    } else {
      events_.RecordNode(kube::EventType::kWarning, "Configure", "ConfigurationRefused",
                         Cat("the new configuration was refused, the old one stays in force: ", View(outcome.message())));
    }
  }

  ControlPlaneStatus status() const override {
    ControlPlaneStatus status{.kind = "kubernetes", .problem = status_writer_.state().problem, .drivers = {}};
    const std::lock_guard lock(mutex_);
    for (const auto& [driver, publisher] : publishers_) status.drivers.push_back(StatusOf(*publisher));
    return status;
  }

  void Stop() override {
    std::map<std::string, std::unique_ptr<slices::Publisher>> publishers;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      publishers.swap(publishers_);
    }
  }

 private:
  const std::unique_ptr<kube::Client> client_;
  const std::string node_;
  kube::ApiClaimReader reader_;
  kube::ApiSliceApi slice_api_;
  kube::StatusWriter status_writer_;
  kube::EventRecorder events_;
  claims::Observers observers_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<slices::Publisher>> publishers_;
  std::set<std::string> withdrawn_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> MakeClusterControlPlane(const Options& options) {
  kube::ClientOptions client_options;
  client_options.kubeconfig = options.kubeconfig;
  TRANCHE_ASSIGN_OR_RETURN(std::unique_ptr<kube::Client> client, kube::Client::Create(client_options));
  return std::make_unique<ClusterControlPlane>(std::move(client), options.node_name);
}

}  // namespace tranche::host
