#include "ctl/show.h"

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "ctl/local_commands.h"
#include "local/scheduler.h"
#include "model/json.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

json::object Params(const Filter& filter) {
  json::object params;
  if (!filter.claim.empty()) params["claim"] = filter.claim;
  if (!filter.tenant.empty()) params["tenant"] = filter.tenant;
  return params;
}

std::string Problem(const json::value& item) { return Text(Member(item, "problem"), "message"); }

// "50M" for 50000000: base units as a person reads them.
std::string Amount(const json::value& number) {
  if (!number.is_int64()) return "";
  return Quantity::FromInt64(number.get_int64()).ToString();
}

std::string Limits(const json::value& applied) {
  std::string text;
  for (const json::value& limit : Items(applied, "limits")) {
    if (!text.empty()) text += ",";
    const std::string direction = Text(limit, "direction");
    Append(text, Text(limit, "capacity"), direction.empty() ? "" : "/", direction, "=", Amount(Member(limit, "inForce")));
  }
  return text;
}

std::string Sum(const json::value& applied, std::string_view member) {
  std::int64_t sum = 0;
  bool any = false;
  for (const json::value& usage : Items(applied, "usage")) {
    const json::value& number = Member(usage, member);
    if (number.is_int64()) sum += number.get_int64();
    if (number.is_uint64()) sum += static_cast<std::int64_t>(number.get_uint64());
    any = any || number.is_number();
  }
  return any ? Cat(sum) : std::string();
}

void PrintStatus(const json::value& status) {
  const json::value& configuration = Member(status, "configuration");
  std::cout << "node " << Text(status, "node") << ", version " << Text(status, "version") << ", mode " << Text(status, "mode") << ", pid "
            << Text(status, "pid") << ", since " << Text(status, "startedAt") << "\n"
            << "devices " << Text(status, "devices") << " (" << Text(status, "withheld") << " withheld), claims " << Text(status, "claims") << ", shares "
            << Text(status, "shares") << "\n"
            << "configuration " << Text(configuration, "file") << " " << Text(configuration, "version").substr(0, 19) << " since "
            << Text(configuration, "loadedAt") << "\n";
  if (const std::string error = Text(configuration, "lastError"); !error.empty()) { std::cout << "configuration as it is now is refused: " << error << "\n"; }
  if (const std::vector<json::value> unknown = Items(status, "unknownShares"); !unknown.empty()) {
    std::cout << "PROBLEM: " << unknown.size()
              << " shares are in force that the store knows nothing of (is it new, emptied or restored?). They stay until their "
              << "claims are prepared or unprepared, or 'tranchectl release-unknown --claim-uid UID | --all':\n";
    for (const json::value& share : unknown) std::cout << "  backend " << Text(share, "backend") << ": " << Pairs(Member(share, "key")) << "\n";
  }
  const json::value& reconcile = Member(status, "reconcile");
  std::cout << "reconciled " << Text(reconcile, "lastAt") << " " << Pairs(Member(reconcile, "repairs")) << Problem(reconcile) << "\n\n";
  Table backends({"BACKEND", "LIBRARY", "VERSION", "STATE", "ISOLATION", "DEVICES", "PROBLEM"});
  for (const json::value& backend : Items(status, "backends")) {
    const std::string wanted = Text(backend, "requestedIsolation"), real = Text(backend, "isolation");
    backends.Add({Text(backend, "name"), Text(backend, "library"), Text(backend, "version"), Text(backend, "state"),
                  wanted == real || Text(backend, "state") == "refused" ? wanted : Cat(real, " (", wanted, " asked)"), Text(backend, "devices"),
                  Problem(backend)});
  }
  Table drivers({"DRIVER", "STATE", "SOCKET", "PROBLEM"});
  for (const json::value& driver : Items(status, "drivers")) {
    drivers.Add({Text(driver, "name"), Text(driver, "state"), Text(driver, "socket"), Problem(driver)});
  }
  std::cout << backends.Text() << "\n" << drivers.Text();
  const json::value& plane = Member(status, "controlPlane");
  const std::vector<json::value> published = Items(plane, "drivers");
  if (published.empty()) return;
  Table slices({"PUBLISHED BY", "GENERATION", "SLICES", "WANTED", "PROBLEM"});
  for (const json::value& driver : published) {
    slices.Add({Text(driver, "driver"), Text(driver, "generation"), Text(driver, "slicesPublished"), Text(driver, "slicesWanted"), Problem(driver)});
  }
  std::cout << "\n" << slices.Text();
  if (const std::string problem = Problem(plane); !problem.empty()) std::cout << "API server: " << problem << "\n";
  for (const json::value& driver : published) {
    for (const json::value& problem : Items(driver, "problems")) {
      std::cout << Text(driver, "driver") << ": " << (problem.is_string() ? std::string(problem.as_string()) : std::string()) << "\n";
    }
  }
}

void PrintDevices(const json::value& answer) {
  Table devices({"DEVICE", "OFFER", "MODE", "ENFORCEMENT", "SHARES", "CAPACITY", "PUBLISHED", "RESERVED", "ALLOCATED", "FREE", "HEALTH", "NOTE"});
  for (const json::value& device : Items(answer, "devices")) {
    std::string note = Text(device, "draining") == "true" ? "draining: no new claim" : Text(device, "blockedBy");
    if (const std::string reason = Text(device, "healthReason"); !reason.empty()) note = reason;
    std::string health = Text(device, "health");
    std::vector<std::string> first = {Cat(Text(device, "driver"), "/", Text(device, "pool"), "/", Text(device, "name")), Text(device, "offer"),
                                      Text(device, "mode"), Text(device, "enforcement"), Text(device, "shares")};
    std::vector<json::value> capacities = Items(device, "capacity");
    if (capacities.empty()) capacities.emplace_back(json::object());
    for (const json::value& capacity : capacities) {
      std::vector<std::string> row = first;
      for (const char* key : {"name", "published", "reserved", "allocated", "free"}) row.push_back(Text(capacity, key));
      row.push_back(std::exchange(health, ""));
      row.push_back(std::exchange(note, ""));
      devices.Add(std::move(row));
    }
  }
  std::cout << devices.Text();
  Table withheld({"NOT PUBLISHED", "OFFER", "BACKEND", "REASON"});
  for (const json::value& item : Items(answer, "withheld")) {
    withheld.Add({Text(item, "physical"), Cat(Text(item, "driver"), "/", Text(item, "offer")), Text(item, "backend"), Text(item, "reason")});
  }
  if (!withheld.empty()) std::cout << "\n" << withheld.Text();
}

void PrintClaims(const json::value& answer) {
  Table table({"NAMESPACE", "CLAIM", "UID", "DRIVER", "STATE", "SHARES", "UPDATED", "REASON"});
  for (const json::value& claim : Items(answer, "claims")) {
    table.Add({Text(claim, "namespace"), Text(claim, "name"), Text(claim, "uid"), Text(claim, "driver"), Text(claim, "state"),
               Cat(Items(claim, "shares").size()), Text(claim, "updatedAt"), Text(claim, "reason")});
  }
  std::cout << table.Text();
}

void PrintShares(const json::value& answer) {
  Table table({"NAMESPACE", "CLAIM", "REQUEST", "DEVICE", "SHARE", "STATE", "CONSUMED", "LIMIT IN FORCE", "BYTES", "DROPS", "PROBLEM"});
  for (const json::value& share : Items(answer, "shares")) {
    const json::value& live = Member(share, "live");
    const json::value& applied = live.is_object() ? Member(live, "applied") : Member(share, "applied");
    table.Add({Text(share, "namespace"), Text(share, "claim"), Text(share, "request"), Text(share, "device"), Text(share, "shareID"), Text(share, "state"),
               Pairs(Member(share, "consumedCapacity")), Limits(applied), Sum(applied, "used"), Sum(applied, "drops"), Problem(live)});
  }
  std::cout << table.Text();
}

void PrintAudit(const json::value& answer) {
  Table table({"ID", "AT", "ACTOR", "ACTION", "TENANT", "CLAIM", "SHARE", "CAPACITY", "OUTCOME", "MESSAGE"});
  for (const json::value& record : Items(answer, "records")) {
    table.Add({Text(record, "id"), Text(record, "at"), Text(record, "actor"), Text(record, "action"), Text(record, "tenant"), Text(record, "claim"),
               Text(record, "shareID"), Pairs(Member(record, "capacity")), Text(record, "outcome"),
               Member(record, "problem").is_string() ? Cat("DAMAGED: ", Text(record, "problem")) : Text(record, "message")});
  }
  std::cout << table.Text();
}

template <typename Print>
int Show(const absl::StatusOr<json::value>& answer, Format format, const Print& print) {
  if (!answer.ok()) return Fail(answer.status());
  if (format == Format::kJson) {
    PrintJson(*answer);
  } else {
    print(*answer);
  }
  return kSuccess;
}

json::value EncodeObstacle(const capacity::Obstacle& obstacle) {
  const auto text = [](const std::optional<Quantity>& quantity) { return quantity.has_value() ? json::value(quantity->ToString()) : json::value(nullptr); };
  return json::object{
      {"request", obstacle.request},           {"device", obstacle.device},         {"capacity", obstacle.capacity}, {"asked", text(obstacle.asked)},
      {"available", text(obstacle.available)}, {"missing", text(obstacle.missing)}, {"reason", obstacle.reason}};
}

json::value EncodeExplanation(const local::Explanation& explanation) {
  json::array obstacles;
  for (const capacity::Obstacle& obstacle : explanation.obstacles) obstacles.push_back(EncodeObstacle(obstacle));
  json::object value{{"namespace", explanation.claim.namespace_name},
                     {"claim", explanation.claim.name},
                     {"uid", explanation.claim.uid},
                     {"fits", explanation.fits},
                     {"allocated", explanation.claim.allocation.has_value()},
                     {"refused", explanation.refused.ok() ? json::value(nullptr)
                                                          : json::value(json::object{{"code", CodeName(explanation.refused.code())},
                                                                                     {"message", View(explanation.refused.message())}})},
                     {"obstacles", std::move(obstacles)}};
  if (explanation.allocation.has_value()) value["allocation"] = EncodeAllocation(*explanation.allocation);
  return value;
}

void PrintExplanation(const local::Explanation& explanation) {
  std::cout << explanation.text;
  if (!explanation.text.empty() && explanation.text.back() != '\n') std::cout << "\n";
  if (explanation.obstacles.empty()) return;
  Table table({"REQUEST", "DEVICE", "CAPACITY", "ASKED", "AVAILABLE", "MISSING", "REASON"});
  const auto text = [](const std::optional<Quantity>& quantity) { return quantity.has_value() ? quantity->ToString() : std::string(); };
  for (const capacity::Obstacle& obstacle : explanation.obstacles) {
    table.Add({obstacle.request, obstacle.device, obstacle.capacity, text(obstacle.asked), text(obstacle.available), text(obstacle.missing), obstacle.reason});
  }
  std::cout << "\n" << table.Text();
}

}  // namespace

int ShowStatus(const Target& target, Format format) { return Show(Ask(target, "status", json::object()), format, PrintStatus); }
int ShowDevices(const Target& target, Format format) { return Show(Ask(target, "devices", json::object()), format, PrintDevices); }

int ShowClaims(const Target& target, Format format, const Filter& filter) { return Show(AskOrRead(target, "claims", Params(filter)), format, PrintClaims); }

int ShowShares(const Target& target, Format format, const Filter& filter) {
  json::object params = Params(filter);
  params["verify"] = filter.verify;
  const absl::StatusOr<json::value> answer = AskOrRead(target, "shares", params);
  const int shown = Show(answer, format, PrintShares);
  if (shown != kSuccess) return shown;
  const json::value& failed = Member(*answer, "failed");
  return failed.is_int64() && failed.get_int64() > 0 ? kFailure : kSuccess;
}

int ShowAudit(const Target& target, Format format, const Filter& filter) {
  json::object params = Params(filter);
  params["after"] = filter.after;
  params["limit"] = filter.limit;
  return Show(AskOrRead(target, "audit", params), format, PrintAudit);
}

int ShowReconcile(const Target& target, Format format, const std::string& backend) {
  return Show(Ask(target, "reconcile", json::object{{"backend", backend}}), format, [](const json::value& answer) {
    Table table({"REPAIR", "SHARE", "DETAIL"});
    for (const json::value& repair : Items(answer, "repairs")) table.Add({Text(repair, "what"), Pairs(Member(repair, "key")), Text(repair, "detail")});
    std::cout << (table.empty() ? "nothing differs\n" : table.Text());
  });
}

int ReleaseUnknown(const Target& target, Format format, const std::string& claim_uid) {
  return Show(Ask(target, "release-unknown", json::object{{"claimUID", claim_uid}}), format, [](const json::value& answer) {
    Table table({"RELEASED"});
    for (const json::value& key : Items(answer, "released")) table.Add({Pairs(key)});
    std::cout << (table.empty() ? "nothing unknown is in force\n" : table.Text());
  });
}

int Explain(const Target& target, Format format, const std::string& claim) {
  const absl::StatusOr<ClaimName> name = ParseClaimName(claim);
  if (!name.ok()) return Fail(name.status());
  const absl::StatusOr<local::Directory> directory = target.Directory();
  if (!directory.ok()) return Fail(directory.status());
  const absl::StatusOr<local::Explanation> explanation = local::Scheduler(*directory).Explain(name->namespace_name, name->name);
  if (!explanation.ok()) return Fail(explanation.status());
  if (format == Format::kJson) {
    PrintJson(EncodeExplanation(*explanation));
  } else {
    PrintExplanation(*explanation);
  }
  return explanation->fits ? kSuccess : kFailure;
}

}  // namespace tranche::ctl
