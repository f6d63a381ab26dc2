#include "support/network.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <sstream>

namespace tranche::test {
namespace {

bool Ip(const std::string& command) { return RunProgram({"sh", "-c", "ip " + command}).exit_code == 0; }

int CountLines(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(word) != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

bool EnterPrivateNetwork() {
  if (geteuid() != 0 || unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
  // /sys must show the new namespace's devices; the mounts stay private to this process.
  mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  mount("sysfs", "/sys", "sysfs", 0, nullptr);
  return Ip("link set lo up");
}

bool MakeUplink() {
  // The peer's namespace belongs to a process that sleeps until this one ends (PR_SET_PDEATHSIG in ChildProcess).
  static ChildProcess peer({"unshare", "--net", "sleep", "infinity"}, {}, "/dev/null");
  const std::string pid = std::to_string(peer.pid());
  const std::string here = RunProgram({"readlink", "/proc/self/ns/net"}).output;
  const bool separate = Eventually([&] {
    const RunResult there = RunProgram({"readlink", "/proc/" + pid + "/ns/net"});
    return there.exit_code == 0 && there.output != here;
  });
  return separate && Ip("link add up0 type veth peer name eth0 netns " + pid) && Ip("link set up0 up") &&
         RunProgram({"nsenter", "--net=/proc/" + pid + "/ns/net", "sh", "-c", "ip addr add 10.99.0.1/24 dev eth0 && ip link set eth0 up && ip link set lo up"})
                 .exit_code == 0;
}

KernelState ReadKernelState() {
  KernelState state;
  const std::string links = RunProgram({"ip", "-o", "link", "show"}).output;
  const std::string classes = RunProgram({"tc", "class", "show", "dev", "up0"}).output;
  state.text = links + classes;
  state.share_links = CountLines(links, ": vs");
  state.parked_links = CountLines(links, ": vp");
  state.bridges = CountLines(links, ": trb");
  const int all = CountLines(classes, "class htb");
  state.classes = all - CountLines(classes, "7a6:ffff root") - CountLines(classes, "7a6:fffe");
  return state;
}

}  // namespace tranche::test
