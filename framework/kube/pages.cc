#include "kube/pages.h"

#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "kube/client.h"

namespace tranche::kube {
namespace json = boost::json;

namespace {

constexpr int kPageSize = 500;
// A list that expires this often changes faster than it is read page by page: then it is read at once.
constexpr int kPagedTries = 3;
constexpr int kTries = 6;

std::string TextOf(const json::object& object, std::string_view field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr || !value->is_string()) return "";
  return {value->get_string().data(), value->get_string().size()};
}

// Servers leave kind and apiVersion out of a list's items; alone, an object needs them.
void NameKind(const json::object& list, json::object& item) {
  std::string kind = TextOf(list, "kind");
  const std::string version = TextOf(list, "apiVersion");
  if (!kind.ends_with("List") || kind == "List" || version.empty()) return;
  kind.resize(kind.size() - 4);
  if (!item.contains("kind")) item["kind"] = kind;
  if (!item.contains("apiVersion")) item["apiVersion"] = version;
}

}  // namespace

std::string WithQuery(std::string_view path, std::string_view parameters) {
  return Cat(path, path.find('?') == std::string_view::npos ? "?" : "&", parameters);
}

std::string PageCollector::NextPath() const {
  if (restarts_ >= kPagedTries) return path_;
  std::string path = WithQuery(path_, Cat("limit=", kPageSize));
  if (!continue_.empty()) Append(path, "&continue=", Escape(continue_));
  return path;
}

absl::Status PageCollector::Add(json::object list) {
  json::value* items = list.if_contains("items");
  const json::value* metadata = list.if_contains("metadata");
  if (metadata == nullptr || !metadata->is_object()) return absl::DataLossError(Cat("GET ", path_, ": the answer is no list: it has no metadata"));
  if (items != nullptr && items->is_array()) {
    for (json::value& item : items->get_array()) {
      if (!item.is_object()) return absl::DataLossError(Cat("GET ", path_, ": the list holds what is not an object"));
      NameKind(list, item.get_object());
      items_.push_back(std::move(item.get_object()));
    }
  } else if (items != nullptr && !items->is_null()) {
    return absl::DataLossError(Cat("GET ", path_, ": the answer's items are no list"));
  }
  resource_version_ = TextOf(metadata->get_object(), "resourceVersion");
  continue_ = TextOf(metadata->get_object(), "continue");
  done_ = continue_.empty();
  return absl::OkStatus();
}

bool PageCollector::Expired() {
  if (continue_.empty() || ++restarts_ >= kTries) return false;
  continue_.clear();
  items_.clear();
  return true;
}

}  // namespace tranche::kube
