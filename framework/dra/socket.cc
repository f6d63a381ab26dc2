#include "dra/socket.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::dra {
namespace {

// Unpadded base64url of the first bytes of the SHA-256: the form that Kubernetes' own helper uses for long names.
std::string ShortHash(std::string_view data, std::size_t bytes) {
  const std::string digest = absl::HexStringToBytes(Sha256Hex(data));
  return absl::WebSafeBase64Escape(digest.substr(0, bytes));
}

std::string DriverAndInstance(std::string_view driver, std::string_view instance) { return Cat(driver, std::string_view("\0", 1), instance); }

absl::StatusOr<std::string> FirstThatFits(const std::vector<std::string>& candidates, std::string_view directory, std::string_view driver,
                                          std::string_view what) {
  for (const std::string& candidate : candidates) {
    if (candidate.size() <= kMaxSocketPath) return candidate;
  }
  const std::string& shortest = candidates.back();
  return absl::InvalidArgumentError(Cat(what, " socket of driver \"", driver, "\": the shortest usable path \"", shortest, "\" has ", shortest.size(),
                                        " bytes, but a unix socket path holds ", kMaxSocketPath, "; the directory has ", directory.size(),
                                        " bytes and the driver name ", driver.size(), ": shorten one of them"));
}

absl::Status ErrnoStatus(int error, std::string_view what, std::string_view path) { return absl::ErrnoToStatus(error, Cat(what, " \"", path, "\"")); }

// Whether a process accepts connections on the socket file.
absl::StatusOr<bool> SomebodyListens(const std::string& path) {
  if (path.size() > kMaxSocketPath) return absl::InvalidArgumentError(Cat("socket path \"", path, "\" is too long"));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ErrnoStatus(errno, "cannot create a socket to probe", path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  close(fd);
  if (result == 0 || error == EAGAIN || error == EINPROGRESS) return true;
  if (error == ECONNREFUSED || error == ENOENT) return false;
  return ErrnoStatus(error, "cannot find out whether somebody listens on", path);
}

}  // namespace

absl::StatusOr<std::string> ServiceSocketPath(std::string_view plugin_directory, std::string_view driver, std::string_view instance) {
  const std::string directory = Cat(plugin_directory, "/", driver);
  std::vector<std::string> candidates;
  if (instance.empty()) {
    candidates = {Cat(directory, "/dra.sock")};
  } else {
    const std::string hash = ShortHash(instance, 8);
    candidates = {Cat(directory, "/dra-", instance, ".sock"), Cat(directory, "/dra-", hash, ".sock"), Cat(directory, "/", hash, ".sock")};
  }
  candidates.push_back(Cat(plugin_directory, "/", ShortHash(DriverAndInstance(driver, instance), 16), ".sock"));
  return FirstThatFits(candidates, plugin_directory, driver, "service");
}

absl::StatusOr<std::string> RegistrationSocketPath(std::string_view registry_directory, std::string_view driver, std::string_view instance) {
  const std::string last = Cat(registry_directory, "/dra-", ShortHash(DriverAndInstance(driver, instance), 16), "-reg.sock");
  std::vector<std::string> candidates;
  if (instance.empty()) {
    candidates = {Cat(registry_directory, "/", driver, "-reg.sock"), last};
  } else {
    candidates = {Cat(registry_directory, "/", driver, "-", instance, "-reg.sock"),
                  Cat(registry_directory, "/", driver, "-", ShortHash(instance, 8), "-reg.sock"), last};
  }
  return FirstThatFits(candidates, registry_directory, driver, "registration");
}

absl::StatusOr<std::string> HiddenSocketPath(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/'));
  // Names that start with a dot are ignored by the kubelet's watcher.
  const std::string hidden = Cat(directory, "/.", NewUuid().substr(0, 8));
  if (hidden.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(
        Cat("directory \"", directory, "\" has ", directory.size(), " bytes: no socket path of at most ", kMaxSocketPath, " bytes fits in it"));
  }
  return hidden;
}

absl::Status CheckReplaceable(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "cannot examine", path);
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(Cat("\"", path, "\" exists and is not a socket; it is left alone: remove it or choose another directory"));
  }
  TRANCHE_ASSIGN_OR_RETURN(const bool listening, SomebodyListens(path));
  if (!listening) return absl::OkStatus();
  return absl::AlreadyExistsError(Cat("another process serves on \"", path, "\": stop it, or give each process its own instance name (the pod's UID)"));
}

absl::StatusOr<PublishedSocket> PublishSocket(const std::string& hidden, const std::string& path) {
  if (chmod(hidden.c_str(), 0600) != 0) return ErrnoStatus(errno, "cannot set the mode of socket", hidden);
  struct stat info {};
  if (lstat(hidden.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot examine socket", hidden);
  if (std::rename(hidden.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot move the socket into place at", path);
  return PublishedSocket{path, info.st_dev, info.st_ino};
}

absl::Status WithdrawSocket(const PublishedSocket& socket) {
  struct stat info {};
  if (lstat(socket.path.c_str(), &info) != 0) return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "cannot examine socket", socket.path);
  if (info.st_dev != socket.device || info.st_ino != socket.inode) return absl::OkStatus();
  return RemoveFile(socket.path);
}

std::string SocketUri(std::string_view path) {
  std::string uri = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '.' || c == '_' || c == '~') {
      uri.push_back(c);
    } else {
      Append(uri, "%", absl::BytesToHexString(std::string(1, c)));
    }
  }
  return uri;
}

}  // namespace tranche::dra
