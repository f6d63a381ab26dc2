#include "plugins/vnic_tc/kernel/claimant.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

namespace vnic {
namespace {

// The directory itself, whatever path leads to it.
Result<std::string> OwnerOf(const std::string& directory) {
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0) {
    return Failure{TRANCHE_FAILED_PRECONDITION, "runtime directory " + directory + ": " + std::strerror(errno) + "; the host must make it", errno};
  }
  return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

std::string MarkPrefix(const std::string& interface) { return "tranche-vnic_tc|" + interface + "|"; }

int Bind(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading NUL makes it abstract
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket >= 0 && ::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
  if (socket >= 0) ::close(socket);
  return -1;
}

// True when a mark of `interface` exists that is not of `owner`.
bool HeldByAnother(const std::string& interface, const std::string& owner) {
  const std::string prefix = "@" + MarkPrefix(interface);
  std::ifstream sockets("/proc/thread-self/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t found = line.find(prefix);
    if (found != std::string::npos && line.compare(found + prefix.size(), owner.size() + 1, owner + "|") != 0) return true;
  }
  return false;
}

}  // namespace

Result<Claimant> Claimant::Claim(const std::vector<std::string>& interfaces, const std::string& runtime_directory) {
  static std::atomic<unsigned> serial = 0;
  Result<std::string> owner = OwnerOf(runtime_directory);
  if (!owner.ok()) return owner.failure();
  Claimant claimant;
  for (const std::string& interface : interfaces) {
    // Marked before looked: of two that start together at least one sees the other.
    const std::string name = MarkPrefix(interface) + *owner + "|" + std::to_string(::getpid()) + "." + std::to_string(++serial);
    const int socket = Bind(name);
    if (socket < 0) return Failure{TRANCHE_UNAVAILABLE, "uplink " + interface + " cannot be marked as in use: " + std::strerror(errno), errno};
    claimant.sockets_.push_back(socket);
    if (HeldByAnother(interface, *owner)) {
      return Failure{TRANCHE_FAILED_PRECONDITION, "uplink " + interface + " is served by another backend or host, whose runtime directory is not " +
                                                      runtime_directory + ": stop it, or give both hosts the same --runtime-directory and backend name"};
    }
  }
  return claimant;
}

Claimant::~Claimant() {
  for (const int socket : sockets_) ::close(socket);
}

}  // namespace vnic
