// Collects what the planner reports: equal findings of many devices are one, and a flood is cut. Internal to the room.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "slices/planner.h"

namespace tranche::slices {

class Problems {
 public:
  void Add(ProblemKind kind, const std::string& device, std::string field, std::string message) {
    const auto [entry, added] = index_.emplace(std::tuple(kind, field, message), list_.size());
    if (!added) {
      if (entry->second < list_.size()) ++list_[entry->second].devices;
      return;
    }
    if (list_.size() < kMaxProblems) {
      list_.push_back({kind, device, std::move(field), std::move(message), 1});
      return;
    }
    index_.erase(entry);
    ++more_;
  }

  std::vector<Problem> Take() {
    if (more_ > 0) list_.push_back({ProblemKind::kOmitted, "", "", Cat(more_, " more findings are not listed"), more_});
    return std::move(list_);
  }

 private:
  static constexpr std::size_t kMaxProblems = 200;
  std::map<std::tuple<ProblemKind, std::string, std::string>, std::size_t> index_;
  std::vector<Problem> list_;
  std::size_t more_ = 0;
};

}  // namespace tranche::slices
