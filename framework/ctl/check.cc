#include "ctl/check.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include <boost/json.hpp>

#include "backend/loader.h"
#include "base/files.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxConfigurationBytes = 1024 * 1024;
constexpr char kSystemBackends[] = "/usr/lib/tranche/backends";

// A pipe would hold this program for ever, a device has no end.
absl::StatusOr<std::string> ReadConfiguration(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status file = std::filesystem::status(path, error);
  if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file)) {
    return absl::InvalidArgumentError(Cat(path, " is not a regular file; name the YAML file itself"));
  }
  return ReadFile(path, kMaxConfigurationBytes);
}

// What the host would refuse at start: a backend without a manifest, and `config` that the manifest's schema does not allow. No library is opened.
absl::Status CheckBackend(const config::BackendConfiguration& backend, const std::string& directory) {
  const std::string path = Cat(directory, "/", backend.library, ".backend.json");
  const absl::StatusOr<std::string> text = ReadFile(path, backend::kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(Cat("library ", backend.library, " has no manifest ", path, "; install the backend or correct the name"));
  }
  if (!text.ok()) return text.status();
  const absl::StatusOr<backend::Manifest> manifest = backend::ParseManifest(*text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  return backend::CheckConfiguration(*manifest, backend.config);
}

// Without a directory that was named or that is there, nothing of the backends is checked.
void CheckBackends(const std::string& named, config::ParseOutcome& outcome) {
  if (!outcome.configuration.has_value()) return;
  std::error_code ignored;
  const std::string directory = named.empty() ? kSystemBackends : named;
  if (named.empty() && !std::filesystem::is_directory(directory, ignored)) return;
  for (std::size_t i = 0; i < outcome.configuration->backends.size(); ++i) {
    const config::BackendConfiguration& backend = outcome.configuration->backends[i];
    const absl::Status status = CheckBackend(backend, directory);
    if (!status.ok())
      outcome.errors.push_back({backend.line, Cat("backends[", i, "].", absl::IsNotFound(status) ? "library" : "config"), std::string(status.message())});
  }
}

json::value EncodeOutcome(const std::string& path, const config::ParseOutcome& outcome) {
  json::array errors;
  for (const config::ParseError& error : outcome.errors) {
    errors.push_back(json::object{{"line", error.line}, {"path", error.path}, {"message", error.message}});
  }
  return json::object{{"file", path}, {"valid", outcome.errors.empty()}, {"errors", std::move(errors)}};
}

json::value EncodeInspection(const std::string& path, const backend::Inspection& inspection) {
  json::array passed, functions;
  for (const auto& [stage, found] : inspection.passed) passed.push_back(json::object{{"stage", backend::StageName(stage)}, {"found", found}});
  for (const std::string& function : inspection.functions) functions.emplace_back(function);
  json::object value{{"file", path}, {"accepted", inspection.status.ok()}, {"passed", std::move(passed)}, {"functions", std::move(functions)}};
  if (inspection.manifest.has_value()) {
    const backend::Manifest& manifest = *inspection.manifest;
    value["manifest"] = json::object{
        {"name", manifest.name}, {"version", manifest.version}, {"library", manifest.library}, {"abi", Cat(manifest.abi_major, ".", manifest.abi_minor)},
        {"arch", manifest.arch}, {"sha256", manifest.sha256},   {"licence", manifest.licence}};
  }
  if (!inspection.status.ok()) {
    const std::optional<backend::Stage> stage = backend::StageOf(inspection.status);
    value["refusal"] = json::object{{"stage", stage.has_value() ? backend::StageName(*stage) : std::string_view("")},
                                    {"code", CodeName(inspection.status.code())},
                                    {"message", View(inspection.status.message())}};
  }
  return value;
}

void PrintInspection(const backend::Inspection& inspection) {
  Table table({"STAGE", "RESULT"});
  for (const auto& [stage, found] : inspection.passed) table.Add({std::string(backend::StageName(stage)), found});
  if (!inspection.status.ok()) {
    const std::optional<backend::Stage> stage = backend::StageOf(inspection.status);
    table.Add({stage.has_value() ? std::string(backend::StageName(*stage)) : "", Cat("REFUSED: ", View(inspection.status.message()))});
  }
  std::cout << table.Text();
  if (inspection.functions.empty()) return;
  std::cout << "functions:";
  for (const std::string& function : inspection.functions) std::cout << " " << function;
  std::cout << "\n";
}

int PrintInspection(const std::string& path, const backend::Inspection& inspection, Format format) {
  if (format == Format::kJson) {
    PrintJson(EncodeInspection(path, inspection));
  } else {
    PrintInspection(inspection);
  }
  return inspection.status.ok() ? kSuccess : kFailure;
}

}  // namespace

int CheckConfiguration(const std::string& path, const std::string& backend_directory, Format format) {
  const absl::StatusOr<std::string> text = ReadConfiguration(path);
  if (!text.ok()) return Fail(text.status());
  config::ParseOutcome outcome = config::ParseConfigurationDetailed(*text);
  CheckBackends(backend_directory, outcome);
  if (format == Format::kJson) {
    PrintJson(EncodeOutcome(path, outcome));
    return outcome.errors.empty() ? kSuccess : kFailure;
  }
  for (const config::ParseError& error : outcome.errors) { std::cerr << path << ":" << error.line << ": " << error.path << ": " << error.message << "\n"; }
  if (!outcome.errors.empty()) return kFailure;
  std::cout << path << ": valid, " << outcome.configuration->backends.size() << " backends, " << outcome.configuration->drivers.size() << " drivers\n";
  return kSuccess;
}

int InspectBackend(const std::string& path, bool load, Format format) {
  if (!load) return PrintInspection(path, backend::Inspect(path, backend::InspectDepth::kFile), format);
  const pid_t child = ::fork();
  if (child < 0) return Fail(absl::ResourceExhaustedError("no process can be started"));
  if (child == 0) {
    const int result = PrintInspection(path, backend::Inspect(path), format);
    std::cout.flush();
    ::_exit(result);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return Fail(
      absl::FailedPreconditionError(Cat(path, " ended the process that opened it: ", ::strsignal(WTERMSIG(status)), "; examine it with tranche-conform")));
}

}  // namespace tranche::ctl
