// CDI specs as a container runtime finds them: every *.json and *.yaml of its directories. Re-read at each question.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tranche::dra_conform {

// "vendor.example.com/class=name" by the letters that the CDI specification allows; "" when it is right, otherwise what is wrong.
std::string CdiIdProblem(std::string_view id);

class CdiFiles {
 public:
  explicit CdiFiles(std::vector<std::string> directories) : directories_(std::move(directories)) {}

  // The file with the device of this id. NotFound names the files that could not be read, if any. A later directory wins, as for a runtime.
  absl::StatusOr<std::string> Find(const std::string& id) const;

 private:
  std::vector<std::string> directories_;
};

}  // namespace tranche::dra_conform
