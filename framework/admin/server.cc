#include "admin/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <list>
#include <thread>
#include <utility>

#include <boost/json.hpp>

#include "admin/line_channel.h"
#include "admin/protocol.h"
#include "base/status.h"
#include "base/text.h"
#include "model/json.h"
#include "telemetry/log.h"

namespace tranche::admin {
namespace {

namespace json = boost::json;

absl::Status SystemError(std::string_view what, const std::string& path) {
  return absl::InternalError(Cat(what, " admin socket ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(Cat("the admin socket's path ", path, " has ", path.size(), " bytes, the kernel allows 107; use a shorter one"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* AsSockaddr(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

// Ok when nothing is at `path`, or a socket on which nobody listens.
absl::Status CheckReplaceable(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? absl::OkStatus() : SystemError("looking at", path);
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(Cat(path, " exists and is not a socket; remove it or choose another runtime directory"));
  }
  TRANCHE_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return SystemError("probing", path);
  const bool refused = ::connect(probe, AsSockaddr(address), sizeof(address)) != 0 && (errno == ECONNREFUSED || errno == ENOENT);
  ::close(probe);
  if (refused) return absl::OkStatus();
  return absl::AlreadyExistsError(Cat("another host listens on ", path, "; stop it, or start this one with another --instance"));
}

// Bound under a hidden name and renamed, so that the socket appears with its mode and replaces a stale one atomically.
absl::StatusOr<int> Listen(const std::string& path) {
  TRANCHE_RETURN_IF_ERROR(Address(path).status());
  TRANCHE_RETURN_IF_ERROR(CheckReplaceable(path));
  const std::string hidden = Cat(path, ".", ::getpid() % 1000);
  TRANCHE_ASSIGN_OR_RETURN(const sockaddr_un address, Address(hidden));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("creating", path);
  ::unlink(hidden.c_str());
  if (::bind(fd, AsSockaddr(address), sizeof(address)) != 0 || ::chmod(hidden.c_str(), 0600) != 0 || ::listen(fd, 16) != 0 ||
      ::rename(hidden.c_str(), path.c_str()) != 0) {
    const absl::Status failure = SystemError("binding", path);
    ::unlink(hidden.c_str());
    ::close(fd);
    return failure;
  }
  return fd;
}

absl::Status CheckPeer(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return absl::PermissionDeniedError("the peer's credentials are not known");
  if (peer.uid == 0 || peer.uid == ::geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(Cat("user ", peer.uid, " may not use the admin socket; run as root"));
}

}  // namespace

class AdminServer::Impl {
 public:
  Impl(ServerOptions options, int listener, int wake) : options_(std::move(options)), listener_(listener), wake_(wake) {
    struct stat info {};
    if (::lstat(options_.path.c_str(), &info) == 0) inode_ = info.st_ino;
    acceptor_ = std::thread([this] { Accept(); });
  }

  ~Impl() {
    const std::uint64_t one = 1;
    // The counter stays set: every poll on it returns from now on.
    if (::write(wake_, &one, sizeof(one)) < 0) LogError("the admin server could not be woken", {{"path", options_.path}});
    acceptor_.join();
    for (Connection& connection : connections_) connection.thread.join();
    ::close(listener_);
    ::close(wake_);
    struct stat info {};
    if (::lstat(options_.path.c_str(), &info) == 0 && info.st_ino == inode_) ::unlink(options_.path.c_str());
  }

 private:
  struct Connection {
    std::thread thread;
    std::atomic<bool> done = false;
  };

  void Accept() {
    while (true) {
      std::array<pollfd, 2> polled{pollfd{listener_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
      if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
      if (polled[1].revents != 0) return;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) {
        Take(fd);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        // The waiting connection stays readable: without a pause this would spin.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }

  void Take(int fd) {
    connections_.remove_if([](Connection& connection) {
      if (!connection.done) return false;
      connection.thread.join();
      return true;
    });
    if (connections_.size() >= options_.max_connections) {
      LineChannel channel(fd, wake_);
      const absl::Status full = absl::ResourceExhaustedError("too many admin connections; try again");
      channel.WriteLine(EncodeResponse(full), std::chrono::milliseconds(200)).IgnoreError();
      return;
    }
    Connection& connection = connections_.emplace_back();
    try {
      connection.thread = std::thread([this, fd, &connection] {
        Serve(fd);
        connection.done = true;
      });
    } catch (const std::system_error&) {  // no thread to be had: this client tries again
      connections_.pop_back();
      ::close(fd);
    }
  }

  void Serve(int fd) {
    LineChannel channel(fd, wake_);
    if (const absl::Status allowed = CheckPeer(fd); !allowed.ok()) {
      channel.WriteLine(EncodeResponse(allowed), options_.io_timeout).IgnoreError();
      return;
    }
    while (true) {
      absl::StatusOr<std::string> line = channel.ReadLine(kMaxRequestBytes, options_.idle_timeout, options_.io_timeout);
      if (!line.ok()) {
        if (absl::IsResourceExhausted(line.status())) channel.WriteLine(EncodeResponse(line.status()), options_.io_timeout).IgnoreError();
        return;
      }
      if (!channel.WriteLine(Answer(*line), options_.io_timeout).ok()) return;
    }
  }

  std::string Answer(const std::string& line) const {
    std::string text = EncodeResponse(Call(line));
    if (text.size() <= kMaxResponseBytes) return text;
    return EncodeResponse(absl::ResourceExhaustedError(Cat("the answer has ", text.size(), " bytes; ask for less")));
  }

  absl::StatusOr<json::value> Call(const std::string& line) const {
    TRANCHE_ASSIGN_OR_RETURN(const json::value request, ParseJson(line));
    TRANCHE_ASSIGN_OR_RETURN(const std::string name, RequestMethod(request));
    TRANCHE_ASSIGN_OR_RETURN(const json::value params, RequestParams(request));
    const auto method = options_.methods.find(name);
    if (method == options_.methods.end()) return absl::UnimplementedError(Cat("the host has no admin method \"", name, "\""));
    try {
      return method->second(params);
    } catch (const std::exception& error) { return absl::InvalidArgumentError(Cat("admin method ", name, ": ", error.what())); }
  }

  const ServerOptions options_;
  const int listener_;
  const int wake_;
  ino_t inode_ = 0;
  std::list<Connection> connections_;  // the accepting thread's, and the destructor's after it ended
  std::thread acceptor_;
};

absl::Status AdminServer::CheckPath(const std::string& path) { return Address(path).status(); }

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(ServerOptions options) {
  TRANCHE_ASSIGN_OR_RETURN(const int listener, Listen(options.path));
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    const absl::Status failure = SystemError("preparing", options.path);
    ::close(listener);
    ::unlink(options.path.c_str());
    return failure;
  }
  return std::unique_ptr<AdminServer>(new AdminServer(std::make_unique<Impl>(std::move(options), listener, wake)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

}  // namespace tranche::admin
