#include "config/config.h"

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::config {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;

std::string ErrorLine(const ParseError& error, std::string_view file) {
  std::string text(file);
  if (error.line > 0) Append(text, ":", error.line);
  if (!error.path.empty()) Append(text, ": ", error.path);
  Append(text, ": ", error.message);
  return text;
}

bool Matches(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, after_star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      after_star = ++g;
      retry = t;
    } else if (g < glob.size() && glob[g] == text[t]) {
      ++g, ++t;
    } else if (after_star != std::string_view::npos) {
      g = after_star;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace

absl::StatusOr<HostConfiguration> ParseConfiguration(std::string_view yaml, std::string_view file) {
  ParseOutcome outcome = ParseConfigurationDetailed(yaml);
  if (outcome.configuration.has_value()) return *std::move(outcome.configuration);
  std::string message;
  for (const ParseError& error : outcome.errors) Append(message, message.empty() ? "" : "\n", ErrorLine(error, file));
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<HostConfiguration> LoadConfiguration(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return Annotate(text.status(), "cannot read the configuration");
  return ParseConfiguration(*text, path);
}

bool MatchesAny(const std::vector<std::string>& globs, std::string_view text) {
  for (const std::string& glob : globs) {
    if (Matches(glob, text)) return true;
  }
  return false;
}

const ClassConfiguration* FindClass(const DriverConfiguration& driver, std::string_view name) {
  for (const ClassConfiguration& device_class : driver.classes) {
    if (device_class.name == name) return &device_class;
  }
  return nullptr;
}

const DriverConfiguration* FindDriver(const HostConfiguration& configuration, std::string_view name) {
  for (const DriverConfiguration& driver : configuration.drivers) {
    if (driver.name == name) return &driver;
  }
  return nullptr;
}

}  // namespace tranche::config
