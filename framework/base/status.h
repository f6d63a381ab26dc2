// Status helpers. absl::Status is the error type of the whole code base; a message says what failed, on which object,
// why, and what to do about it. Codes decide whether a caller may retry (docs/architecture.md §10).
#pragma once

#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tranche {

// "context: message", same code. Ok stays Ok.
absl::Status Annotate(const absl::Status& status, std::string_view context);

// True for codes after which the same call may succeed unchanged: unavailable, deadline exceeded, aborted, resource
// exhausted, cancelled.
bool IsRetryable(const absl::Status& status);

// "NOT_FOUND" for kNotFound and so on: the canonical gRPC spelling, as shown to users and stored in audit records.
std::string_view CodeName(absl::StatusCode code);

}  // namespace tranche

#define TRANCHE_CONCAT_INNER_(a, b) a##b
#define TRANCHE_CONCAT_(a, b) TRANCHE_CONCAT_INNER_(a, b)

#define TRANCHE_RETURN_IF_ERROR(expression)                                                         \
  do {                                                                                              \
    if (absl::Status tranche_status_ = (expression); !tranche_status_.ok()) return tranche_status_; \
  } while (false)

#define TRANCHE_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                           \
  if (!temporary.ok()) return std::move(temporary).status();               \
  declaration = std::move(temporary).value()

#define TRANCHE_ASSIGN_OR_RETURN(declaration, expression) TRANCHE_ASSIGN_OR_RETURN_IMPL_(TRANCHE_CONCAT_(tranche_or_, __LINE__), declaration, expression)
