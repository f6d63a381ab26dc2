#include "ctl/backend_report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "ctl/output.h"
#include "model/json.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxNames = 4;  // of devices in one row

void ForEachLine(const std::string& log, const std::function<void(const json::value&)>& take) {
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = std::min(log.find('\n', at), log.size());
    if (const absl::StatusOr<json::value> line = ParseJson(log.substr(at, end - at)); line.ok()) take(*line);
    at = end + 1;
  }
}

// By physical device. The host serves without verdicts and logs those that a backend gives.
std::map<std::string, std::string> Verdicts(const std::string& log) {
  std::map<std::string, std::string> verdicts;
  ForEachLine(log, [&](const json::value& line) {
    const absl::StatusOr<json::value> verdict = ParseJson(Text(line, "verdict"));
    if (!verdict.ok()) return;
    const std::string message = Text(*verdict, "message");
    verdicts[Text(*verdict, "device")] = Cat(Text(*verdict, "verdict"), message.empty() ? "" : ": ", message);
  });
  return verdicts;
}

std::string Names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMaxNames; ++i) Append(text, i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMaxNames) Append(text, " and ", names.size() - kMaxNames, " more");
  return text;
}

// What the host says of the only backend; "" when it serves.
std::string ProblemOf(const json::value& status) {
  const std::vector<json::value> backends = Items(status, "backends");
  const json::value& problem = backends.empty() ? json::value() : Member(backends.front(), "problem");
  return problem.is_object() ? Cat(Text(problem, "code"), ": ", Text(problem, "message")) : std::string();
}

void AddName(std::vector<std::string>& names, std::string name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
}

// One row for each reason: eight devices that are whole only are no eight problems, and a refused backend is one for all modes.
std::string NotPublished(const json::value& devices, const json::value& status) {
  struct Row {
    std::string reason;
    std::vector<std::string> modes, physical;
  };
  std::vector<Row> rows;
  for (const json::value& item : Items(devices, "withheld")) {
    const std::string problem = Text(item, "physical").empty() ? ProblemOf(status) : "";
    const std::string reason = problem.empty() ? Text(item, "reason") : problem;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& known) { return known.reason == reason; });
    if (row == rows.end()) row = rows.insert(row, {reason, {}, {}});
    AddName(row->modes, Text(item, "offer"));
    AddName(row->physical, Text(item, "physical"));
  }
  Table table({"NOT PUBLISHED", "DEVICES", "REASON"});
  for (const Row& row : rows) table.Add({Names(row.modes), row.physical.empty() ? "all" : Names(row.physical), row.reason});
  return table.empty() ? "" : Cat("\n", table.Text());
}

void AddEdits(Table& table, const json::value& edits) {
  for (const json::value& variable : Items(edits, "env")) table.Add({"env", variable.is_string() ? std::string(variable.get_string()) : std::string()});
  for (const json::value& node : Items(edits, "deviceNodes")) {
    const std::string host = Text(node, "hostPath"), permissions = Text(node, "permissions");
    table.Add({"device node", Cat(Text(node, "path"), host.empty() ? "" : " from ", host, permissions.empty() ? "" : " ", permissions)});
  }
  for (const json::value& mount : Items(edits, "mounts")) {
    std::string options;
    for (const json::value& option : Items(mount, "options")) Append(options, " ", option.is_string() ? std::string(option.get_string()) : std::string());
    table.Add({"mount", Cat(Text(mount, "hostPath"), " on ", Text(mount, "containerPath"), options)});
  }
  for (const json::value& hook : Items(edits, "hooks")) { table.Add({"hook", Cat(Text(hook, "hookName"), ": ", Text(hook, "path"), " ", Text(hook, "args"))}); }
  for (const json::value& device : Items(edits, "netDevices")) {
    table.Add({"network device", Cat(Text(device, "hostInterfaceName"), " as ", Text(device, "name"))});
  }
}

}  // namespace

std::string DevicesReport(const json::value& devices, const json::value& status, const std::string& log) {
  const std::map<std::string, std::string> verdicts = Verdicts(log);
  Table table({"DEVICE", "MODE", "ENFORCEMENT", "CAPACITY", "PUBLISHED", "FREE", "HEALTH"});
  for (const json::value& device : Items(devices, "devices")) {
    std::string health = Text(device, "healthReason");
    if (const auto verdict = verdicts.find(Text(device, "physical")); health.empty() && verdict != verdicts.end()) health = verdict->second;
    if (health.empty()) health = "not reported";
    std::vector<json::value> capacities = Items(device, "capacity");
    if (capacities.empty()) capacities.emplace_back(json::object());
    for (const json::value& capacity : capacities) {
      table.Add({Text(device, "name"), Text(device, "mode"), Text(device, "enforcement"), Text(capacity, "name"), Text(capacity, "published"),
                 Text(capacity, "free"), std::exchange(health, "")});
    }
  }
  return Cat(table.empty() ? "none\n" : table.Text(), NotPublished(devices, status));
}

std::string EditsReport(const json::value& shares) {
  Table table({"IN THE CONTAINER", "WHAT"});
  for (const json::value& share : Items(shares, "shares")) AddEdits(table, Member(Member(share, "applied"), "containerEdits"));
  return table.empty() ? "the container gets nothing: the share has no edits\n" : table.Text();
}

std::string ProblemsReport(const std::string& log) {
  std::string text;
  ForEachLine(log, [&](const json::value& line) {
    const std::string level = Text(line, "level");
    if (level != "warning" && level != "error" && level != "critical") return;
    Append(text, "  ", level, ": ", Text(line, "message"));
    for (const auto& [key, value] : line.as_object()) {
      if (key == "time" || key == "level" || key == "message") continue;
      Append(text, "; ", std::string_view(key), " ", value.is_string() ? std::string(value.get_string()) : ToJsonText(value));
    }
    text += "\n";
  });
  return text;
}

}  // namespace tranche::ctl
