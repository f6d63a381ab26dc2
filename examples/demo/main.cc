// tranche-demo: see demo.h. Everything that it makes has its process id in the name and is removed at the end, an interrupt included.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>

#include "demo.h"

namespace {

using tranche::demo::Node;
using tranche::demo::PrivateNetwork;

// Unix sockets lie below it: their paths are at most 107 characters.
constexpr std::size_t kLongestDirectory = 60;

std::filesystem::path NodeDirectory(const std::filesystem::path& report) {
  const std::string name = "node-" + std::to_string(getpid());
  const std::filesystem::path beside = report.parent_path() / name;
  if (beside.string().size() <= kLongestDirectory) return beside;
  return std::filesystem::temp_directory_path() / ("tranche-demo-" + name);
}

void RemoveDirectory(const std::filesystem::path& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

sigset_t Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  return set;
}

// Waits for an interrupt in a thread of its own, removes what was made and ends the process; children die with their parent.
void CleanUpOnInterrupt(const PrivateNetwork& network, const std::filesystem::path& directory) {
  std::thread([&network, directory] {
    const sigset_t set = Interrupts();
    int number = 0;
    if (sigwait(&set, &number) != 0) return;
    std::cerr << "\ninterrupted: removing what was made\n";
    network.Destroy();
    RemoveDirectory(directory);
    _exit(128 + number);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) {
  std::string report = "build/demo/report.json";
  bool keep = false;
  CLI::App app("Shares one network device among four tenants on this machine and proves every limit", "tranche-demo");
  app.add_option("--report", report, "where the results go [build/demo/report.json]")->type_name("FILE");
  app.add_flag("--keep", keep, "keep the node's directory with its log");
  CLI11_PARSE(app, argc, argv);
  if (geteuid() != 0) {
    std::cerr << "tranche-demo: makes network namespaces, so it needs root; run: sudo make demo\n";
    return 2;
  }
  const sigset_t set = Interrupts();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const std::filesystem::path report_path = std::filesystem::absolute(report);
  std::error_code error;
  std::filesystem::create_directories(report_path.parent_path(), error);
  const std::filesystem::path programs = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path directory = NodeDirectory(report_path);
  int exit_code = 2;
  {
    PrivateNetwork network("tr" + std::to_string(getpid()), tranche::demo::kPods);
    CleanUpOnInterrupt(network, directory);
    Node node(programs, directory, network.node());
    const absl::StatusOr<bool> held = tranche::demo::RunDemo(network, node, report_path);
    if (!held.ok()) std::cerr << "tranche-demo: " << held.status().message() << "\n";
    if (held.ok()) std::cout << (*held ? "Every bound held." : "A bound does not hold: see FAILED above.") << " Report: " << report_path.string() << "\n";
    exit_code = !held.ok() ? 2 : *held ? 0 : 1;
    node.Kill();
    network.Destroy();
    std::cout.flush();
    std::cerr.flush();
    if (keep) {
      std::cout << "The node's directory: " << directory.string() << std::endl;
    } else {
      RemoveDirectory(directory);
    }
    _exit(exit_code);  // the thread that waits for an interrupt still refers to what lies here
  }
}
