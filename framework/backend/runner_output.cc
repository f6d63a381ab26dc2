#include "backend/runner_output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <absl/strings/str_cat.h>

#include "backend/payload.h"
#include "telemetry/log.h"

namespace tranche::backend {
namespace {
constexpr std::size_t kMaxLineBytes = 2048;
constexpr int kReadsAtOnce = 8;  // so that a flood does not keep the answers waiting
}  // namespace

bool Bucket::Take() {
  const auto now = std::chrono::steady_clock::now();
  tokens_ = std::min(burst_, tokens_ + per_second_ * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (tokens_ < 1) {
    ++dropped_;
    return false;
  }
  tokens_ -= 1;
  return true;
}

bool RunnerOutput::AdmitLog() {
  if (!bucket_.Take()) return false;
  if (const std::uint64_t dropped = bucket_.TakeDropped(); dropped > 0) {
    LogWarning("a backend writes more than is taken; lines were dropped", {{"backend", backend_}, {"dropped", absl::StrCat(dropped)}});
  }
  return true;
}

void RunnerOutput::Line(std::string_view line) {
  if (!line.empty() && AdmitLog()) LogWarning("a backend wrote to its standard output or error", {{"backend", backend_}, {"line", CleanText(line)}});
}

bool RunnerOutput::Read(int fd) {
  std::array<char, 4096> buffer;
  for (int round = 0; round < kReadsAtOnce; ++round) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    part_.append(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t end = part_.find('\n'); end != std::string::npos || part_.size() >= kMaxLineBytes; end = part_.find('\n')) {
      const std::size_t size = std::min({end, part_.size(), kMaxLineBytes});
      Line(std::string_view(part_).substr(0, size));
      part_.erase(0, size == end ? size + 1 : size);
    }
  }
  return true;
}

void RunnerOutput::Flush() {
  Line(part_);
  part_.clear();
}

}  // namespace tranche::backend
