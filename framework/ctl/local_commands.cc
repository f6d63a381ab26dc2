#include "ctl/local_commands.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <iterator>
#include <utility>

#include <boost/json.hpp>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "local/kubelet.h"
#include "local/manifest.h"
#include "local/runtime.h"
#include "local/scheduler.h"
#include "model/json.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kCallDeadline{45};  // as the kubelet

// What one claim's step prints: an object, and a line for people.
struct Outcome {
  json::object value;
  std::string line;
};
using Step = std::function<absl::StatusOr<Outcome>(const local::Directory&, const ClaimName&)>;

absl::StatusOr<Outcome> RunStep(const local::Directory& directory, const std::string& claim, const Step& step) {
  TRANCHE_ASSIGN_OR_RETURN(const ClaimName name, ParseClaimName(claim));
  return step(directory, name);
}

int ForEachClaim(const Target& target, Format format, const std::vector<std::string>& claims, const Step& step) {
  const absl::StatusOr<local::Directory> directory = target.Directory();
  if (!directory.ok()) return Fail(directory.status());
  int exit_code = kSuccess;
  json::array values;
  for (const std::string& claim : claims) {
    absl::StatusOr<Outcome> outcome = RunStep(*directory, claim, step);
    if (!outcome.ok()) {
      exit_code = Fail(Annotate(outcome.status(), claim));
      values.push_back(json::object{{"claim", claim}, {"error", {{"code", CodeName(outcome.status().code())}, {"message", View(outcome.status().message())}}}});
      continue;
    }
    if (format == Format::kTable) std::cout << claim << ": " << outcome->line << "\n";
    outcome->value["claim"] = claim;
    values.push_back(std::move(outcome->value));
  }
  if (format == Format::kJson) PrintJson(json::object{{"claims", std::move(values)}});
  return exit_code;
}

absl::StatusOr<std::string> ReadManifest(const std::string& file) {
  if (file != "-") return ReadFile(file, local::kMaxManifestBytes);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

std::string Where(const AllocationResult& result) {
  std::string consumed;
  for (const auto& [name, quantity] : result.consumed_capacity) Append(consumed, " ", name, "=", quantity.ToString());
  return Cat(result.request, " on ", result.driver, "/", result.pool, "/", result.device, consumed,
             result.share_id.has_value() ? Cat(" share ", *result.share_id) : std::string());
}

json::array EncodeDevices(const std::vector<claims::PreparedDevice>& devices) {
  json::array array;
  for (const claims::PreparedDevice& device : devices) {
    json::array requests, ids;
    for (const std::string& request : device.request_names) requests.emplace_back(request);
    for (const std::string& id : device.cdi_device_ids) ids.emplace_back(id);
    array.push_back(json::object{{"requestNames", std::move(requests)},
                                 {"poolName", device.pool},
                                 {"deviceName", device.device},
                                 {"cdiDeviceIDs", std::move(ids)},
                                 {"shareID", device.share_id}});
  }
  return array;
}

std::string NamespacePath(const std::string& netns) {
  const bool is_pid = !netns.empty() && std::all_of(netns.begin(), netns.end(), [](unsigned char byte) { return byte >= '0' && byte <= '9'; });
  return is_pid || netns.find('/') != std::string::npos ? netns : "/run/netns/" + netns;
}

}  // namespace

absl::StatusOr<ClaimName> ParseClaimName(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size() || text.find('/', slash + 1) != std::string_view::npos) {
    return absl::InvalidArgumentError(Cat("\"", text, "\" does not name a claim; write NAMESPACE/NAME"));
  }
  return ClaimName{std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
}

int LocalApply(const Target& target, Format format, const std::vector<std::string>& files) {
  const absl::StatusOr<local::Directory> directory = target.Directory();
  if (!directory.ok()) return Fail(directory.status());
  json::array values;
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadManifest(file);
    if (!text.ok()) return Fail(text.status());
    const absl::StatusOr<std::vector<local::AppliedClaim>> applied = local::Scheduler(*directory).Apply(*text);
    if (!applied.ok()) return Fail(Annotate(applied.status(), file));
    for (const local::AppliedClaim& claim : *applied) {
      if (format == Format::kTable) {
        std::cout << claim.namespace_name << "/" << claim.name << ": " << (claim.created ? "created, UID " : "unchanged, UID ") << claim.uid << "\n";
      }
      values.push_back(json::object{{"claim", Cat(claim.namespace_name, "/", claim.name)},
                                    {"namespace", claim.namespace_name},
                                    {"name", claim.name},
                                    {"uid", claim.uid},
                                    {"created", claim.created}});
    }
  }
  if (format == Format::kJson) PrintJson(json::object{{"claims", std::move(values)}});
  return kSuccess;
}

int LocalAllocate(const Target& target, Format format, const std::vector<std::string>& claims) {
  return ForEachClaim(target, format, claims, [](const local::Directory& directory, const ClaimName& name) -> absl::StatusOr<Outcome> {
    TRANCHE_ASSIGN_OR_RETURN(const Claim claim, local::Scheduler(directory).Allocate(name.namespace_name, name.name));
    Outcome outcome{.value = {{"uid", claim.uid}}, .line = "allocated"};
    if (!claim.allocation.has_value()) return outcome;
    outcome.value["allocation"] = EncodeAllocation(*claim.allocation);
    for (const AllocationResult& result : claim.allocation->results) Append(outcome.line, ", ", Where(result));
    return outcome;
  });
}

int LocalPrepare(const Target& target, Format format, const std::vector<std::string>& claims) {
  return ForEachClaim(target, format, claims, [](const local::Directory& directory, const ClaimName& name) -> absl::StatusOr<Outcome> {
    TRANCHE_ASSIGN_OR_RETURN(const local::PreparedClaim prepared, local::Kubelet(directory).Prepare(name.namespace_name, name.name, DeadlineIn(kCallDeadline)));
    Outcome outcome{.value = {{"uid", prepared.uid}}, .line = "prepared"};
    json::array drivers;
    for (const local::PreparedByDriver& driver : prepared.drivers) {
      drivers.push_back(json::object{{"driver", driver.driver}, {"devices", EncodeDevices(driver.devices)}});
      for (const claims::PreparedDevice& device : driver.devices) {
        for (const std::string& id : device.cdi_device_ids) Append(outcome.line, ", ", id);
      }
    }
    outcome.value["drivers"] = std::move(drivers);
    return outcome;
  });
}

int LocalUnprepare(const Target& target, Format format, const std::vector<std::string>& claims) {
  return ForEachClaim(target, format, claims, [](const local::Directory& directory, const ClaimName& name) -> absl::StatusOr<Outcome> {
    TRANCHE_RETURN_IF_ERROR(local::Kubelet(directory).Unprepare(name.namespace_name, name.name, DeadlineIn(kCallDeadline)));
    return Outcome{.value = {{"unprepared", true}}, .line = "unprepared"};
  });
}

int LocalDelete(const Target& target, Format format, const std::vector<std::string>& claims) {
  return ForEachClaim(target, format, claims, [](const local::Directory& directory, const ClaimName& name) -> absl::StatusOr<Outcome> {
    TRANCHE_RETURN_IF_ERROR(local::Scheduler(directory).Delete(name.namespace_name, name.name));
    return Outcome{.value = {{"deleted", true}}, .line = "deleted"};
  });
}

int LocalAttach(const Target& target, Format format, const std::string& claim, const std::string& netns) {
  return ForEachClaim(target, format, {claim}, [&](const local::Directory& directory, const ClaimName& name) -> absl::StatusOr<Outcome> {
    TRANCHE_ASSIGN_OR_RETURN(const local::Attachment attachment, local::Runtime(directory).Attach(name.namespace_name, name.name, NamespacePath(netns)));
    json::array ids, hooks, environment;
    for (const std::string& id : attachment.cdi_device_ids) ids.emplace_back(id);
    for (const std::string& hook : attachment.hooks) hooks.emplace_back(hook);
    for (const std::string& variable : attachment.environment) environment.emplace_back(variable);
    return Outcome{.value = {{"cdiDeviceIDs", std::move(ids)}, {"hooks", std::move(hooks)}, {"environment", std::move(environment)}},
                   .line = Cat("attached to ", netns, ", ", attachment.hooks.size(), " hooks ran")};
  });
}

int LocalList(const Target& target, Format format) {
  const absl::StatusOr<local::Directory> directory = target.Directory();
  if (!directory.ok()) return Fail(directory.status());
  const absl::StatusOr<std::vector<Claim>> claims = directory->ReadClaims();
  if (!claims.ok()) return Fail(claims.status());
  const absl::StatusOr<std::vector<local::PreparedClaim>> prepared = local::Kubelet(*directory).Prepared();
  if (!prepared.ok()) return Fail(prepared.status());
  Table table({"NAMESPACE", "CLAIM", "UID", "STATE", "ALLOCATION"});
  json::array values;
  for (const Claim& claim : *claims) {
    const bool is_prepared =
        std::any_of(prepared->begin(), prepared->end(), [&](const local::PreparedClaim& item) { return item.uid == claim.uid && item.prepared; });
    const std::string state = is_prepared ? "prepared" : claim.allocation.has_value() ? "allocated" : "pending";
    std::string where;
    if (claim.allocation.has_value()) {
      for (const AllocationResult& result : claim.allocation->results) Append(where, where.empty() ? "" : "; ", Where(result));
    }
    table.Add({claim.namespace_name, claim.name, claim.uid, state, where});
    values.push_back(json::object{{"state", state}, {"object", EncodeClaim(claim)}});
  }
  if (format == Format::kJson) {
    PrintJson(json::object{{"claims", std::move(values)}});
  } else {
    std::cout << table.Text();
  }
  return kSuccess;
}

}  // namespace tranche::ctl
