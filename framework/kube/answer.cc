#include "kube/answer.h"

#include <algorithm>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "kube/client.h"

namespace tranche::kube {
namespace json = boost::json;

namespace {

constexpr std::size_t kMaxDepth = 512;         // opaque parameters may nest deeper than anything of ours; the parser does not recurse, destructors do
constexpr std::size_t kMaxQuotedBytes = 1000;  // of what a server says, in a message

// Printable and short: what a server, or something that answers in its place, says may end up on a terminal.
std::string Quote(std::string_view text) {
  std::string quoted;
  for (const char c : text.substr(0, kMaxQuotedBytes)) quoted.push_back(static_cast<unsigned char>(c) < ' ' || c == 0x7f ? ' ' : c);
  if (text.size() > kMaxQuotedBytes) quoted += "…";
  return quoted;
}

absl::StatusCode CodeOf(int http_status, std::string_view reason) {
  switch (http_status) {
    case 400:
    case 413:
    case 422: return absl::StatusCode::kInvalidArgument;
    case 401: return absl::StatusCode::kUnauthenticated;
    case 403: return absl::StatusCode::kPermissionDenied;
    case 404: return absl::StatusCode::kNotFound;
    case 405:
    case 406:
    case 415: return absl::StatusCode::kUnimplemented;
    case 409: return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kAborted;
    case 410: return absl::StatusCode::kOutOfRange;
    case 429: return absl::StatusCode::kResourceExhausted;
    default: return http_status >= 500 ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnknown;
  }
}

std::string_view TextOf(const json::object& object, std::string_view field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

std::optional<std::int64_t> NumberOf(const json::object& object, std::string_view field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

std::optional<std::chrono::seconds> RetryAfterOf(const json::object& status) {
  const json::value* details = status.if_contains("details");
  if (details == nullptr || !details->is_object()) return std::nullopt;
  const auto seconds = NumberOf(details->get_object(), "retryAfterSeconds");
  if (!seconds.has_value() || *seconds <= 0) return std::nullopt;
  return std::chrono::seconds(std::min<std::int64_t>(*seconds, 3600));
}

}  // namespace

absl::StatusOr<json::object> ParseObject(std::string_view text, std::string_view what) {
  try {
    json::parse_options options;
    options.max_depth = kMaxDepth;
    json::error_code error;
    json::value value = json::parse(text, error, {}, options);
    if (error) return absl::DataLossError(Cat(what, ": the answer is not valid JSON: ", error.message()));
    if (!value.is_object()) return absl::DataLossError(Cat(what, ": the answer is JSON but not an object"));
    return std::move(value.get_object());
  } catch (const std::exception& error) { return absl::DataLossError(Cat(what, ": the answer cannot be read as JSON: ", error.what())); }
}

ServerError DescribeStatusObject(const json::object& object, int http_status, std::string_view what) {
  const std::string_view reason = TextOf(object, "reason");
  const std::string_view message = TextOf(object, "message");
  const int code = static_cast<int>(std::clamp<std::int64_t>(NumberOf(object, "code").value_or(http_status), 0, 999));
  const int shown = http_status != 0 ? http_status : code;
  return {absl::Status(CodeOf(shown, reason), AbslView(Cat(what, ": ", shown, reason.empty() ? "" : " ", Quote(reason), ": ",
                                                           message.empty() ? "the server gives no message" : Quote(message)))),
          RetryAfterOf(object)};
}

ServerError DescribeError(int http_status, std::string_view body, std::string_view what) {
  if (const auto object = ParseObject(body, what); object.ok() && TextOf(*object, "kind") == "Status") {
    return DescribeStatusObject(*object, http_status, what);
  }
  const std::string said = body.empty() ? "an empty body" : Quote(body.substr(0, 200));
  return {absl::Status(CodeOf(http_status, ""), AbslView(Cat(what, ": ", http_status, ": ", said))), std::nullopt};
}

ServerError Describe(const HttpRequest& request, const HttpAnswer& answer) {
  const std::string what = Cat(request.method, " ", request.path);
  const std::string& server = request.access->server;
  switch (answer.outcome) {
    case Outcome::kAnswered: {
      if (answer.status >= 200 && answer.status < 300) return {absl::OkStatus(), std::nullopt};
      ServerError error = DescribeError(answer.status, answer.body, what);
      if (!error.retry_after.has_value()) error.retry_after = answer.retry_after;
      return error;
    }
    case Outcome::kNotSent: return {absl::UnavailableError(Cat(what, ": cannot reach ", server, ": ", answer.problem)), std::nullopt};
    case Outcome::kUntrusted: return {absl::UnavailableError(Cat(what, ": no trusted connection to ", server, ": ", answer.problem)), std::nullopt};
    case Outcome::kBroken: return {absl::UnavailableError(Cat(what, ": the connection to ", server, " broke: ", answer.problem)), std::nullopt};
    case Outcome::kTimedOut: return {absl::DeadlineExceededError(Cat(what, ": ", server, " gave no full answer in time: ", answer.problem)), std::nullopt};
    case Outcome::kTooLarge:
      return {absl::FailedPreconditionError(Cat(what, ": the answer is larger than ", request.max_bytes, " bytes; ask for less")), std::nullopt};
    case Outcome::kStopped: break;
  }
  return {absl::CancelledError(Cat(what, ": the client stops")), std::nullopt};
}

}  // namespace tranche::kube
