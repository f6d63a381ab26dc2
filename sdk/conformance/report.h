// Findings of one examination, rule by rule, and how they are written.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules.h"

namespace tranche::conform {

enum class Outcome { kNotReached, kNotApplicable, kPassed, kFailed };
std::string_view OutcomeName(Outcome outcome);  // "not reached" | "not applicable" | "passed" | "failed"

struct Verdict {
  Outcome outcome = Outcome::kNotReached;
  std::vector<std::string> details;  // of failures; else why it does not apply or was not reached
};

// The worst word about a rule counts; "passed" outweighs "not applicable".
class Report {
 public:
  explicit Report(std::string subject) : subject_(std::move(subject)) {}
  void Pass(std::string_view rule);
  void Fail(std::string_view rule, const std::string& detail);
  void NotApplicable(std::string_view rule, const std::string& why);
  // Nothing more is examined: why the rules that were not reached were not. The first word counts.
  void Stop(const std::string& why);

  Verdict Of(std::string_view rule) const;
  std::vector<std::string> Failed() const;  // numbers, sorted
  int Count(Outcome outcome) const;
  // Nothing failed, and everything that applies was reached.
  bool Conforms() const;

  std::string Text() const;
  std::string Json() const;
  std::string JUnit() const;

 private:
  void Set(std::string_view rule, Outcome outcome, const std::string& detail);
  std::string subject_, stopped_;
  std::map<std::string, Verdict, std::less<>> verdicts_;
};

// Valid UTF-8 without control characters, at most `limit` bytes: what may be printed of a backend's words.
std::string Printable(std::string_view text, std::size_t limit = 400);

}  // namespace tranche::conform
