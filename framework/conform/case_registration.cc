#include <algorithm>
#include <chrono>

#include "base/ids.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kGetInfoTime = 1s;
constexpr std::size_t kMaxSocketPath = 107, kMaxDriverName = 63;

bool Lists(const Info& info, std::string_view service) { return std::find(info.versions.begin(), info.versions.end(), service) != info.versions.end(); }

std::string Listed(const Info& info) {
  std::string text;
  for (const std::string& version : info.versions) Append(text, text.empty() ? "" : ", ", version);
  return text.empty() ? "nothing is listed" : Cat("listed: ", text);
}

absl::StatusOr<Info> AskTimed(Session& session) {
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<Info> info = Registration(session.registration_socket).GetInfo(DeadlineIn(10s));
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  const std::string seen = Cat("answered after ", took.count(), " ms");
  if (!info.ok()) {
    session.report.Fail("D-1", std::string(info.status().message()));
  } else if (took > kGetInfoTime) {
    session.report.Fail("D-1", seen);
  } else {
    session.report.Pass("D-1", seen);
  }
  return info;
}

std::string EndpointProblem(const std::string& endpoint) {
  if (endpoint.front() != '/') return Cat("\"", endpoint, "\" is no absolute path");
  if (endpoint.size() > kMaxSocketPath) return Cat("\"", endpoint, "\" has ", endpoint.size(), " bytes");
  const absl::Status connected = TryConnect(endpoint);
  return connected.ok() ? "" : std::string(connected.message());
}

// Whether a version is served, however it is listed: Unimplemented is gRPC's own word for a service that is not there.
std::string ServiceProblem(Session& session, Version version) {
  const absl::Status called = session.plugin->Unprepare(version, {}, DeadlineIn(10s)).status;
  const bool absent = absl::IsUnimplemented(called) || absl::IsUnavailable(called) || absl::IsDeadlineExceeded(called);
  return absent ? std::string(called.message()) : "";
}

void JudgeVersions(Session& session, bool is_reachable) {
  const Info& info = session.info;
  const bool stable = Lists(info, "v1.DRAPlugin"), beta = Lists(info, "v1beta1.DRAPlugin");
  session.report.Judge("D-4", stable || beta ? "" : Listed(info));
  const auto first =
      std::find_if(info.versions.begin(), info.versions.end(), [](const std::string& v) { return v == "v1.DRAPlugin" || v == "v1beta1.DRAPlugin"; });
  const auto unlisted = [&](Version version) { return is_reachable && ServiceProblem(session, version).empty() ? "; it is served all the same" : ""; };
  session.report.Judge("D-5", !stable ? Cat(Listed(info), unlisted(Version::kV1)) : *first != "v1.DRAPlugin" ? Listed(info) : "");
  session.report.Judge("D-6", beta ? "" : Cat(Listed(info), unlisted(Version::kV1Beta1)));
  for (const Version version : {Version::kV1, Version::kV1Beta1}) {
    if (!Lists(info, ServiceName(version))) continue;
    session.versions.push_back(version);
    if (!is_reachable) continue;
    const std::string problem = ServiceProblem(session, version);
    session.report.Judge("D-7", problem.empty() ? "" : Cat(ServiceName(version), ": ", problem));
  }
  if (!is_reachable) session.Skip({"D-7"}, "nobody listens at the endpoint");
  if (session.versions.empty()) session.Skip({"D-7"}, Listed(info));
}

}  // namespace

bool ExamineRegistration(Session& session) {
  Report& report = session.report;
  const absl::StatusOr<Info> info = AskTimed(session);
  if (!info.ok()) return false;
  session.info = *info;
  report.Judge("D-2", info->type == "DRAPlugin" ? "" : Cat("type is \"", info->type, "\""));
  report.Judge("D-3", IsDnsSubdomain(info->name) && info->name.size() <= kMaxDriverName ? "" : Cat("the name is \"", info->name, "\""));
  session.endpoint = info->endpoint.empty() ? session.registration_socket : info->endpoint;
  const std::string endpoint = EndpointProblem(session.endpoint);
  endpoint.empty() ? report.Pass("D-8", Cat(session.endpoint, ", ", session.endpoint.size(), " bytes")) : report.Fail("D-8", endpoint);
  session.Connect();
  JudgeVersions(session, endpoint.empty());
  const absl::Status notified = Registration(session.registration_socket).Notify("", DeadlineIn(5s));
  report.Judge("D-9", std::string(notified.message()));
  const absl::StatusOr<Info> again = Registration(session.registration_socket).GetInfo(DeadlineIn(10s));
  report.Judge("D-10", !again.ok()       ? std::string(again.status().message())
                       : *again == *info ? ""
                                         : Cat("name ", again->name, ", endpoint ", again->endpoint, ", ", Listed(*again)));
  return endpoint.empty() && !session.versions.empty();
}

}  // namespace tranche::dra_conform
