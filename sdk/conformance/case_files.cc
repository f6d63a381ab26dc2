#include "conformance/cases.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include <boost/json.hpp>

#include "conformance/elf.h"
#include "conformance/schema.h"
#include "conformance/session.h"
#include "conformance/text.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::size_t kMaxManifest = 256 * 1024, kMaxLibrary = 512ull * 1024 * 1024;
constexpr std::string_view kSuffix = ".backend.json";
constexpr std::array<std::string_view, 3> kRefusals = {"TB-003", "TB-004", "TB-008"};  // nothing runs after them

// "" when only root and its owner may write the file.
std::string WhyUntrusted(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return path + " cannot be examined";
  if (file.st_uid != 0 && file.st_uid != ::geteuid()) return path + " belongs to user " + std::to_string(file.st_uid);
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0) return path + " is writable by group or others; run chmod go-w on it";
  return "";
}

void Judge(Report& report, std::string_view rule, const std::string& why) {
  if (why.empty()) {
    report.Pass(rule);
  } else {
    report.Fail(rule, why);
  }
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::string JudgeName(const json::object& manifest, const std::string& name) {
  if (!IsName(name)) return "the name " + name + " does not match [a-z0-9_]{1,63}";
  if (TextOf(manifest, "name") != name) return "the manifest is of " + std::string(TextOf(manifest, "name")) + ", the file of " + name;
  const std::string_view library = TextOf(manifest, "library");
  if (library.find('/') != std::string_view::npos || library == "." || library == "..") return "library " + std::string(library) + " is no file name";
  return "";
}

std::string JudgeArchitecture(std::string_view stated, std::string_view of_library) {
  utsname machine{};
  ::uname(&machine);
  if (stated != of_library) return "the manifest says " + std::string(stated) + ", the library is for " + std::string(of_library);
  if (stated != machine.machine) return "the library is for " + std::string(stated) + ", this machine is " + machine.machine;
  return "";
}

void JudgeConfiguration(Report& report, const json::object& manifest, const Options& options) {
  boost::system::error_code error;
  const json::value config = json::parse(options.config, error);
  if (error || !config.is_object()) return report.Fail("TB-008", "the configuration given to the kit is no JSON object");
  const json::value* schema = manifest.if_contains("configSchema");
  if (schema == nullptr) return report.Pass("TB-008");
  std::string why = WhyNoSchema(*schema);
  if (why.empty()) why = WhyInvalid(*schema, config);
  Judge(report, "TB-008", why);
}

bool IsEntry(std::string_view name) { return name.starts_with("tranche_backend_v"); }
bool IsSanitizer(std::string_view name) {
  return name.starts_with("__asan") || name.starts_with("__ubsan") || name.starts_with("__odr_asan") || name.starts_with("__tsan");
}

std::string First(const std::vector<std::string>& texts, bool (*wrong)(std::string_view)) {
  const auto found = std::find_if(texts.begin(), texts.end(), [&](const std::string& text) { return wrong(text); });
  return found == texts.end() ? "" : *found;
}

bool JudgeSymbols(Report& report, const ElfFacts& facts) {
  const bool entry = std::find(facts.exports.begin(), facts.exports.end(), TRANCHE_BACKEND_ENTRY) != facts.exports.end();
  const std::string other = First(facts.exports, IsEntry);
  Judge(report, "TB-009", entry ? "" : other.empty() ? "no " TRANCHE_BACKEND_ENTRY " among the exports" : "exports " + other + ": another major version");
  const std::string extra = First(facts.exports, [](std::string_view name) { return !IsEntry(name) && !IsSanitizer(name); });
  Judge(report, "TB-010", extra.empty() ? "" : "exports " + extra + "; link with the version script of tranche_add_backend()");
  Judge(report, "TB-011", facts.unique.empty() ? "" : "unique symbol " + facts.unique.front());
  Judge(report, "TB-012", facts.run_paths.empty() ? "" : "run path " + facts.run_paths.front());
  const auto foreign = [](std::string_view name) {
    return name.starts_with("libprotobuf") || name.starts_with("libgrpc") || name.find("N6google8protobuf") != std::string_view::npos ||
           name.starts_with("grpc_");
  };
  std::string heavy = First(facts.needed, foreign);
  for (const auto* list : {&facts.undefined, &facts.exports}) heavy = heavy.empty() ? First(*list, foreign) : heavy;
  Judge(report, "TB-013", heavy.empty() ? "" : "uses " + heavy);
  return entry;
}

// Where name, manifest and library are, from either's path.
Subject Locate(const std::string& path) {
  Subject subject;
  std::error_code ignored;
  const fs::path file = fs::absolute(path, ignored);
  subject.name = file.filename().string();
  for (const std::string_view suffix : {kSuffix, std::string_view(".so")}) {
    if (subject.name.ends_with(suffix)) {
      subject.name.resize(subject.name.size() - suffix.size());
      break;
    }
  }
  subject.manifest_path = (file.parent_path() / (subject.name + std::string(kSuffix))).string();
  subject.library_path = path.ends_with(kSuffix) ? "" : file.string();
  return subject;
}

// The manifest, when it is one.
std::optional<json::object> ReadManifest(Report& report, const Subject& subject) {
  const std::optional<std::string> text = ReadWhole(subject.manifest_path, kMaxManifest);
  if (!text.has_value()) {
    report.Fail("TB-001", subject.manifest_path + " cannot be read, or is larger than 256 KiB; write it with tranche_add_backend() or WriteManifest.cmake");
    return std::nullopt;
  }
  if (const std::string why = WhyInvalid("manifest", *text); !why.empty()) {
    report.Fail("TB-001", subject.manifest_path + " " + why);
    return std::nullopt;
  }
  report.Pass("TB-001");
  return json::parse(*text).as_object();
}

}  // namespace

bool ExamineFiles(Report& report, const Options& options, Subject& subject) {
  subject = Locate(options.library);
  const std::optional<json::object> manifest = ReadManifest(report, subject);
  std::string_view abi = "1.0";
  if (manifest.has_value()) {
    Judge(report, "TB-002", JudgeName(*manifest, subject.name));
    subject.version = std::string(TextOf(*manifest, "version"));
    abi = TextOf(*manifest, "abi");
    if (!abi.starts_with("1.")) report.Fail("TB-003", "needs ABI " + std::string(abi) + "; this kit knows 1.x");
    subject.abi_minor = std::atoi(std::string(abi.substr(abi.find('.') + 1)).c_str());
    JudgeConfiguration(report, *manifest, options);
    if (subject.library_path.empty())
      subject.library_path = (fs::path(subject.manifest_path).parent_path() / std::string(TextOf(*manifest, "library"))).string();
  }
  std::error_code error;
  const fs::path real = fs::canonical(subject.library_path, error);
  if (error || !fs::is_regular_file(real)) return report.Fail("TB-006", subject.library_path + " is no regular file"), false;
  const fs::path home = fs::canonical(fs::path(subject.manifest_path).parent_path(), error);
  if (error || real.parent_path() != home) return report.Fail("TB-006", "leads outside its directory, to " + real.string()), false;
  const std::optional<std::string> bytes = ReadWhole(real.string(), kMaxLibrary);
  if (!bytes.has_value()) return report.Fail("TB-006", "cannot be read, or is larger than 512 MiB"), false;
  std::string untrusted = WhyUntrusted(real.string());
  if (untrusted.empty() && manifest.has_value()) untrusted = WhyUntrusted(subject.manifest_path);
  Judge(report, "TB-007", untrusted);
  if (manifest.has_value()) {
    const std::string digest = Sha256(*bytes);
    Judge(report, "TB-005",
          digest == TextOf(*manifest, "sha256") ? "" : "the library's is " + digest + "; write the manifest after the last change of the library");
  }
  const ElfAnswer elf = ReadElf(*bytes);
  Judge(report, "TB-006", elf.why);
  if (!elf.facts.has_value()) return false;
  if (manifest.has_value()) Judge(report, "TB-004", JudgeArchitecture(TextOf(*manifest, "arch"), MachineName(elf.facts->machine)));
  subject.library_path = real.string();
  const bool entry = JudgeSymbols(report, *elf.facts);
  // A host would not run it either, and what it does with a configuration that its own schema refuses says nothing.
  const bool refused = std::any_of(kRefusals.begin(), kRefusals.end(), [&](std::string_view rule) { return report.Of(rule).outcome == Outcome::kFailed; });
  return manifest.has_value() && entry && !refused;
}

}  // namespace tranche::conform
