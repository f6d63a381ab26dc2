#include "admin/protocol.h"

#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "model/json.h"

namespace tranche::admin {
namespace {

namespace json = boost::json;

absl::StatusCode CodeFromName(std::string_view name) {
  for (int code = 1; code <= 16; ++code) {
    if (CodeName(static_cast<absl::StatusCode>(code)) == name) return static_cast<absl::StatusCode>(code);
  }
  return absl::StatusCode::kUnknown;
}

const json::string* FindString(const json::object& object, std::string_view key) {
  const json::value* found = object.if_contains(key);
  return found == nullptr ? nullptr : found->if_string();
}

}  // namespace

std::string EncodeRequest(std::string_view method, const json::value& params) {
  return ToJsonText(json::object{{"apiVersion", kApiVersion}, {"method", method}, {"params", params}});
}

absl::StatusOr<std::string> RequestMethod(const json::value& request) {
  const json::object* object = request.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("the request is not a JSON object; send one object per line");
  const json::string* version = FindString(*object, "apiVersion");
  if (version == nullptr || std::string_view(*version) != kApiVersion) {
    return absl::InvalidArgumentError(Cat("the request's apiVersion is not ", kApiVersion, "; use the tranchectl of this release"));
  }
  const json::string* method = FindString(*object, "method");
  if (method == nullptr || method->empty()) return absl::InvalidArgumentError("the request names no method");
  return std::string(*method);
}

absl::StatusOr<json::value> RequestParams(const json::value& request) {
  const json::object* object = request.if_object();
  const json::value* params = object == nullptr ? nullptr : object->if_contains("params");
  if (params == nullptr || params->is_null()) return json::value(json::object());
  if (!params->is_object()) return absl::InvalidArgumentError("the request's params are not a JSON object");
  return *params;
}

std::string EncodeResponse(const absl::StatusOr<json::value>& outcome) {
  if (outcome.ok()) return ToJsonText(json::object{{"result", *outcome}});
  json::object error{{"code", CodeName(outcome.status().code())}, {"message", View(outcome.status().message())}};
  return ToJsonText(json::object{{"error", std::move(error)}});
}

absl::StatusOr<json::value> DecodeResponse(std::string_view line) {
  absl::StatusOr<json::value> response = ParseJson(line);
  if (!response.ok()) return absl::DataLossError(Cat("the host's answer is not JSON: ", response.status().message()));
  json::object* object = response->if_object();
  if (object == nullptr) return absl::DataLossError("the host's answer is not a JSON object");
  if (json::value* result = object->if_contains("result")) return std::move(*result);
  const json::value* error = object->if_contains("error");
  const json::object* fields = error == nullptr ? nullptr : error->if_object();
  if (fields == nullptr) return absl::DataLossError("the host's answer has neither result nor error");
  const json::string* code = FindString(*fields, "code");
  const json::string* message = FindString(*fields, "message");
  return absl::Status(code == nullptr ? absl::StatusCode::kUnknown : CodeFromName(*code),
                      message == nullptr ? absl::string_view("the host gave no reason") : absl::string_view(message->data(), message->size()));
}

}  // namespace tranche::admin
