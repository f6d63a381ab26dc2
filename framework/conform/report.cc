#include "conform/report.h"

#include <algorithm>

#include <boost/json.hpp>

#include "base/text.h"
#include "base/utf8.h"

namespace tranche::dra_conform {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDetails = 5, kMaxDetailBytes = 600;

// What may be printed of a driver's words.
std::string Printable(std::string_view text) {
  std::string printable = Shortened(text, kMaxDetailBytes);
  std::replace_if(
      printable.begin(), printable.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return printable;
}

std::string XmlText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string Joined(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) Append(joined, joined.empty() ? "" : "; ", text);
  return joined;
}

std::string_view OutcomeWord(Outcome outcome, Level level) {
  switch (outcome) {
    case Outcome::kNotReached: return "not reached";
    case Outcome::kSkipped: return "skipped";
    case Outcome::kPassed: return "passed";
    case Outcome::kFailed: return level == Level::kMust ? "FAILED" : "warning";
  }
  return "FAILED";
}

}  // namespace

void Report::SetSubject(std::string subject) {
  const std::lock_guard lock(mutex_);
  subject_ = std::move(subject);
}

void Report::Set(std::string_view rule, Outcome outcome, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  Verdict& verdict = verdicts_[std::string(rule)];
  if (outcome < verdict.outcome) return;
  if (outcome > verdict.outcome) verdict.details.clear();
  verdict.outcome = outcome;
  const std::string shown = Printable(detail);
  const bool is_known = std::find(verdict.details.begin(), verdict.details.end(), shown) != verdict.details.end();
  if (!shown.empty() && !is_known && verdict.details.size() < kMaxDetails) verdict.details.push_back(shown);
}

void Report::Pass(std::string_view rule, const std::string& seen) { Set(rule, Outcome::kPassed, seen); }
void Report::Fail(std::string_view rule, const std::string& seen) { Set(rule, Outcome::kFailed, seen); }
void Report::Skip(std::string_view rule, const std::string& why) { Set(rule, Outcome::kSkipped, why); }

Verdict Report::Of(std::string_view rule) const {
  const std::lock_guard lock(mutex_);
  const auto found = verdicts_.find(rule);
  return found == verdicts_.end() ? Verdict() : found->second;
}

std::vector<std::string> Report::Failed() const {
  std::vector<std::string> failed;
  for (const Rule& rule : Rules()) {
    if (Of(rule.id).outcome == Outcome::kFailed) failed.emplace_back(rule.id);
  }
  return failed;
}

int Report::Count(Outcome outcome) const {
  return static_cast<int>(std::count_if(Rules().begin(), Rules().end(), [&](const Rule& rule) { return Of(rule.id).outcome == outcome; }));
}

int Report::Warnings() const {
  return static_cast<int>(
      std::count_if(Rules().begin(), Rules().end(), [&](const Rule& rule) { return rule.level == Level::kShould && Of(rule.id).outcome == Outcome::kFailed; }));
}

bool Report::Conforms() const { return Count(Outcome::kFailed) == Warnings() && Count(Outcome::kNotReached) == 0; }

std::string Report::Text() const {
  std::string text = Cat("dra-conform ", subject_, "\n");
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    std::string word(OutcomeWord(verdict.outcome, rule.level));
    word.resize(12, ' ');
    std::string id(rule.id);
    id.resize(6, ' ');
    Append(text, id, word, rule.text, "\n");
    for (const std::string& detail : verdict.details) Append(text, "                  ", detail, "\n");
    if (verdict.outcome == Outcome::kFailed) Append(text, "                  causes: ", rule.consequence, "\n");
  }
  const int warnings = Warnings();
  Append(text, Rules().size(), " rules: ", Count(Outcome::kPassed), " passed, ", Count(Outcome::kFailed) - warnings, " failed, ", warnings, " warnings, ",
         Count(Outcome::kSkipped), " skipped, ", Count(Outcome::kNotReached), " not reached\n");
  return text;
}

std::string Report::Json() const {
  json::array rules;
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    json::array details(verdict.details.begin(), verdict.details.end());
    rules.push_back(json::object{{"rule", rule.id},
                                 {"level", LevelName(rule.level)},
                                 {"text", rule.text},
                                 {"source", rule.source},
                                 {"outcome", OutcomeWord(verdict.outcome, rule.level)},
                                 {"details", std::move(details)}});
  }
  const int warnings = Warnings();
  return json::serialize(json::object{{"subject", subject_},
                                      {"conforms", Conforms()},
                                      {"passed", Count(Outcome::kPassed)},
                                      {"failed", Count(Outcome::kFailed) - warnings},
                                      {"warnings", warnings},
                                      {"skipped", Count(Outcome::kSkipped)},
                                      {"notReached", Count(Outcome::kNotReached)},
                                      {"rules", std::move(rules)}}) +
         "\n";
}

std::string Report::JUnit() const {
  std::string text = Cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dra-conform\" tests=\"", Rules().size(), "\" failures=\"",
                         Count(Outcome::kFailed) - Warnings(), "\" errors=\"", Count(Outcome::kNotReached), "\" skipped=\"", Count(Outcome::kSkipped), "\">\n");
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    const std::string seen = XmlText(Joined(verdict.details));
    Append(text, "  <testcase classname=\"", XmlText(subject_), "\" name=\"", rule.id, " ", XmlText(rule.text), "\">");
    switch (verdict.outcome) {
      case Outcome::kNotReached: Append(text, "<error message=\"not reached\"/>"); break;
      case Outcome::kSkipped: Append(text, "<skipped message=\"", seen, "\"/>"); break;
      case Outcome::kPassed: break;
      case Outcome::kFailed:
        if (rule.level == Level::kMust) {
          Append(text, "<failure message=\"", seen, "\"/>");
        } else {
          Append(text, "<system-out>warning: ", seen, "</system-out>");
        }
        break;
    }
    Append(text, "</testcase>\n");
  }
  return text + "</testsuite>\n";
}

}  // namespace tranche::dra_conform
