// The conformance kit in a GoogleTest of your own, one line:
//
//   TRANCHE_CONFORMANCE_TEST(MyBackend, "build/my_backend.so", "config.json")
//
// Every rule of docs/backend-rules.md becomes an expectation that names its number. The kit runs as a program, tranche-conform: the library is
// never opened in the test itself, so a crash is a failure and not the end. It is found by TRANCHE_CONFORM (environment), TRANCHE_CONFORM_PROGRAM
// (macro, set by TrancheSDK::conformance), or PATH. Needs GoogleTest and Boost.JSON.
#ifndef TRANCHE_CONFORMANCE_H
#define TRANCHE_CONFORMANCE_H

#include <cstdio>
#include <cstdlib>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace tranche::conformance {

inline std::string Program() {
  if (const char* named = std::getenv("TRANCHE_CONFORM")) return named;
#ifdef TRANCHE_CONFORM_PROGRAM
  return TRANCHE_CONFORM_PROGRAM;
#else
  return "tranche-conform";
#endif
}

inline std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// `config`: a file with the operator's configuration, "" for {}. `more`: further arguments of tranche-conform.
inline void ExpectConforms(const std::string& library, const std::string& config, const std::string& more = "") {
  std::string command = Quoted(Program()) + " " + Quoted(library) + " --format json " + more;
  if (!config.empty()) command += " --config " + Quoted(config);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr) << command;
  std::string text;
  char buffer[4096];
  for (std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe); count != 0; count = std::fread(buffer, 1, sizeof buffer, pipe))
    text.append(buffer, count);
  ::pclose(pipe);
  boost::system::error_code error;
  const boost::json::value report = boost::json::parse(text, error);
  ASSERT_FALSE(error) << "no report from: " << command << "\n" << text;
  for (const boost::json::value& rule : report.at("rules").as_array()) {
    const bool good = rule.at("outcome") == "passed" || rule.at("outcome") == "not applicable";
    EXPECT_TRUE(good) << rule.at("rule") << " " << rule.at("outcome") << ": " << rule.at("text") << " " << rule.at("details");
  }
}

}  // namespace tranche::conformance

#define TRANCHE_CONFORMANCE_TEST(Suite, library, config) \
  TEST(Suite, KeepsTheRulesOfTheAbi) { ::tranche::conformance::ExpectConforms(library, config); }

#endif  // TRANCHE_CONFORMANCE_H
