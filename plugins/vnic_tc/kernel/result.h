// Outcome of a kernel operation: a value, or why there is none. The plugin depends on the SDK and libnl alone, so it has its
// own small status; codes are the canonical numbers of tranche/backend.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "tranche/backend.h"

namespace vnic {

struct Failure {
  std::int32_t code = TRANCHE_INTERNAL;
  std::string message;  // what, which object, why, what to do
  int error = 0;        // errno of the kernel, 0 where it did not answer
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Failure failure) : failure_(std::move(failure)) {}  // NOLINT: a failure is a status
  bool ok() const { return !failure_.has_value(); }
  const Failure& failure() const { return *failure_; }

 private:
  std::optional<Failure> failure_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}            // NOLINT
  Result(Failure failure) : content_(std::move(failure)) {}  // NOLINT
  bool ok() const { return std::holds_alternative<T>(content_); }
  const Failure& failure() const { return std::get<Failure>(content_); }
  T& value() { return std::get<T>(content_); }
  const T& value() const { return std::get<T>(content_); }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }
  const T* operator->() const { return &value(); }
  const T& operator*() const { return value(); }

 private:
  std::variant<T, Failure> content_;
};

}  // namespace vnic
