#include "admin/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include <boost/json.hpp>

#include "admin/line_channel.h"
#include "admin/protocol.h"
#include "base/status.h"
#include "base/text.h"

namespace tranche::admin {
namespace {

absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(Cat("\"", path, "\" cannot be a unix socket: 1 to 107 bytes are allowed"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::InternalError(Cat("creating a socket: ", std::strerror(errno)));
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int code = errno;
  ::close(fd);
  if (code == EACCES || code == EPERM) return absl::PermissionDeniedError(Cat("the admin socket ", path, " may not be opened; run as root"));
  return absl::UnavailableError(Cat("no host answers on ", path, " (", std::strerror(code), "); start tranched, or name its socket with --socket"));
}

std::chrono::milliseconds Left(Deadline deadline) { return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()); }

}  // namespace

absl::StatusOr<boost::json::value> Call(const std::string& socket, std::string_view method, const boost::json::value& params, Deadline deadline) {
  TRANCHE_ASSIGN_OR_RETURN(const int fd, Connect(socket));
  LineChannel channel(fd, -1);
  TRANCHE_RETURN_IF_ERROR(Annotate(channel.WriteLine(EncodeRequest(method, params), Left(deadline)), method));
  absl::StatusOr<std::string> line = channel.ReadLine(kMaxResponseBytes, Left(deadline), Left(deadline));
  if (absl::IsOutOfRange(line.status())) return absl::UnavailableError(Cat(method, ": the host closed the connection without an answer"));
  if (!line.ok()) return Annotate(line.status(), method);
  return DecodeResponse(*line);
}

}  // namespace tranche::admin
