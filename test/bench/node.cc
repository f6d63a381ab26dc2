#include "bench/node.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <exception>
#include <thread>

#include <boost/json.hpp>

#include "admin/client.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::bench {
namespace {

constexpr auto kStartLimit = std::chrono::seconds(60);
constexpr auto kPollInterval = std::chrono::milliseconds(1);
constexpr std::size_t kLogBytes = 64 * 1024 * 1024;
constexpr std::size_t kLogTail = 2000;

std::string HookDirectory() {
  const std::string hook = test::Binary("vnic-attach");
  return hook.substr(0, hook.rfind('/') + 1);
}

std::string UplinkConfiguration() {
  return Cat(
      "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\nbackends:\n- name: uplink\n  library: vnic_tc\n  isolation: in-process\n "
      " config: ",
      BackendConfiguration(), "\n  allowEdits: {hooks: [", HookDirectory(), "]}\ndrivers:\n- name: ", kDriver,
      "\n  offers:\n  - name: shared\n    backend: uplink\n    mode: share\n    capacity:\n"
      "      bandwidth: {default: 10M, min: 10M, max: 500M, step: 10M, reserve: 10%}\n"
      "  classes:\n  - name: vnic-shared\n    offer: shared\n    namespaces: {allow: [bench]}\n");
}

Claim AllocatedClaim(const std::string& name, const PublishedDevice& device, const ShareRequest& wanted) {
  Claim claim;
  claim.namespace_name = "bench";
  claim.name = name;
  claim.uid = NewUuid();
  DeviceRequest request;
  request.name = "device";
  request.device_class = wanted.device_class;
  request.capacity[wanted.capacity] = wanted.amount;
  claim.requests.push_back(request);
  AllocationResult result;
  result.request = "device";
  result.driver = device.driver;
  result.pool = device.pool;
  result.device = device.name;
  result.share_id = NewUuid();
  result.consumed_capacity[wanted.capacity] = wanted.amount;
  claim.allocation = Allocation{{result}, {}};
  claim.reserved_for.push_back({"pods", name, NewUuid()});
  return claim;
}

}  // namespace

std::string BackendConfiguration() {
  return Cat("{\"parents\": [{\"interface\": \"", kUplink, "\", \"bandwidth\": \"40G\", \"subnet\": \"10.99.0.0/16\"}], \"attachHook\": \"",
             test::Binary("vnic-attach"), "\"}");
}

Quantity ShareBandwidth() { return *Quantity::Parse("10M"); }

NodeOptions UplinkNode() { return {.configuration = UplinkConfiguration()}; }

ShareRequest UplinkShare() { return {kDriver, "vnic-shared", "bandwidth", ShareBandwidth()}; }

absl::StatusOr<std::unique_ptr<Node>> Node::Start(const std::string& path, const NodeOptions& options) {
  TRANCHE_ASSIGN_OR_RETURN(local::Directory directory, local::Directory::Open(path));
  const std::string configuration = path + "/host.yaml";
  TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(configuration, options.configuration, 0600, Durability::kVisible));
  auto node = std::unique_ptr<Node>(new Node(std::move(directory), path + "/tranched.log"));
  std::vector<std::string> command = {test::Binary("tranched"),  "--local",     path,     "--config",        configuration,    "--backend-directory",
                                      options.backend_directory, "--node-name", "node-1", "--cdi-directory", node->cdi_.path()};
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  const auto started = std::chrono::steady_clock::now();
  node->process_ = std::make_unique<test::ChildProcess>(command, test::Environment{}, node->log_path_);
  TRANCHE_RETURN_IF_ERROR(node->WaitUntilServing(started, options.drivers));
  TRANCHE_RETURN_IF_ERROR(node->FindDevices(options.drivers));
  return node;
}

absl::StatusOr<Microseconds> Node::BackendPrepareTime() const {
  TRANCHE_ASSIGN_OR_RETURN(const boost::json::value status,
                           admin::Call(directory_.run() + "/admin.sock", "status", boost::json::object(), DeadlineIn(kStartLimit)));
  try {
    return Microseconds(static_cast<double>(status.at("backends").at(0).at("prepareMicroseconds").to_number<std::int64_t>()));
  } catch (const std::exception& error) { return absl::InternalError(Cat("the status of tranched has no backend time: ", error.what())); }
}

absl::Status Node::WaitUntilServing(std::chrono::steady_clock::time_point started, std::size_t drivers) {
  const Deadline end = DeadlineIn(kStartLimit);
  while (!Passed(end)) {
    auto plugins = local::FindPlugins(directory_.plugins_registry(), end);
    if (plugins.ok() && plugins->size() >= drivers) {
      start_to_serving_ = Since(started);
      plugins_ = *std::move(plugins);
      return absl::OkStatus();
    }
    if (!process_->Running()) return Failed("tranched ended while it started");
    std::this_thread::sleep_for(kPollInterval);
  }
  return Failed("not every driver of tranched registered");
}

absl::Status Node::FindDevices(std::size_t drivers) {
  const Deadline end = DeadlineIn(kStartLimit);
  while (!Passed(end)) {
    const auto published = directory_.ReadSlices();
    if (published.ok()) {
      for (const PublishedDevice& device : published->devices) devices_.emplace(device.driver, device);
    }
    if (devices_.size() >= drivers) return absl::OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
  return Failed("not every driver of tranched published a device");
}

absl::StatusOr<std::string> Node::ServiceSocket(const std::string& driver) const {
  for (const local::Plugin& plugin : plugins_) {
    if (plugin.driver == driver) return plugin.endpoint;
  }
  return absl::NotFoundError(Cat("no driver ", driver, " is registered"));
}

absl::Status Node::Failed(const std::string& what) const {
  const std::string log = ReadFile(log_path_, kLogBytes).value_or("");
  return absl::InternalError(Cat(what, "; the end of its log:\n", log.substr(log.size() - std::min(log.size(), kLogTail))));
}

absl::StatusOr<double> Node::ResidentKilobytes() const {
  std::ifstream status("/proc/" + std::to_string(process_->pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) != 0) continue;
    std::istringstream fields(line.substr(6));
    double kilobytes = 0;
    if (fields >> kilobytes) return kilobytes;
  }
  return Failed("tranched has no VmRSS: it ended");
}

absl::StatusOr<std::vector<ClaimReference>> Node::WriteClaims(const std::string& prefix, int count, const ShareRequest& request) const {
  const auto device = devices_.find(request.driver);
  if (device == devices_.end()) return absl::NotFoundError(Cat("driver ", request.driver, " has no device"));
  std::vector<ClaimReference> references;
  for (int i = 0; i < count; ++i) {
    const Claim claim = AllocatedClaim(Cat(prefix, "-", i), device->second, request);
    TRANCHE_RETURN_IF_ERROR(directory_.WriteClaim(claim));
    references.push_back({claim.namespace_name, claim.name, claim.uid});
  }
  return references;
}

absl::Status Node::RemoveClaims(const std::vector<ClaimReference>& claims) const {
  for (const ClaimReference& claim : claims) TRANCHE_RETURN_IF_ERROR(directory_.RemoveClaim(claim.namespace_name, claim.name));
  return absl::OkStatus();
}

absl::Status Node::Stop() {
  process_->Signal(SIGTERM);
  const int code = process_->Wait();
  return code == 0 ? absl::OkStatus() : Failed(Cat("tranched ended with exit code ", code));
}

}  // namespace tranche::bench
