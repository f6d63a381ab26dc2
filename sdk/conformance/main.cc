// tranche-conform: examines a backend library by the rules of docs/backend-rules.md.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "conformance/conform.h"
#include "conformance/elf.h"
#include "conformance/text.h"

namespace {

using tranche::conform::Options;
using tranche::conform::Report;

constexpr int kConforms = 0, kViolates = 1, kUsage = 2;

constexpr std::string_view kHelp =
    "tranche-conform BACKEND.so [options]: examines a backend by the rules of the ABI\n"
    "  --config FILE.json      the operator's configuration of the backend [{}]\n"
    "  --parameters FILE.json  configuration of a claim, handed to every prepare [{}]\n"
    "  --manifest              files and symbols only: no code of the library runs\n"
    "  --format FORMAT         text | json | junit [text]\n"
    "  --deadline-ms N         deadline of each call [10000]\n"
    "  --cycles N              repetitions of prepare and unprepare [20]\n"
    "  --rules                 print the rules and end\n"
    "Exit code: 0 conforms, 1 a rule is broken or was not reached, 2 wrong use.\n";

struct CommandLine {
  Options options;
  std::string format = "text";
  std::string wrong;  // "" or what is wrong
  bool help = false, rules = false;
};

std::string ReadArgument(const std::string& path, CommandLine& line) {
  const auto text = tranche::conform::ReadWhole(path, 1024 * 1024);
  if (!text.has_value()) line.wrong = path + " cannot be read, or is larger than 1 MiB";
  return text.value_or("{}");
}

int Number(const char* text, int least, CommandLine& line) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < least || value > 600000) line.wrong = std::string(text) + " is no number from " + std::to_string(least) + " to 600000";
  return static_cast<int>(value);
}

CommandLine Parse(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc && line.wrong.empty(); ++i) {
    const std::string_view word = argv[i];
    const bool takes = word == "--config" || word == "--parameters" || word == "--format" || word == "--deadline-ms" || word == "--cycles";
    if (takes && i + 1 == argc) {
      line.wrong = std::string(word) + " needs a value";
    } else if (word == "--config") {
      line.options.config = ReadArgument(argv[++i], line);
    } else if (word == "--parameters") {
      line.options.parameters = ReadArgument(argv[++i], line);
    } else if (word == "--format") {
      line.format = argv[++i];
    } else if (word == "--deadline-ms") {
      line.options.deadline = std::chrono::milliseconds(Number(argv[++i], 100, line));
    } else if (word == "--cycles") {
      line.options.cycles = Number(argv[++i], 4, line);
    } else if (word == "--manifest") {
      line.options.manifest_only = true;
    } else if (word == "--rules") {
      line.rules = true;
    } else if (word == "--help" || word == "-h") {
      line.help = true;
    } else if (word.starts_with("-") || !line.options.library.empty()) {
      line.wrong = "unknown argument " + std::string(word);
    } else {
      line.options.library = word;
    }
  }
  if (line.format != "text" && line.format != "json" && line.format != "junit") line.wrong = "--format must be text, json or junit";
  if (line.wrong.empty() && line.options.library.empty() && !line.help && !line.rules) line.wrong = "name the library, for example ./example.so";
  return line;
}

// A library built with AddressSanitizer needs its runtime first in the process: start again with it.
void PreloadSanitizer(const std::string& library, char** argv) {
  if (std::getenv("TRANCHE_CONFORM_PRELOADED") != nullptr) return;
  const auto bytes = tranche::conform::ReadWhole(library, 512ull * 1024 * 1024);
  if (!bytes.has_value()) return;
  const auto elf = tranche::conform::ReadElf(*bytes);
  if (!elf.facts.has_value()) return;
  for (const std::string& needed : elf.facts->needed) {
    if (!needed.starts_with("libasan.so")) continue;
    ::setenv("TRANCHE_CONFORM_PRELOADED", "1", 1);
    ::setenv("LD_PRELOAD", needed.c_str(), 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    ::execv("/proc/self/exe", argv);
  }
}

int Main(int argc, char** argv) {
  const CommandLine line = Parse(argc, argv);
  if (!line.wrong.empty()) {
    std::cerr << "tranche-conform: " << line.wrong << "\n" << kHelp;
    return kUsage;
  }
  if (line.help) return std::cout << kHelp, kConforms;
  if (line.rules) return std::cout << tranche::conform::RulesDocument(), kConforms;
  PreloadSanitizer(line.options.library, argv);
  const Report report = tranche::conform::Examine(line.options);
  std::cout << (line.format == "json" ? report.Json() : line.format == "junit" ? report.JUnit() : report.Text());
  return report.Conforms() ? kConforms : kViolates;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "tranche-conform: " << error.what() << "\n";
    return kUsage;
  }
}
