// Lines over a stream socket, with size caps and deadlines. Owns the descriptor. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "base/clock.h"

namespace tranche::admin {

class LineChannel {
 public:
  // `wake_fd` (not owned, -1 for none): a read or write is Cancelled once it is readable.
  LineChannel(int fd, int wake_fd) : fd_(fd), wake_fd_(wake_fd) {}
  ~LineChannel();
  LineChannel(const LineChannel&) = delete;
  LineChannel& operator=(const LineChannel&) = delete;

  // The next line without its newline. OutOfRange at the end of the stream, ResourceExhausted for a longer line, DeadlineExceeded when
  // nothing begins within `idle` or a line that began is not complete within `line`.
  absl::StatusOr<std::string> ReadLine(std::size_t max_bytes, std::chrono::milliseconds idle, std::chrono::milliseconds line);
  // Appends the newline.
  absl::Status WriteLine(std::string_view text, std::chrono::milliseconds timeout);

 private:
  absl::Status Wait(short events, Deadline deadline);

  int fd_;
  int wake_fd_;
  std::string buffer_;       // received, not yet returned
  std::size_t scanned_ = 0;  // bytes of buffer_ known to hold no newline
};

}  // namespace tranche::admin
