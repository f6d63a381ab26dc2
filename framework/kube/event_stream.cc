#include "kube/event_stream.h"

#include <array>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "kube/answer.h"

namespace tranche::kube {
namespace json = boost::json;

namespace {

constexpr std::string_view kWhat = "watch event";

StreamEventKind KindOf(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, StreamEventKind>, 5> kKinds{{
      {"ADDED", StreamEventKind::kAdded},
      {"MODIFIED", StreamEventKind::kModified},
      {"DELETED", StreamEventKind::kDeleted},
      {"BOOKMARK", StreamEventKind::kBookmark},
      {"ERROR", StreamEventKind::kError},
  }};
  for (const auto& [name, kind] : kKinds) {
    if (name == type) return kind;
  }
  return StreamEventKind::kUnknown;
}

std::string VersionOf(const json::object& object) {
  const json::value* metadata = object.if_contains("metadata");
  if (metadata == nullptr || !metadata->is_object()) return "";
  const json::value* version = metadata->get_object().if_contains("resourceVersion");
  if (version == nullptr || !version->is_string()) return "";
  return {version->get_string().data(), version->get_string().size()};
}

}  // namespace

absl::Status LineSplitter::TooLong() {
  held_ = std::string();
  return absl::ResourceExhaustedError(Cat("a watch event is larger than ", max_line_bytes_, " bytes"));
}

absl::StatusOr<StreamEvent> DecodeEvent(std::string_view line) {
  TRANCHE_ASSIGN_OR_RETURN(json::object whole, ParseObject(line, kWhat));
  const json::value* type = whole.if_contains("type");
  json::value* object = whole.if_contains("object");
  if (type == nullptr || !type->is_string()) return absl::DataLossError(Cat(kWhat, ": it has no type"));
  StreamEvent event;
  event.kind = KindOf({type->get_string().data(), type->get_string().size()});
  if (event.kind == StreamEventKind::kUnknown) return event;
  if (object == nullptr || !object->is_object()) return absl::DataLossError(Cat(kWhat, ": it has no object"));
  event.object = std::move(object->get_object());
  if (event.kind == StreamEventKind::kError) {
    event.error = DescribeStatusObject(event.object, 0, "the watch ended").status;
    if (event.error.code() == absl::StatusCode::kOutOfRange) event.kind = StreamEventKind::kGone;
    return event;
  }
  event.resource_version = VersionOf(event.object);
  if (event.resource_version.empty()) return absl::DataLossError(Cat(kWhat, ": its object has no metadata.resourceVersion"));
  return event;
}

}  // namespace tranche::kube
