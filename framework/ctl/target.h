// Which host a command talks to: its admin socket, or its store read-only when it is down.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "local/directory.h"

namespace tranche::ctl {

struct Target {
  std::string socket;     // --socket
  std::string directory;  // --dir: a local directory

  // The admin socket: the named one, or the one in the directory that answers, or the system's.
  std::string Socket() const;
  std::string Database() const;
  // InvalidArgument without --dir.
  absl::StatusOr<local::Directory> Directory() const;
};

// One admin method.
absl::StatusOr<boost::json::value> Ask(const Target& target, std::string_view method, const boost::json::value& params);
// `claims`, `shares` or `audit`: from the host, or from its store when no host answers; that is said on standard error.
absl::StatusOr<boost::json::value> AskOrRead(const Target& target, std::string_view method, const boost::json::value& params);

}  // namespace tranche::ctl
