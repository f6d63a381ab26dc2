// Client of the admin socket, for tranchectl and tests: one connection for one call.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "base/clock.h"

namespace tranche::admin {

// The method's result, or the host's error as it sent it. Unavailable when no host listens on `socket`; PermissionDenied when the socket may not be
// opened.
absl::StatusOr<boost::json::value> Call(const std::string& socket, std::string_view method, const boost::json::value& params, Deadline deadline);

}  // namespace tranche::admin
