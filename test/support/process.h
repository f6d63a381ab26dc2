// Programs of this build under test: start, wait, kill; temporary directories; the local node. Everything a test starts is ended by its own pid.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tranche::test {

struct RunResult {
  int exit_code = -1;  // 128 + signal when it was ended by one
  std::string output, error;
};

using Environment = std::map<std::string, std::string>;  // added to the test's own

// Runs to the end; killed after `limit` (exit_code 137).
RunResult RunProgram(const std::vector<std::string>& arguments, const Environment& environment = {},
                     std::chrono::milliseconds limit = std::chrono::seconds(60));

// A directory that is removed with everything below it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ChildProcess {
 public:
  ChildProcess(const std::vector<std::string>& arguments, const Environment& environment, const std::string& error_file);
  ~ChildProcess();  // SIGKILL if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  pid_t pid() const { return pid_; }
  bool Running();
  void Signal(int number) const;
  // Exit code, 128 + signal, or -1 when it still runs after `limit`.
  int Wait(std::chrono::milliseconds limit = std::chrono::seconds(20));

 private:
  pid_t pid_ = -1;
  int status_ = -1;
};

std::string Binary(const std::string& name);  // build/<preset>/bin/<name>
std::string BackendDirectory();               // build/<preset>/backends

// A tranched in local mode on one directory, and its tranchectl.
class LocalNode {
 public:
  // `configuration` is YAML text. Nothing is started yet.
  LocalNode(std::string directory, const std::string& configuration);
  void WriteConfiguration(const std::string& configuration) const;
  std::string configuration_path() const { return directory_ + "/host.yaml"; }
  const std::string& directory() const { return directory_; }
  void UseBackends(std::string directory) { backends_ = std::move(directory); }  // default: those of this build

  // Starts tranched and waits until `tranchectl status` answers or it ends. True when it serves.
  bool Start(const Environment& environment = {}, const std::vector<std::string>& more_arguments = {});
  ChildProcess& process() { return *process_; }
  void Kill();              // SIGKILL and wait
  int Terminate();          // SIGTERM and wait: exit code
  std::string Log() const;  // what tranched wrote to standard error

  RunResult Ctl(const std::vector<std::string>& arguments) const;
  // apply → allocate → prepare of one claim manifest.
  RunResult Apply(const std::string& manifest) const;

 private:
  std::string directory_;
  std::string backends_ = BackendDirectory();
  std::unique_ptr<ChildProcess> process_;
};

// A ResourceClaim for `bandwidth` of class `device_class`, as YAML.
std::string ClaimManifest(const std::string& namespace_name, const std::string& name, const std::string& device_class,
                          const std::map<std::string, std::string>& capacity);

// Waits until `condition` holds; false after `limit`.
bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace tranche::test
