#include <chrono>

#include <google/protobuf/stubs/logging.h>

#include "base/ids.h"
#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kManyClaims = 1000, kLongName = 100'000;

void ExamineManyClaims(Session& session) {
  std::vector<ClaimReference> many;
  for (std::size_t i = 0; i < kManyClaims; ++i) many.push_back(session.Absent());
  std::string problem;
  for (const Reply& reply : {session.Prepare(many), session.Unprepare(many)}) {
    const bool silent = absl::IsUnavailable(reply.status) || absl::IsDeadlineExceeded(reply.status);
    if (silent && problem.empty()) problem = std::string(reply.status.message());
  }
  if (problem.empty()) problem = session.StillServes();
  session.report.Judge("D-54", problem);
}

void ExamineOddNames(Session& session) {
  const google::protobuf::LogSilencer silence;  // it complains of what is sent here on purpose
  const std::string uid = NewUuid(), name = "dra-conform-absent", space = session.options.namespace_name, big(kLongName, 'a');
  const std::vector<ClaimReference> odd = {{space, name, ""},
                                           {"", "", ""},
                                           {space, "", uid},
                                           {"", name, uid},
                                           {space, name, big},
                                           {space, big, uid},
                                           {big, name, uid},
                                           {space, "../../../../api/v1/nodes", uid},
                                           {"../..", name, uid},
                                           {space, "a/b?c#d", uid},
                                           {space, std::string("a\0b", 3), uid},
                                           {space, name, std::string("a\0b", 3)},
                                           {space, "\xff\xfe", uid},
                                           {space, name, "\xc3\x28"},
                                           {space, name, "%n%s%n"},
                                           {space, "A B\r\n", uid}};
  std::string problem;
  for (const ClaimReference& claim : odd) {
    const Reply reply = session.plugin->Prepare(session.preferred(), {claim}, DeadlineIn(kCallTime));
    const std::string shown =
        Cat("namespace \"", claim.namespace_name.substr(0, 40), "\", name \"", claim.name.substr(0, 40), "\", UID \"", claim.uid.substr(0, 40), "\"");
    if (reply.Ok(claim.uid) && problem.empty()) problem = Cat(shown, ": granted: ", Describe(reply.Devices(claim.uid)));
    const std::string serves = session.StillServes();
    if (!serves.empty() && problem.empty()) problem = Cat("after ", shown, ": ", serves);
  }
  for (const ClaimReference& claim : {odd[0], odd[4]}) {
    (void)session.plugin->Unprepare(session.preferred(), {claim}, DeadlineIn(kCallTime));
    const std::string serves = session.StillServes();
    if (!serves.empty() && problem.empty()) problem = Cat("after unprepare of a UID of ", claim.uid.size(), " bytes: ", serves);
  }
  session.report.Judge("D-55", problem);
}

void ExamineForeignBytes(Session& session) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::vector<std::string> garbage = {"GET / HTTP/1.1\r\n\r\n", std::string(4096, '\xff'), Cat(preface, std::string(4096, '\xff')),
                                            Cat(preface, std::string("\0\0\0\x04\0\0\0\0\0", 9), std::string("\xff\xff\xff\x01\x05\0\0\0\x01", 9)), ""};
  std::string problem;
  for (const std::string& socket : {session.registration_socket, session.endpoint}) {
    for (const std::string& bytes : garbage) {
      if (const absl::Status written = WriteRaw(socket, bytes); !written.ok() && problem.empty()) problem = std::string(written.message());
    }
  }
  if (problem.empty()) problem = session.StillServes();
  session.report.Judge("D-56", problem);
}

void ExamineFailedRegistration(Session& session) {
  // Whether it answers with an error is the driver's choice: the registration failed anyway.
  (void)Registration(session.registration_socket).Notify("told so by dra-conform; the driver is registered", DeadlineIn(5s));
  const absl::StatusOr<Info> info = Registration(session.registration_socket).GetInfo(DeadlineIn(10s));
  session.report.Judge("D-57", std::string(info.status().message()));
  (void)Registration(session.registration_socket).Notify("", DeadlineIn(5s));
}

}  // namespace

void ExamineHostileInput(Session& session) {
  ExamineManyClaims(session);
  ExamineOddNames(session);
  ExamineForeignBytes(session);
  ExamineFailedRegistration(session);
}

}  // namespace tranche::dra_conform
