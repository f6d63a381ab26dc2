// A case in a child process: what it found comes back over a pipe, how it ended is judged by the parent.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "conformance/report.h"

namespace tranche::conform {

// The child's side. Lines of a pipe that programs of the backend do not inherit.
class Reporter {
 public:
  explicit Reporter(int fd) : fd_(fd) {}
  void Pass(std::string_view rule);
  void Fail(std::string_view rule, std::string_view detail);
  void NotApplicable(std::string_view rule, std::string_view why);
  void Note(std::string_view name, std::string_view value);  // for the parent's next case
  // A function of the backend is entered; the parent kills the child when it has not returned by then.
  void Enter(std::string_view function, std::chrono::milliseconds limit);
  void Leave();
  void Done();

 private:
  void Send(std::string_view kind, std::string_view name, std::string_view text);
  int fd_;
};

struct Ending {
  bool done = false;    // the case came to its end
  bool killed = false;  // by the watchdog
  int status = 0;       // of waitpid
  std::string during;   // the backend's function that had not returned, "" for none
  std::string output;   // what was written to standard output and error, at most 64 KiB
  std::map<std::string, std::string> notes;
  std::string Describe() const;  // "SIGSEGV in prepare"
};

// Adds what the case found to `report`. `limit` bounds the whole case.
Ending RunCase(Report& report, std::chrono::milliseconds limit, const std::function<void(Reporter&)>& body);

}  // namespace tranche::conform
