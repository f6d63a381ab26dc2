// Unix socket files of the kubelet's protocol: their names, who owns them, and when one may be replaced or removed.
//
// gRPC binds a hidden name which is then renamed into place. That way the file appears complete with its mode, a rename replaces a
// stale socket atomically, and gRPC's own clean-up (which unlinks the path that it bound, whoever owns it by then) cannot take the
// socket of a newer process away.
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche::dra {

// sun_path holds 108 bytes with its NUL.
inline constexpr std::size_t kMaxSocketPath = 107;

// The first name that fits kMaxSocketPath. `instance`: the pod's UID, or empty. InvalidArgument names the lengths.
//   DIR/<driver>/dra.sock | DIR/<driver>/{dra-<instance>,dra-<hash>,<hash>}.sock, and where the driver's directory is too long for all: DIR/<hash>.sock
absl::StatusOr<std::string> ServiceSocketPath(std::string_view plugin_directory, std::string_view driver, std::string_view instance);
//   DIR/<driver>-reg.sock | <driver>-<instance>-reg.sock | <driver>-<hash>-reg.sock | dra-<hash>-reg.sock
absl::StatusOr<std::string> RegistrationSocketPath(std::string_view registry_directory, std::string_view driver, std::string_view instance);

// A hidden name in the same directory for gRPC to bind. InvalidArgument when even that is too long.
absl::StatusOr<std::string> HiddenSocketPath(const std::string& path);

// Ok when `path` is absent or a socket on which nobody listens. AlreadyExists when somebody does; FailedPrecondition for any other file.
absl::Status CheckReplaceable(const std::string& path);

// A socket file that this process published. Moves; the destructor does nothing: removal is explicit.
struct PublishedSocket {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
};
// Sets mode 0600 on `hidden` and renames it to `path`. The caller has checked that the path is replaceable.
absl::StatusOr<PublishedSocket> PublishSocket(const std::string& hidden, const std::string& path);
// Removes the file if it still is the one that was published.
absl::Status WithdrawSocket(const PublishedSocket& socket);

// "unix:" and the path, percent-encoded: gRPC decodes it.
std::string SocketUri(std::string_view path);

}  // namespace tranche::dra
