// The admin protocol: one JSON object per line in each direction over a unix stream socket, any number of requests a connection.
//
//   → {"apiVersion": "admin.tranche.dev/v1", "method": "status", "params": {…}}
//   ← {"result": …}   or   {"error": {"code": "NOT_FOUND", "message": "…"}}
//
// A line is at most kMaxRequestBytes from the client and kMaxResponseBytes from the server. Pure functions; nothing here throws.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

namespace tranche::admin {

inline constexpr std::string_view kApiVersion = "admin.tranche.dev/v1";
inline constexpr std::size_t kMaxRequestBytes = 1024 * 1024;
inline constexpr std::size_t kMaxResponseBytes = 64 * 1024 * 1024;

std::string EncodeRequest(std::string_view method, const boost::json::value& params);
// The method's name; `params` is read with RequestParams. InvalidArgument for another apiVersion or shape.
absl::StatusOr<std::string> RequestMethod(const boost::json::value& request);
// The request's params, {} when absent. InvalidArgument when they are not an object.
absl::StatusOr<boost::json::value> RequestParams(const boost::json::value& request);

std::string EncodeResponse(const absl::StatusOr<boost::json::value>& outcome);
// The result, or the error as the status that the server sent. DataLoss for a line that is neither.
absl::StatusOr<boost::json::value> DecodeResponse(std::string_view line);

}  // namespace tranche::admin
