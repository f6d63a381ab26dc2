// The backend without a host, and the kernel operations that it is made of.
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "backend/in_process.h"
#include "backend/loader.h"
#include "bench/bench.h"
#include "bench/node.h"
#include "plugins/vnic_tc/kernel/links.h"
#include "plugins/vnic_tc/kernel/traffic.h"

namespace tranche::bench {
namespace {

constexpr auto kCallTime = std::chrono::seconds(30);
constexpr char kLink[] = "bench0";
constexpr std::uint64_t kShareRate = 10'000'000 / 8;  // bytes per second
constexpr std::uint64_t kLinkRate = 40'000'000'000ULL / 8;
constexpr int kDumps = 50;

backend::PrepareItem Item(const std::string& physical, int index) {
  backend::PrepareItem item;
  item.key = {NewUuid(), "nic", kDriver, "node-1", Cat(physical, "-shared"), NewUuid()};
  item.physical = physical;
  item.consumed["bandwidth"] = ShareBandwidth();
  item.configuration = "{}";
  item.claim_namespace = "bench";
  item.claim_name = Cat("alone-", index);
  item.pod_uids = {NewUuid()};
  return item;
}

absl::StatusOr<std::shared_ptr<backend::Backend>> LoadBackend(backend::Loader& loader, const std::string& directory) {
  TRANCHE_ASSIGN_OR_RETURN(const std::shared_ptr<const backend::LoadedLibrary> library, loader.Load("vnic_tc"));
  backend::CreateOptions options;
  options.name = "uplink";
  options.config = BackendConfiguration();
  options.runtime_directory = directory + "/alone";
  return backend::CreateBackend(*library, options, {[] {}, [](const ShareKey&) {}, [](const std::string&) {}, [](const absl::Status&) {}});
}

absl::Status ToStatus(const vnic::Status& status) { return status.ok() ? absl::OkStatus() : absl::InternalError(status.failure().message); }

std::uint32_t Handle(int index) { return vnic::kMajor | static_cast<std::uint32_t>(index + 1); }

absl::StatusOr<std::vector<Measurement>> MeasureClasses(vnic::Socket& socket, int link, int count) {
  TRANCHE_RETURN_IF_ERROR(ToStatus(vnic::AddHtbRoot(socket, link)));
  TRANCHE_RETURN_IF_ERROR(ToStatus(vnic::SetClass(socket, link, vnic::kRootClass, vnic::kTop, kLinkRate)));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> added,
                           Repeat(count, [&](int i) { return ToStatus(vnic::SetClass(socket, link, Handle(i), vnic::kRootClass, kShareRate)); }));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> read, Repeat(count, [&](int i) {
                             const auto found = vnic::GetClass(socket, link, Handle(i));
                             return found.ok() ? absl::OkStatus() : absl::InternalError(found.failure().message);
                           }));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> dumped, Repeat(kDumps, [&](int) {
                             const auto classes = vnic::ListClasses(socket, link);
                             return classes.ok() ? absl::OkStatus() : absl::InternalError(classes.failure().message);
                           }));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> deleted, Repeat(count, [&](int i) { return ToStatus(vnic::DeleteClass(socket, link, Handle(i))); }));
  return std::vector<Measurement>{Series(Cat("class_add_", count), std::move(added)), Series(Cat("class_get_", count), std::move(read)),
                                  Series(Cat("class_dump_", count), std::move(dumped)), Series(Cat("class_delete_", count), std::move(deleted))};
}

}  // namespace

absl::StatusOr<std::vector<Measurement>> MeasureBackend(const std::string& directory, const Sizes& sizes) {
  backend::Loader loader(test::BackendDirectory());
  TRANCHE_ASSIGN_OR_RETURN(const std::shared_ptr<backend::Backend> backend, LoadBackend(loader, directory));
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<PhysicalDevice> devices, backend->Discover(DeadlineIn(kCallTime)));
  if (devices.empty()) return absl::NotFoundError(Cat("vnic_tc discovers no device although ", kUplink, " is configured"));
  std::vector<backend::PrepareItem> items;
  for (int i = 0; i < sizes.claims; ++i) items.push_back(Item(devices.front().name, i));
  std::vector<backend::UnprepareItem> applied;
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> prepared, Repeat(sizes.claims, [&](int i) -> absl::Status {
                             const std::vector<backend::PrepareOutcome> outcomes =
                                 backend->Prepare({items[static_cast<std::size_t>(i)]}, DeadlineIn(kCallTime));
                             if (outcomes.size() != 1) return absl::InternalError("vnic_tc answered for another number of shares than it was asked");
                             if (outcomes[0].share) applied.push_back({outcomes[0].key, outcomes[0].share->state});
                             return outcomes[0].status;
                           }));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<Microseconds> unprepared, Repeat(sizes.claims, [&](int i) {
                             return backend->Unprepare({applied[static_cast<std::size_t>(i)]}, DeadlineIn(kCallTime)).at(0).status;
                           }));
  return std::vector<Measurement>{Series("backend_prepare_alone", std::move(prepared)), Series("backend_unprepare_1", std::move(unprepared))};
}

absl::StatusOr<std::vector<Measurement>> MeasureKernel(const Sizes& sizes) {
  vnic::Result<vnic::Socket> socket = vnic::Socket::Open();
  if (!socket.ok()) return absl::UnavailableError(socket.failure().message);
  TRANCHE_RETURN_IF_ERROR(ToStatus(vnic::CreateVeth(*socket, {kLink, "bench1", {0x02, 0, 0, 0, 0, 2}, 1500, 0})));
  const vnic::Result<vnic::Link> link = vnic::GetLink(*socket, kLink);
  if (!link.ok()) return absl::InternalError(link.failure().message);
  absl::StatusOr<std::vector<Measurement>> report = MeasureClasses(*socket, link->index, sizes.shares);
  TRANCHE_RETURN_IF_ERROR(ToStatus(vnic::DeleteLink(*socket, *link)));
  return report;
}

}  // namespace tranche::bench
