#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "conform/cases.h"

namespace tranche::dra_conform {

void ExamineHealth(Session& session) {
  bool any_listed = false, all_listed = true;
  for (const std::string service : {"v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"}) {
    const bool listed = std::find(session.info.versions.begin(), session.info.versions.end(), service) != session.info.versions.end();
    any_listed = any_listed || listed;
    all_listed = all_listed && listed;
    const absl::StatusOr<int> first = session.plugin->FirstHealth(service, DeadlineIn(std::chrono::seconds(5)));
    const bool unimplemented = absl::IsUnimplemented(first.status());
    if (!listed) {
      session.report.Judge("D-53", unimplemented ? "" : Cat(service, first.ok() ? ": it is served" : Cat(": ", View(first.status().message()))));
    } else if (first.ok() || unimplemented) {
      session.report.Pass("D-52", Cat(service, ": ", first.ok() ? Cat(*first, " devices") : "not supported"));
    } else {
      session.report.Fail("D-52", Cat(service, ": ", View(first.status().message())));
    }
  }
  if (!any_listed) session.Skip({"D-52"}, "no health service is listed");
  if (all_listed) session.Skip({"D-53"}, "both health services are listed");
}

}  // namespace tranche::dra_conform
