// What was found, rule by rule, and how it is written. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "conform/rules.h"

namespace tranche::dra_conform {

enum class Outcome { kNotReached, kSkipped, kPassed, kFailed };

struct Verdict {
  Outcome outcome = Outcome::kNotReached;
  std::vector<std::string> details;  // what was seen: of a failure, a skip, or a figure of a pass
};

// The worst word about a rule counts; "passed" outweighs "skipped".
class Report {
 public:
  explicit Report(std::string subject) : subject_(std::move(subject)) {}
  void SetSubject(std::string subject);
  void Pass(std::string_view rule, const std::string& seen = "");
  void Fail(std::string_view rule, const std::string& seen);
  void Skip(std::string_view rule, const std::string& why);
  // Passed when `problem` is empty.
  void Judge(std::string_view rule, const std::string& problem) { problem.empty() ? Pass(rule) : Fail(rule, problem); }

  Verdict Of(std::string_view rule) const;
  std::vector<std::string> Failed() const;  // numbers of both levels, sorted
  int Count(Outcome outcome) const;
  int Warnings() const;  // "should" rules that failed
  // No "must" rule failed, and none was left out without a reason.
  bool Conforms() const;

  std::string Text() const;
  std::string Json() const;
  std::string JUnit() const;

 private:
  void Set(std::string_view rule, Outcome outcome, const std::string& detail);

  mutable std::mutex mutex_;
  std::string subject_;
  std::map<std::string, Verdict, std::less<>> verdicts_;
};

}  // namespace tranche::dra_conform
