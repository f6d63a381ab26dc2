#include "conformance/conform.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "conformance/cases.h"
#include "conformance/sandbox.h"

namespace tranche::conform {
namespace {

namespace fs = std::filesystem;

using CaseBody = void (*)(Reporter&, const CaseInput&);

// A directory that is removed with what is in it; a given one stays.
class RuntimeDirectory {
 public:
  explicit RuntimeDirectory(const std::string& given) : path_(given) {
    if (!path_.empty()) return;
    std::string name = (fs::temp_directory_path() / "tranche-conform-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory can be made");
    path_ = own_ = name;
  }
  ~RuntimeDirectory() {
    std::error_code ignored;
    if (!own_.empty()) fs::remove_all(own_, ignored);
  }
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_, own_;
};

class Examination {
 public:
  Examination(Report& report, const Options& options, const Subject& subject) : report_(report), options_(options), subject_(subject) {}

  // `on_crash`: the rule that a crash of this case breaks.
  Ending Run(CaseBody body, std::string_view on_crash = "TB-031", const std::string& memory = "") {
    const CaseInput input{options_, subject_, memory};
    Ending ending = RunCase(report_, options_.deadline * 6 + std::chrono::seconds(60), [&](Reporter& reporter) { body(reporter, input); });
    Judge(ending, on_crash);
    return ending;
  }

 private:
  void Judge(const Ending& ending, std::string_view on_crash) {
    if (ending.notes.contains("error")) throw std::runtime_error(ending.Describe());
    if (ending.done) {
      report_.Pass("TB-031");
    } else if (ending.killed) {
      report_.Fail("TB-039", ending.Describe());
    } else {
      // A sanitizer reports the crash and exits.
      const bool crashed = WIFSIGNALED(ending.status) || ending.output.find("Sanitizer") != std::string::npos;
      report_.Fail(crashed ? on_crash : "TB-031", ending.Describe());
    }
    const std::string_view silent = "TB-035";
    // The last words of a process that dies are part of its crash.
    if (ending.output.empty()) {
      report_.Pass(silent);
    } else if (ending.done) {
      report_.Fail(silent, "wrote \"" + Printable(ending.output, 120) + "\"");
    }
  }

  Report& report_;
  const Options& options_;
  const Subject& subject_;
};

// "TB-008, TB-053 failed": why rules that come later are not reached.
std::string WhatFailed(const Report& report) {
  std::string failed;
  for (const std::string& rule : report.Failed()) failed += (failed.empty() ? "" : ", ") + rule;
  return failed.empty() ? "the backend offers nothing that these rules are about" : failed + " failed";
}

void RunCode(Report& report, const Options& options, const Subject& subject) {
  Examination examination(report, options, subject);
  if (!examination.Run(&OpenCase).notes.contains("usable")) return;
  const Ending life = examination.Run(&LifeCase);
  const bool usable = life.done && life.notes.contains("usable");
  if (!usable) report.Stop(WhatFailed(report));  // before findings that stop nothing
  examination.Run(&EnvelopeCase);
  if (!usable) return;
  // What fails here would fail in every case that follows, under other names.
  const Ending share = examination.Run(&ShareCase);
  const bool works = share.done && share.notes.contains("works");
  if (!works) report.Stop(WhatFailed(report));
  if (share.done) examination.Run(&OptionalCase);
  if (!works) {
    examination.Run(&SweepCase);
    return;
  }
  examination.Run(&ListCase);
  examination.Run(&GuardedCase, "TB-042");
  if (report.Of("TB-042").outcome == Outcome::kPassed) examination.Run(&UnmappedCase, "TB-043");
  examination.Run(&UnknownCase);
  examination.Run(&ExpiredCase);
  const Ending left = examination.Run(&LeaveCase);
  if (left.notes.contains("memory")) examination.Run(&AfterDestroyCase, "TB-031", left.notes.at("memory"));
  const Ending crashed = examination.Run(&CrashCase);
  if (crashed.notes.contains("memory")) examination.Run(&AfterCrashCase, "TB-031", crashed.notes.at("memory"));
  examination.Run(&ThreadsCase);
  examination.Run(&CyclesCase);
  examination.Run(&SweepCase);
}

}  // namespace

Report Examine(const Options& options) {
  Report report(options.library);
  Subject subject;
  const bool usable = ExamineFiles(report, options, subject);
  if (options.manifest_only) {
    for (const Rule& rule : Rules()) {
      if (report.Of(rule.id).outcome == Outcome::kNotReached) report.NotApplicable(rule.id, "files and symbols only: no code was run");
    }
    return report;
  }
  if (!usable) return report.Stop(WhatFailed(report)), report;
  const RuntimeDirectory runtime(options.runtime_directory);
  Options placed = options;
  placed.runtime_directory = runtime.path();
  RunCode(report, placed, subject);
  report.Stop(WhatFailed(report));  // a case that did not get to its end leaves rules, too
  return report;
}

}  // namespace tranche::conform
