#include "admin/line_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/status.h"
#include "base/text.h"

namespace tranche::admin {

LineChannel::~LineChannel() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status LineChannel::Wait(short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return absl::DeadlineExceededError("the other side of the admin socket did not act in time");
    std::array<pollfd, 2> polled{pollfd{fd_, events, 0}, pollfd{wake_fd_, POLLIN, 0}};
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(std::min<long long>(left, 60'000)));
    if (ready < 0 && errno != EINTR) return absl::InternalError(Cat("poll on the admin socket: ", std::strerror(errno)));
    if (ready <= 0) continue;
    if (polled[1].revents != 0) return absl::CancelledError("the host is shutting down");
    if (polled[0].revents != 0) return absl::OkStatus();
  }
}

absl::StatusOr<std::string> LineChannel::ReadLine(std::size_t max_bytes, std::chrono::milliseconds idle, std::chrono::milliseconds line) {
  Deadline deadline = DeadlineIn(buffer_.empty() ? idle : line);
  std::array<char, 16384> chunk;
  while (true) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos && newline <= max_bytes) {
      std::string text = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      scanned_ = 0;
      return text;
    }
    scanned_ = buffer_.size();
    if (buffer_.size() > max_bytes) return absl::ResourceExhaustedError(Cat("the line is longer than ", max_bytes, " bytes"));
    TRANCHE_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    const ssize_t count = ::recv(fd_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count == 0) return absl::OutOfRangeError("the admin connection was closed");
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return absl::UnavailableError(Cat("reading the admin socket: ", std::strerror(errno)));
    }
    if (buffer_.empty()) deadline = DeadlineIn(line);
    buffer_.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

absl::Status LineChannel::WriteLine(std::string_view text, std::chrono::milliseconds timeout) {
  const Deadline deadline = DeadlineIn(timeout);
  const std::string line = Cat(text, "\n");
  std::size_t sent = 0;
  while (sent < line.size()) {
    TRANCHE_RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    const ssize_t count = ::send(fd_, line.data() + sent, line.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return absl::UnavailableError(Cat("writing the admin socket: ", std::strerror(errno)));
    }
    sent += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace tranche::admin
