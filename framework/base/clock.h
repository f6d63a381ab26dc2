// Time seams. Durations inside the code are std::chrono; text is RFC 3339 in UTC with microseconds.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace tranche {

using WallTime = std::chrono::system_clock::time_point;
using Deadline = std::chrono::steady_clock::time_point;

// "2026-11-29T12:00:00.123456Z"
std::string FormatTime(WallTime time);
absl::StatusOr<WallTime> ParseTime(std::string_view text);

inline Deadline DeadlineIn(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }
inline bool Passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

}  // namespace tranche
