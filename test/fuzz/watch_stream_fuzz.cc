// Watch streams: the first two bytes choose where the rest is cut; lines are the same however it is cut, and each is an event or refused.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kube/event_stream.h"

namespace {

constexpr std::size_t kMaxLine = 512;

struct Lines {
  std::vector<std::string> lines;
  bool too_long = false;
  friend bool operator==(const Lines&, const Lines&) = default;
};

Lines Split(std::string_view text, std::size_t first, std::size_t step) {
  Lines result;
  tranche::kube::LineSplitter splitter(kMaxLine);
  const auto take = [&result](std::string_view line) {
    result.lines.emplace_back(line);
    return true;
  };
  std::size_t size = first;
  while (!text.empty() && !result.too_long) {
    size = std::min(size, text.size());
    result.too_long = !splitter.Append(text.substr(0, size), take).ok();
    if (splitter.held_bytes() > kMaxLine) std::abort();
    text.remove_prefix(size);
    size = step;
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Lines lines = Split(text, data[0], std::size_t{data[1]} + 1);
  if (!(lines == Split(text, text.size(), 1))) std::abort();
  for (const std::string& line : lines.lines) {
    const absl::StatusOr<tranche::kube::StreamEvent> event = tranche::kube::DecodeEvent(line);
    if (!event.ok()) continue;
    using Kind = tranche::kube::StreamEventKind;
    const bool error = event->kind == Kind::kError || event->kind == Kind::kGone;
    if (error == event->error.ok()) std::abort();
    if (!error && event->kind != Kind::kUnknown && event->resource_version.empty()) std::abort();
  }
  return 0;
}
