#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kStartTime = 60s;

// "" when the driver answers again.
std::string Restart(Session& session) {
  if (const int status = std::system(session.options.restart_command.c_str()); status != 0) return Cat("the restart command ended with status ", status);
  const Deadline patience = DeadlineIn(kStartTime);
  absl::Status last;
  while (!Passed(patience)) {
    const absl::StatusOr<std::string> socket = FindRegistrationSocket(session.options);
    const absl::StatusOr<Info> info = socket.ok() ? Registration(*socket).GetInfo(DeadlineIn(1s)) : absl::StatusOr<Info>(socket.status());
    if (info.ok()) {
      session.registration_socket = *socket;
      session.endpoint = info->endpoint.empty() ? *socket : info->endpoint;
      session.Connect();
      return "";
    }
    last = info.status();
    std::this_thread::sleep_for(100ms);
  }
  return Cat("the driver did not come back: ", View(last.message()));
}

bool TakeSpecs(Session& session, const std::vector<std::string>& ids) {
  bool taken = false;
  for (const std::string& id : ids) {
    const absl::StatusOr<std::string> file = session.cdi.Find(id);
    taken = (file.ok() && RemoveFile(*file).ok()) || taken;
  }
  return taken;
}

// A driver may need a while until it knows its devices; a kubelet would retry.
Reply PrepareUntilGranted(Claims& claims, const ClaimReference& claim, std::chrono::milliseconds ready) {
  const Deadline patience = DeadlineIn(ready);
  Reply reply = claims.Prepare(claim);
  while (!reply.Ok(claim.uid) && !Passed(patience)) {
    std::this_thread::sleep_for(500ms);
    reply = claims.Prepare(claim);
  }
  return reply;
}

}  // namespace

void ExamineRestart(Session& session) {
  if (!session.no_claims.empty()) return;
  if (session.options.restart_command.empty()) return session.Skip({"D-58", "D-59", "D-60"}, "no --restart-command");
  Claims claims(session);
  std::vector<ClaimReference> held;
  std::vector<std::vector<Device>> devices;
  for (const Want& want : session.Wants(2)) {
    const absl::StatusOr<ClaimReference> claim = claims.Make({{want}});
    if (!claim.ok()) return session.Skip({"D-58", "D-59", "D-60"}, std::string(claim.status().message()));
    const Reply reply = claims.Prepare(*claim);
    if (!reply.Ok(claim->uid)) return session.Skip({"D-58", "D-59", "D-60"}, reply.Why(claim->uid));
    held.push_back(*claim);
    devices.push_back(reply.Devices(claim->uid));
  }
  const std::vector<std::string> ids = OwnCdiIds(held.front(), devices.front());
  const bool taken = TakeSpecs(session, ids);
  session.SpecsAreTaken(held.front());
  if (const std::string problem = Restart(session); !problem.empty()) {
    for (const std::string_view rule : {"D-58", "D-59", "D-60"}) session.report.Fail(rule, problem);
    return;
  }
  // The last one is unprepared without being looked at before.
  session.report.Judge("D-60", held.size() > 1 ? claims.Unprepare(held.back()) : "");
  const Reply again = PrepareUntilGranted(claims, held.front(), session.options.patience.ready);
  std::string problem = NotGranted(again, held.front());
  if (problem.empty() && !SameDevices(devices.front(), again.Devices(held.front().uid))) {
    problem = Cat("before ", Describe(devices.front()), "; after ", Describe(again.Devices(held.front().uid)));
  }
  session.report.Judge("D-58", problem);
  if (!taken) session.Skip({"D-59"}, "no CDI spec of the claim's own could be taken away");
  for (const std::string& id : ids) {
    if (taken) session.report.Judge("D-59", std::string(session.cdi.Find(id).status().message()));
  }
  session.report.Judge("D-60", claims.Unprepare(held.front()));
}

}  // namespace tranche::dra_conform
