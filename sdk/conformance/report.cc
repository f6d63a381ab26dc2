#include "conformance/report.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "conformance/text.h"

namespace tranche::conform {
namespace {

namespace json = boost::json;

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

std::string Join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined.append(joined.empty() ? "" : "; ").append(text);
  return joined;
}

constexpr std::size_t kMaxDetails = 5;

}  // namespace

std::string_view OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNotReached: return "not reached";
    case Outcome::kNotApplicable: return "not applicable";
    case Outcome::kPassed: return "passed";
    case Outcome::kFailed: return "failed";
  }
  return "failed";
}

void Report::Set(std::string_view rule, Outcome outcome, const std::string& detail) {
  Verdict& verdict = verdicts_[std::string(rule)];
  if (outcome < verdict.outcome) return;
  if (outcome > verdict.outcome) verdict.details.clear();
  verdict.outcome = outcome;
  const bool known = std::find(verdict.details.begin(), verdict.details.end(), detail) != verdict.details.end();
  if (!detail.empty() && !known && verdict.details.size() < kMaxDetails) verdict.details.push_back(Printable(detail));
}

void Report::Pass(std::string_view rule) { Set(rule, Outcome::kPassed, ""); }
void Report::Fail(std::string_view rule, const std::string& detail) { Set(rule, Outcome::kFailed, detail); }
void Report::NotApplicable(std::string_view rule, const std::string& why) { Set(rule, Outcome::kNotApplicable, why); }

void Report::Stop(const std::string& why) {
  if (stopped_.empty()) stopped_ = Printable(why);
}

Verdict Report::Of(std::string_view rule) const {
  if (const auto found = verdicts_.find(rule); found != verdicts_.end()) return found->second;
  return {Outcome::kNotReached, stopped_.empty() ? std::vector<std::string>() : std::vector<std::string>{stopped_}};
}

std::vector<std::string> Report::Failed() const {
  std::vector<std::string> failed;
  for (const auto& [rule, verdict] : verdicts_) {
    if (verdict.outcome == Outcome::kFailed) failed.push_back(rule);
  }
  return failed;
}

int Report::Count(Outcome outcome) const {
  return static_cast<int>(std::count_if(Rules().begin(), Rules().end(), [&](const Rule& rule) { return Of(rule.id).outcome == outcome; }));
}

bool Report::Conforms() const { return Count(Outcome::kFailed) == 0 && Count(Outcome::kNotReached) == 0; }

std::string Report::Text() const {
  std::string text = "tranche-conform " + subject_ + "\n";
  bool reason_said = false;
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    const std::string_view mark = verdict.outcome == Outcome::kPassed          ? "ok    "
                                  : verdict.outcome == Outcome::kFailed        ? "FAILED"
                                  : verdict.outcome == Outcome::kNotApplicable ? "n/a   "
                                                                               : "?     ";
    text.append(rule.id).append("  ").append(mark).append("  ").append(rule.text).append("\n");
    const bool unreached = verdict.outcome == Outcome::kNotReached;  // all for the same reason: it is said with the first
    if (unreached && std::exchange(reason_said, true)) continue;
    for (const std::string& detail : verdict.details) text.append(unreached ? "                not reached: " : "                ").append(detail).append("\n");
    if (verdict.outcome == Outcome::kFailed) text.append("                causes: ").append(rule.consequence).append("\n");
  }
  text += std::to_string(Rules().size()) + " rules: " + std::to_string(Count(Outcome::kPassed)) + " passed, " + std::to_string(Count(Outcome::kFailed)) +
          " failed, " + std::to_string(Count(Outcome::kNotApplicable)) + " not applicable, " + std::to_string(Count(Outcome::kNotReached)) + " not reached\n";
  return text;
}

std::string Report::Json() const {
  json::array rules;
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    json::array details(verdict.details.begin(), verdict.details.end());
    rules.push_back(json::object{{"rule", rule.id}, {"text", rule.text}, {"outcome", OutcomeName(verdict.outcome)}, {"details", std::move(details)}});
  }
  return json::serialize(json::object{{"subject", subject_},
                                      {"conforms", Conforms()},
                                      {"passed", Count(Outcome::kPassed)},
                                      {"failed", Count(Outcome::kFailed)},
                                      {"notApplicable", Count(Outcome::kNotApplicable)},
                                      {"notReached", Count(Outcome::kNotReached)},
                                      {"rules", std::move(rules)}}) +
         "\n";
}

std::string Report::JUnit() const {
  const int not_reached = Count(Outcome::kNotReached);
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tranche-conform\" tests=\"" + std::to_string(Rules().size()) +
                     "\" failures=\"" + std::to_string(Count(Outcome::kFailed)) + "\" errors=\"" + std::to_string(not_reached) + "\" skipped=\"" +
                     std::to_string(Count(Outcome::kNotApplicable)) + "\">\n";
  for (const Rule& rule : Rules()) {
    const Verdict verdict = Of(rule.id);
    text += "  <testcase classname=\"" + XmlText(subject_) + "\" name=\"" + std::string(rule.id) + " " + XmlText(rule.text) + "\">";
    if (verdict.outcome == Outcome::kFailed) text += "<failure message=\"" + XmlText(Join(verdict.details)) + "\"/>";
    if (verdict.outcome == Outcome::kNotReached) text += "<error message=\"" + XmlText("not reached: " + Join(verdict.details)) + "\"/>";
    if (verdict.outcome == Outcome::kNotApplicable) text += "<skipped message=\"" + XmlText(Join(verdict.details)) + "\"/>";
    text += "</testcase>\n";
  }
  return text + "</testsuite>\n";
}

std::string Printable(std::string_view text, std::size_t limit) {
  std::string clean;
  for (std::size_t at = 0; at < text.size() && clean.size() < limit;) {
    const std::size_t length = Utf8Length(text, at);
    const unsigned char byte = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      clean += '?';
    } else if (byte < 0x20 || byte == 0x7f) {
      clean += ' ';
    } else {
      clean.append(text.substr(at, length));
    }
    at += std::max<std::size_t>(length, 1);
  }
  return clean;
}

}  // namespace tranche::conform
