#include "ctl/install.h"

#include <filesystem>
#include <iostream>
#include <system_error>

#include <boost/json.hpp>

#include "base/files.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::ctl {
namespace {

constexpr std::size_t kMaxProgramBytes = std::size_t{256} << 20U;
constexpr mode_t kProgramMode = 0755;

bool IsProgram(const std::string& path) {
  std::error_code ignored;
  return (std::filesystem::status(path, ignored).permissions() & std::filesystem::perms::others_exec) != std::filesystem::perms::none;
}

// True when something was written.
absl::StatusOr<bool> Install(const std::string& pair) {
  const std::size_t at = pair.find('=');
  if (at == std::string::npos || at == 0 || !std::string_view(pair).substr(at + 1).starts_with('/') || pair.ends_with('/')) {
    return absl::InvalidArgumentError(Cat("\"", pair, "\" is not SOURCE=DESTINATION with an absolute path of a file as destination"));
  }
  const std::string source = pair.substr(0, at), destination = pair.substr(at + 1);
  TRANCHE_ASSIGN_OR_RETURN(const std::string program, ReadFile(source, kMaxProgramBytes));
  const absl::StatusOr<std::string> present = ReadFile(destination, kMaxProgramBytes);
  if (present.ok() && *present == program && IsProgram(destination)) return false;
  TRANCHE_RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(destination).parent_path(), kProgramMode));
  TRANCHE_RETURN_IF_ERROR(WriteFileAtomically(destination, program, kProgramMode, Durability::kDurable));
  return true;
}

}  // namespace

int InstallFiles(const std::vector<std::string>& pairs, Format format) {
  boost::json::array done;
  for (const std::string& pair : pairs) {
    const absl::StatusOr<bool> written = Install(pair);
    if (!written.ok()) return Fail(written.status());
    const std::string destination = pair.substr(pair.find('=') + 1);
    done.push_back(boost::json::object{{"file", destination}, {"written", *written}});
    if (format == Format::kTable) std::cout << destination << (*written ? ": installed\n" : ": up to date\n");
  }
  if (format == Format::kJson) PrintJson(done);
  return kSuccess;
}

}  // namespace tranche::ctl
