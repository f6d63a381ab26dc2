// Local mode: objects are files in one directory.
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.h"
#include "host/control_plane.h"
#include "host/host.h"
#include "local/directory.h"
#include "telemetry/log.h"

namespace tranche::host {
namespace {

class LocalControlPlane final : public ControlPlane {
 public:
  explicit LocalControlPlane(local::Directory directory) : directory_(std::move(directory)), reader_(directory_) {}

  claims::ClaimReader& claim_reader() override { return reader_; }
  claims::Observer* observer() override { return nullptr; }

  void Publish(std::shared_ptr<const inventory::Snapshot> snapshot) override {
    absl::Status published = directory_.PublishSlices(*snapshot);
    if (published.ok()) published = directory_.PublishClasses(snapshot->configuration);
    if (!published.ok()) LogError("what this node has could not be published", {{"reason", std::string(published.message())}});
    const std::lock_guard lock(mutex_);
    problem_ = published;
  }

  void ReportConfiguration(const std::string& /*version*/, const absl::Status& /*outcome*/) override {}  // the audit and `status` have it

  ControlPlaneStatus status() const override {
    const std::lock_guard lock(mutex_);
    return {.kind = "local", .problem = problem_, .drivers = {}};
  }

  void Stop() override {}

 private:
  const local::Directory directory_;
  local::LocalClaimReader reader_;
  mutable std::mutex mutex_;
  absl::Status problem_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlPlane>> MakeLocalControlPlane(const Options& options) {
  TRANCHE_ASSIGN_OR_RETURN(local::Directory directory, local::Directory::Open(options.local));
  return std::make_unique<LocalControlPlane>(std::move(directory));
}

}  // namespace tranche::host
