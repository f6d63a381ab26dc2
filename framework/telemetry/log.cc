#include "telemetry/log.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <absl/strings/str_cat.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/clock.h"
#include "base/utf8.h"

namespace tranche {

namespace {
void AppendEscaped(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<std::uint8_t>(c) >= 0x20 && c != 0x7f) {
    out += c;
    return;
  }
  std::array<char, 8> code{};
  std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(static_cast<std::uint8_t>(c)));
  out += code.data();
}

// A JSON string. Bytes that are not UTF-8 become U+FFFD, so that a line is always valid JSON.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = SequenceLength(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (length == 1) {
      AppendEscaped(out, text.front());
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "error";
}

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

spdlog::logger& TheLogger() {
  static spdlog::logger* const logger = [] {  // never destroyed: threads may log while the process ends
    auto made = std::make_unique<spdlog::logger>("tranche", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::info);
    made->flush_on(spdlog::level::debug);
    return made.release();
  }();
  return *logger;
}

bool IsTextFormat() {
  static const bool text = [] {
    const char* format = std::getenv("TRANCHE_LOG_FORMAT");
    return format != nullptr && std::string_view(format) == "text";
  }();
  return text;
}

std::string JsonLine(LogLevel level, std::string_view message, const LogFields& fields) {
  std::string line = absl::StrCat("{\"time\":\"", FormatTime(std::chrono::system_clock::now()), "\",\"level\":\"", std::string(LevelName(level)),
                                  "\",\"message\":", Quoted(message));
  for (const auto& [name, value] : fields) absl::StrAppend(&line, ",", Quoted(name), ":", Quoted(value));
  return line + "}";
}

bool IsPlainWord(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return false;
  }
  return true;
}

std::string TextLine(LogLevel level, std::string_view message, const LogFields& fields) {
  const std::string quoted = Quoted(message);
  std::string line = absl::StrCat(FormatTime(std::chrono::system_clock::now()), " ", std::string(LevelName(level)), " ", quoted.substr(1, quoted.size() - 2));
  for (const auto& [name, value] : fields) { absl::StrAppend(&line, " ", std::string(name), "=", IsPlainWord(value) ? value : Quoted(value)); }
  return line;
}
}  // namespace

absl::Status SetLogLevel(std::string_view level) {
  for (const LogLevel known : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (LevelName(known) != level) continue;
    TheLogger().set_level(SpdlogLevel(known));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown log level \"", std::string(level), "\"; use debug, info, warning or error"));
}

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  spdlog::logger& logger = TheLogger();
  const spdlog::level::level_enum wanted = SpdlogLevel(level);
  if (!logger.should_log(wanted)) return;
  const std::string line = IsTextFormat() ? TextLine(level, message, fields) : JsonLine(level, message, fields);
  logger.log(wanted, spdlog::string_view_t(line));
}

}  // namespace tranche
