// The body of a watch: one JSON object a line, cut anywhere by the network. Internal to the room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/json/object.hpp>

namespace tranche::kube {

// Joins what arrives to lines. Lines that arrive whole are not copied.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Calls on_line(std::string_view) -> bool for each line that is complete now, without its end; false stops, what follows is dropped.
  // ResourceExhausted when a line is longer than the bound; nothing is held then.
  template <typename OnLine>
  absl::Status Append(std::string_view data, OnLine&& on_line) {
    while (!data.empty()) {
      const std::size_t end = data.find('\n');
      const std::string_view part = data.substr(0, end);
      if (part.size() > max_line_bytes_ - held_.size()) return TooLong();
      if (end == std::string_view::npos) {
        held_.append(part);
        return absl::OkStatus();
      }
      data.remove_prefix(end + 1);
      if (!Emit(part, on_line)) return absl::OkStatus();
    }
    return absl::OkStatus();
  }
  std::size_t held_bytes() const { return held_.size(); }

 private:
  static constexpr std::size_t kKeptCapacity = 16U << 10;

  template <typename OnLine>
  bool Emit(std::string_view part, OnLine& on_line) {
    if (held_.empty()) return part.empty() || on_line(part);
    std::string line = std::move(held_);
    held_.clear();
    line.append(part);
    const bool go_on = on_line(std::string_view(line));
    line.clear();
    if (line.capacity() <= kKeptCapacity) held_ = std::move(line);  // a large event's memory is not kept for hours
    return go_on;
  }
  absl::Status TooLong();

  const std::size_t max_line_bytes_;
  std::string held_;
};

enum class StreamEventKind { kAdded, kModified, kDeleted, kBookmark, kGone, kError, kUnknown };

struct StreamEvent {
  StreamEventKind kind = StreamEventKind::kUnknown;
  std::string resource_version;  // of all but errors
  boost::json::object object;
  absl::Status error;  // of kGone and kError
};

// DataLoss: not an event. Kinds that later servers may add are kUnknown.
absl::StatusOr<StreamEvent> DecodeEvent(std::string_view line);

}  // namespace tranche::kube
