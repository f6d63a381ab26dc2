#include "support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace tranche::test {
namespace {

using Clock = std::chrono::steady_clock;

int ExitCode(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that allocates happens before fork: the child only makes async-signal-safe calls.
pid_t Spawn(const std::vector<std::string>& arguments, const Environment& environment, int output, int error) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text(*variable);
    if (!environment.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(variables);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (error >= 0) dup2(error, STDERR_FILENO);
  execvpe(argv[0], argv.data(), envp.data());
  _exit(127);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Reads both pipes until the other ends close or the limit passes.
void Collect(int output, int error, RunResult& result, Clock::time_point end) {
  pollfd files[2] = {{output, POLLIN, 0}, {error, POLLIN, 0}};
  std::string* texts[2] = {&result.output, &result.error};
  int open_files = 2;
  while (open_files > 0 && Clock::now() < end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (poll(files, 2, static_cast<int>(left.count()) + 1) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t size = read(files[i].fd, buffer, sizeof buffer);
      if (size > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(size));
      } else {
        files[i].fd = -1;
        --open_files;
      }
    }
  }
}

int WaitFor(pid_t pid, Clock::time_point end) {
  int status = 0;
  while (true) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) return ExitCode(status);
    if (done < 0) return -1;
    if (Clock::now() >= end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

RunResult RunProgram(const std::vector<std::string>& arguments, const Environment& environment, std::chrono::milliseconds limit) {
  int output[2], error[2];
  RunResult result;
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) return result;
  const auto end = Clock::now() + limit;
  const pid_t pid = Spawn(arguments, environment, output[1], error[1]);
  close(output[1]);
  close(error[1]);
  Collect(output[0], error[0], result, end);
  result.exit_code = WaitFor(pid, end);
  if (result.exit_code < 0) {
    kill(pid, SIGKILL);
    result.exit_code = WaitFor(pid, Clock::now() + std::chrono::seconds(5));
  }
  close(output[0]);
  close(error[0]);
  return result;
}

TemporaryDirectory::TemporaryDirectory() {
  // On tmpfs where there is one: many tests write durably and only their order matters.
  const bool shared_memory = access("/dev/shm", W_OK) == 0;
  std::string pattern = std::string(shared_memory ? "/dev/shm" : "/tmp") + "/tranche-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const Environment& environment, const std::string& error_file) {
  const int file = open(error_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pid_ = Spawn(arguments, environment, file, file);
  if (file >= 0) close(file);
}

ChildProcess::~ChildProcess() {
  if (!Running()) return;
  Signal(SIGKILL);
  Wait();
}

bool ChildProcess::Running() { return status_ < 0 && Wait(std::chrono::milliseconds(0)) < 0; }

void ChildProcess::Signal(int number) const { kill(pid_, number); }

int ChildProcess::Wait(std::chrono::milliseconds limit) {
  if (status_ < 0) status_ = WaitFor(pid_, Clock::now() + limit);
  return status_;
}

LocalNode::LocalNode(std::string directory, const std::string& configuration) : directory_(std::move(directory)) {
  std::filesystem::create_directories(directory_);
  WriteConfiguration(configuration);
}

void LocalNode::WriteConfiguration(const std::string& configuration) const {
  const std::string temporary = configuration_path() + ".new";
  {
    std::ofstream file(temporary);
    file << configuration;
  }
  std::filesystem::rename(temporary, configuration_path());
}

bool LocalNode::Start(const Environment& environment, const std::vector<std::string>& more_arguments) {
  std::vector<std::string> arguments = {Binary("tranched"),    "--local", directory_,    "--config", configuration_path(),
                                        "--backend-directory", backends_, "--node-name", "node-1"};
  arguments.insert(arguments.end(), more_arguments.begin(), more_arguments.end());
  process_ = std::make_unique<ChildProcess>(arguments, environment, directory_ + "/tranched.log");
  bool serves = false;
  Eventually(
      [&] {
        serves = Ctl({"status"}).exit_code == 0;
        return serves || !process_->Running();
      },
      std::chrono::seconds(30));
  return serves;
}

void LocalNode::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait();
}

int LocalNode::Terminate() {
  process_->Signal(SIGTERM);
  return process_->Wait();
}

std::string LocalNode::Log() const { return ReadAll(directory_ + "/tranched.log"); }

RunResult LocalNode::Ctl(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {Binary("tranchectl"), "--dir", directory_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunProgram(command);
}

RunResult LocalNode::Apply(const std::string& manifest) const {
  const std::string path = directory_ + "/manifest.yaml";
  {
    std::ofstream file(path);
    file << manifest;
  }
  return Ctl({"local", "apply", "-f", path});
}

std::string ClaimManifest(const std::string& namespace_name, const std::string& name, const std::string& device_class,
                          const std::map<std::string, std::string>& capacity) {
  std::string text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {namespace: " + namespace_name + ", name: " + name +
                     "}\nspec:\n  devices:\n    requests:\n    - name: dev\n      exactly:\n        deviceClassName: " + device_class + "\n";
  if (capacity.empty()) return text;
  text += "        capacity:\n          requests:\n";
  for (const auto& [key, value] : capacity) text += "            " + key + ": \"" + value + "\"\n";
  return text;
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::string Binary(const std::string& name) { return std::string(TRANCHE_BINARY_DIRECTORY) + "/bin/" + name; }
std::string BackendDirectory() { return std::string(TRANCHE_BINARY_DIRECTORY) + "/backends"; }

}  // namespace tranche::test
