// What an exchange means: an object, or an error in the codes of client.h. Internal to the room.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "kube/exchange.h"

namespace tranche::kube {

// A JSON object of any depth that the API server stores. `what` begins the message.
absl::StatusOr<boost::json::object> ParseObject(std::string_view text, std::string_view what);

// A metav1.Status, or what else came with that HTTP status.
struct ServerError {
  absl::Status status;
  std::optional<std::chrono::seconds> retry_after;  // of the object; of the header where the object says nothing
};
// `what` is method and path. The body may be anything.
ServerError DescribeError(int http_status, std::string_view body, std::string_view what);
// A metav1.Status on its own (an ERROR event).
ServerError DescribeStatusObject(const boost::json::object& object, int http_status, std::string_view what);

// OK for 2xx. Of other outcomes too: kNotSent and kBroken are Unavailable, kTimedOut DeadlineExceeded.
ServerError Describe(const HttpRequest& request, const HttpAnswer& answer);

}  // namespace tranche::kube
