#include "kernel_bench.h"

#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/class.h>
#include <netlink/route/qdisc.h>
#include <netlink/route/qdisc/htb.h>
#include <netlink/route/tc.h>
#include <netlink/socket.h>
#include <linux/pkt_sched.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <boost/json.hpp>

#include "backend/in_process.h"
#include "backend/loader.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::bench {
namespace {

namespace json = boost::json;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Socket = std::unique_ptr<nl_sock, Freer<nl_socket_free>>;
using Class = std::unique_ptr<rtnl_class, Freer<rtnl_class_put>>;
using Qdisc = std::unique_ptr<rtnl_qdisc, Freer<rtnl_qdisc_put>>;

constexpr std::uint32_t kMajor = 0x7a7;

Class MakeClass(int interface, int number, std::uint32_t bytes_per_second) {
  Class result(rtnl_class_alloc());
  rtnl_tc_set_ifindex(TC_CAST(result.get()), interface);
  rtnl_tc_set_parent(TC_CAST(result.get()), TC_HANDLE(kMajor, 0));
  rtnl_tc_set_handle(TC_CAST(result.get()), TC_HANDLE(kMajor, static_cast<std::uint32_t>(number)));
  rtnl_tc_set_kind(TC_CAST(result.get()), "htb");
  rtnl_htb_set_rate(result.get(), bytes_per_second);
  rtnl_htb_set_ceil(result.get(), bytes_per_second);
  rtnl_htb_set_quantum(result.get(), 60000);
  return result;
}

absl::StatusOr<std::vector<double>> Timed(int count, const std::function<int(int)>& request) {
  std::vector<double> samples;
  for (int i = 1; i <= count; ++i) {
    const auto begin = Clock::now();
    if (const int code = request(i); code < 0) return absl::InternalError(Cat("netlink: ", nl_geterror(code)));
    samples.push_back(Milliseconds(Clock::now() - begin) * 1000);
  }
  return samples;
}

absl::Status MeasureOn(nl_sock* socket, int interface, int shares, Results& results) {
  const Qdisc root(rtnl_qdisc_alloc());
  rtnl_tc_set_ifindex(TC_CAST(root.get()), interface);
  rtnl_tc_set_parent(TC_CAST(root.get()), TC_H_ROOT);
  rtnl_tc_set_handle(TC_CAST(root.get()), TC_HANDLE(kMajor, 0));
  rtnl_tc_set_kind(TC_CAST(root.get()), "htb");
  if (const int code = rtnl_qdisc_add(socket, root.get(), NLM_F_CREATE); code < 0) return absl::InternalError(Cat("HTB: ", nl_geterror(code)));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<double> added, Timed(shares, [&](int i) {
                             return rtnl_class_add(socket, MakeClass(interface, i, 1'250'000).get(), NLM_F_CREATE | NLM_F_EXCL);
                           }));
  results.Add(Cat("netlink_class_add_to_", shares), "us", std::move(added));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<double> changed, Timed(shares, [&](int i) {
                             return rtnl_class_add(socket, MakeClass(interface, i, 2'500'000).get(), NLM_F_REPLACE);
                           }));
  results.Add(Cat("netlink_class_change_at_", shares), "us", std::move(changed));
  TRANCHE_ASSIGN_OR_RETURN(std::vector<double> deleted,
                           Timed(shares, [&](int i) { return rtnl_class_delete(socket, MakeClass(interface, i, 2'500'000).get()); }));
  results.Add(Cat("netlink_class_delete_from_", shares), "us", std::move(deleted));
  return absl::OkStatus();
}

backend::PrepareItem MakeItem(const PhysicalDevice& device) {
  backend::PrepareItem item;
  item.key = {NewUuid(), "nic", "bench.tranche.dev", "node", device.name, NewUuid()};
  item.physical = device.name;
  item.consumed = {{"bandwidth", Quantity::FromInt64(10'000'000)}, {"shares", Quantity::FromInt64(1)}};
  item.configuration = "{}";
  item.claim_namespace = "bench";
  item.claim_name = "claim";
  return item;
}

absl::Status FirstError(const std::vector<backend::PrepareOutcome>& outcomes) {
  for (const backend::PrepareOutcome& outcome : outcomes) TRANCHE_RETURN_IF_ERROR(outcome.status);
  return absl::OkStatus();
}

std::vector<backend::UnprepareItem> Releases(const std::vector<backend::PrepareOutcome>& outcomes) {
  std::vector<backend::UnprepareItem> items;
  for (const backend::PrepareOutcome& outcome : outcomes) items.push_back({outcome.key, outcome.share.has_value() ? outcome.share->state : ""});
  return items;
}

absl::Status FirstError(const std::vector<backend::UnprepareOutcome>& outcomes) {
  for (const backend::UnprepareOutcome& outcome : outcomes) TRANCHE_RETURN_IF_ERROR(outcome.status);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureClasses(int shares, Results& results) {
  if (std::system("ip link add cls0 type veth peer name cls1 && ip link set cls0 up") != 0) return absl::InternalError("cannot make a veth pair");
  const Socket socket(nl_socket_alloc());
  if (socket == nullptr || nl_connect(socket.get(), NETLINK_ROUTE) < 0) return absl::InternalError("cannot open a netlink socket");
  const absl::Status status = MeasureOn(socket.get(), static_cast<int>(if_nametoindex("cls0")), shares, results);
  static_cast<void>(std::system("ip link delete cls0"));
  return status;
}

absl::StatusOr<double> MeasureBackend(const std::string& backend_directory, const std::string& runtime_directory, const std::string& uplink,
                                      const std::string& hook, int batch, Results& results) {
  backend::Loader loader(backend_directory);
  TRANCHE_ASSIGN_OR_RETURN(const auto library, loader.Load("vnic_tc"));
  const json::object config{{"parents", json::array{json::object{{"interface", uplink}, {"bandwidth", "100G"}, {"subnet", "10.98.0.0/16"}}}},
                            {"attachHook", hook}};
  TRANCHE_ASSIGN_OR_RETURN(const auto vnic, backend::CreateBackend(*library, {"bench", ToJsonText(config), runtime_directory}, {}));
  const Deadline deadline = DeadlineIn(std::chrono::minutes(5));
  TRANCHE_ASSIGN_OR_RETURN(const std::vector<PhysicalDevice> devices, vnic->Discover(deadline));
  if (devices.empty()) return absl::InternalError("vnic_tc offers no device");
  std::vector<double> prepare, unprepare;
  std::vector<backend::PrepareOutcome> held;
  for (int i = 0; i < 200; ++i) {
    const std::vector<backend::PrepareItem> items = {MakeItem(devices.front())};
    const auto begin = Clock::now();
    std::vector<backend::PrepareOutcome> outcomes = vnic->Prepare(items, deadline);
    prepare.push_back(Milliseconds(Clock::now() - begin));
    TRANCHE_RETURN_IF_ERROR(FirstError(outcomes));
    held.insert(held.end(), outcomes.begin(), outcomes.end());
  }
  const double p50 = results.Add("backend_prepare", "ms", std::move(prepare)).p50;
  for (const backend::UnprepareItem& item : Releases(held)) {
    const auto begin = Clock::now();
    TRANCHE_RETURN_IF_ERROR(FirstError(vnic->Unprepare({item}, deadline)));
    unprepare.push_back(Milliseconds(Clock::now() - begin));
  }
  results.Add("backend_unprepare", "ms", std::move(unprepare));
  // The host sends at most 1 MiB a call: batches of 200.
  held.clear();
  double prepare_ms = 0, unprepare_ms = 0;
  for (int done = 0; done < batch; done += 200) {
    std::vector<backend::PrepareItem> items;
    for (int i = 0; i < std::min(200, batch - done); ++i) items.push_back(MakeItem(devices.front()));
    const auto begin = Clock::now();
    const std::vector<backend::PrepareOutcome> outcomes = vnic->Prepare(items, deadline);
    prepare_ms += Milliseconds(Clock::now() - begin);
    TRANCHE_RETURN_IF_ERROR(FirstError(outcomes));
    held.insert(held.end(), outcomes.begin(), outcomes.end());
  }
  results.AddOne(Cat("backend_prepare_per_share_", batch, "_in_batches"), "ms", prepare_ms / batch);
  const std::vector<backend::UnprepareItem> all = Releases(held);
  for (std::size_t done = 0; done < all.size(); done += 200) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(done);
    const auto last = all.begin() + static_cast<std::ptrdiff_t>(std::min(done + 200, all.size()));
    const auto begin = Clock::now();
    TRANCHE_RETURN_IF_ERROR(FirstError(vnic->Unprepare({first, last}, deadline)));
    unprepare_ms += Milliseconds(Clock::now() - begin);
  }
  results.AddOne(Cat("backend_unprepare_per_share_", batch, "_in_batches"), "ms", unprepare_ms / batch);
  return p50;
}

}  // namespace tranche::bench
