// Logging for every room: structured fields on spdlog, one line of JSON per event on stderr (or text with TRANCHE_LOG_FORMAT=text).
// Errors are logged once, at the edge. Thread-safe.
//
//   LogInfo("claim prepared", {{"claim", uid}, {"share", share_id}});
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace tranche {

using LogFields = std::vector<std::pair<std::string_view, std::string>>;

enum class LogLevel { kDebug, kInfo, kWarning, kError };
// Before the first line; default kInfo. Text: debug | info | warning | error.
absl::Status SetLogLevel(std::string_view level);

void Log(LogLevel level, std::string_view message, const LogFields& fields = {});
inline void LogDebug(std::string_view message, const LogFields& fields = {}) { Log(LogLevel::kDebug, message, fields); }
inline void LogInfo(std::string_view message, const LogFields& fields = {}) { Log(LogLevel::kInfo, message, fields); }
inline void LogWarning(std::string_view message, const LogFields& fields = {}) { Log(LogLevel::kWarning, message, fields); }
inline void LogError(std::string_view message, const LogFields& fields = {}) { Log(LogLevel::kError, message, fields); }

}  // namespace tranche
