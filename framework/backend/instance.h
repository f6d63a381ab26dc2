// Where a library runs: the seam between a place (this process, a process of its own) and what is the same for every place: writing
// requests, judging answers (checked_backend.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>

#include "backend/backend.h"
#include "backend/services.h"
#include "runner/wire.h"

namespace tranche::backend {

class Instance {
 public:
  virtual ~Instance() = default;
  // Runs one function of the table; `record` collects what it pushed. Safe from any thread; serialised here unless the library is CONCURRENT.
  // Unimplemented for what the library does not have. Messages do not name the backend or the function: the caller adds both.
  virtual absl::Status Call(runner::Function function, const std::string& argument, CallRecord& record) = 0;
  virtual CallTimes PrepareTimes() const = 0;
  virtual std::map<std::string, std::int64_t> Metrics() const = 0;
  virtual absl::Status Availability() const { return absl::OkStatus(); }
  virtual std::optional<ProcessStatus> Process() const { return std::nullopt; }
};

// Judges every answer: what is wrong is an error of that item or call.
std::shared_ptr<Backend> MakeCheckedBackend(std::string name, PayloadLimits limits, std::unique_ptr<Instance> instance);

}  // namespace tranche::backend
