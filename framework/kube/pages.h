// Collections in pages. Internal to the room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/object.hpp>

namespace tranche::kube {

// "/a?x=1" and "watch=1" to "/a?x=1&watch=1".
std::string WithQuery(std::string_view path, std::string_view parameters);

// Collects the pages of one list, whoever fetches them:
//   while (!collector.done()) { fetch collector.NextPath(); collector.Add(object) or collector.Expired(); }
class PageCollector {
 public:
  explicit PageCollector(std::string path) : path_(std::move(path)) {}

  bool done() const { return done_; }
  std::string NextPath() const;
  // DataLoss where the object is no list.
  absl::Status Add(boost::json::object list);
  // 410 in the middle: the rest of that list is gone. True: begin anew, which this now does; false: the error stands.
  bool Expired();

  std::vector<boost::json::object> TakeItems() { return std::move(items_); }
  const std::string& resource_version() const { return resource_version_; }

 private:
  const std::string path_;
  std::string continue_, resource_version_;
  std::vector<boost::json::object> items_;
  int restarts_ = 0;
  bool done_ = false;
};

}  // namespace tranche::kube
