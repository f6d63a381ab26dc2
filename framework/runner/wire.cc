#include "runner/wire.h"

#include <cstring>
#include <utility>

namespace tranche::runner {
namespace {

constexpr std::size_t kOverheadBytes = 2 * 1024 * 1024;  // counts and lengths of at most kMaxEntries entries, texts for people
constexpr std::size_t kMaxEntries = 64 * 1024;

class Writer {
 public:
  template <class Integer>
  Writer& Put(Integer value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& Put(const std::string& text) {
    Put(static_cast<std::uint32_t>(text.size()));
    out_ += text;
    return *this;
  }
  Writer& Put(const std::vector<std::string>& texts) {
    Put(static_cast<std::uint32_t>(texts.size()));
    for (const std::string& text : texts) Put(text);
    return *this;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads past the end give zeros and make whole() false.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <class Integer>
  Integer Get() {
    Integer value{};
    if (in_.size() < sizeof value) {
      broken_ = true;
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof value);
    in_.remove_prefix(sizeof value);
    return value;
  }
  std::string Text() {
    const auto size = Get<std::uint32_t>();
    if (broken_ || in_.size() < size) {
      broken_ = true;
      return {};
    }
    std::string text(in_.substr(0, size));
    in_.remove_prefix(size);
    return text;
  }
  // Every entry takes at least four bytes, so a count cannot ask for more memory than the frame has.
  std::uint32_t Count() {
    const auto count = Get<std::uint32_t>();
    if (count > kMaxEntries || count > in_.size() / 4) broken_ = true;
    return broken_ ? 0 : count;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (std::uint32_t left = Count(); left > 0 && !broken_; --left) texts.push_back(Text());
    return texts;
  }
  bool broken() const { return broken_; }
  bool whole() const { return !broken_ && in_.empty(); }

 private:
  std::string_view in_;
  bool broken_ = false;
};

template <class Value>
std::optional<Value> IfWhole(const Reader& reader, Value value) {
  if (!reader.whole()) return std::nullopt;
  return value;
}

bool IsType(std::uint16_t type) {
  return (type >= static_cast<std::uint16_t>(FrameType::kStart) && type <= static_cast<std::uint16_t>(FrameType::kStop)) ||
         (type >= static_cast<std::uint16_t>(FrameType::kStarted) && type <= static_cast<std::uint16_t>(FrameType::kMetric));
}

}  // namespace

std::string Encode(const Start& start) {
  return Writer()
      .Put(start.name)
      .Put(start.path)
      .Put(start.device_bytes)
      .Put(start.call_bytes)
      .Put(start.memory_bytes)
      .Put(start.open_files)
      .Put(start.capabilities)
      .Put(start.system_calls)
      .Take();
}

std::optional<Start> DecodeStart(std::string_view payload) {
  Reader reader(payload);
  Start start;
  start.name = reader.Text();
  start.path = reader.Text();
  start.device_bytes = reader.Get<std::uint64_t>();
  start.call_bytes = reader.Get<std::uint64_t>();
  start.memory_bytes = reader.Get<std::uint64_t>();
  start.open_files = reader.Get<std::uint64_t>();
  start.capabilities = reader.Texts();
  start.system_calls = reader.Texts();
  return IfWhole(reader, std::move(start));
}

std::string Encode(const Started& started) { return Writer().Put(started.version).Put(started.abi_minor).Put(started.flags).Put(started.functions).Take(); }

std::optional<Started> DecodeStarted(std::string_view payload) {
  Reader reader(payload);
  Started started;
  started.version = reader.Text();
  started.abi_minor = reader.Get<std::uint16_t>();
  started.flags = reader.Get<std::uint32_t>();
  started.functions = reader.Get<std::uint32_t>();
  return IfWhole(reader, std::move(started));
}

std::string Encode(const Refused& refused) { return Writer().Put(refused.stage).Put(refused.why).Take(); }

std::optional<Refused> DecodeRefused(std::string_view payload) {
  Reader reader(payload);
  Refused refused;
  refused.stage = reader.Text();
  refused.why = reader.Text();
  return IfWhole(reader, std::move(refused));
}

std::string Encode(const Call& call) { return Writer().Put(static_cast<std::uint16_t>(call.function)).Put(call.deadline_ns).Put(call.argument).Take(); }

std::optional<Call> DecodeCall(std::string_view payload) {
  Reader reader(payload);
  Call call;
  const auto function = reader.Get<std::uint16_t>();
  if (function >= kFunctions) return std::nullopt;
  call.function = static_cast<Function>(function);
  call.deadline_ns = reader.Get<std::int64_t>();
  call.argument = reader.Text();
  return IfWhole(reader, std::move(call));
}

std::string Encode(const Done& done) {
  Writer writer;
  const std::uint8_t bits = static_cast<std::uint8_t>((done.threw ? 1u : 0u) | (done.instance ? 2u : 0u) | (done.exhausted ? 4u : 0u));
  writer.Put(done.code).Put(done.failed).Put(done.message).Put(bits).Put(done.violation).Put(done.microseconds).Put(done.devices).Put(done.shares);
  writer.Put(static_cast<std::uint32_t>(done.results.size()));
  for (const Result& result : done.results) writer.Put(result.key).Put(result.code).Put(result.message);
  return writer.Take();
}

std::optional<Done> DecodeDone(std::string_view payload) {
  Reader reader(payload);
  Done done;
  done.code = reader.Get<std::int32_t>();
  done.failed = reader.Get<std::int32_t>();
  done.message = reader.Text();
  const auto bits = reader.Get<std::uint8_t>();
  done.threw = (bits & 1u) != 0;
  done.instance = (bits & 2u) != 0;
  done.exhausted = (bits & 4u) != 0;
  done.violation = reader.Text();
  done.microseconds = reader.Get<std::uint64_t>();
  done.devices = reader.Texts();
  done.shares = reader.Texts();
  for (std::uint32_t left = reader.Count(); left > 0 && !reader.broken(); --left) {
    Result result;
    result.key = reader.Text();
    result.code = reader.Get<std::int32_t>();
    result.message = reader.Text();
    done.results.push_back(std::move(result));
  }
  return IfWhole(reader, std::move(done));
}

std::string Encode(const Log& log) { return Writer().Put(log.level).Put(log.text).Take(); }

std::string Encode(const Metric& metric) { return Writer().Put(metric.value).Put(metric.name).Take(); }

std::optional<Metric> DecodeMetric(std::string_view payload) {
  Reader reader(payload);
  Metric metric;
  metric.value = reader.Get<std::int64_t>();
  metric.name = reader.Text();
  return IfWhole(reader, std::move(metric));
}

std::optional<Log> DecodeLog(std::string_view payload) {
  Reader reader(payload);
  Log log;
  log.level = reader.Get<std::uint32_t>();
  log.text = reader.Text();
  return IfWhole(reader, std::move(log));
}

std::string Frame(FrameType type, std::uint64_t call, std::string_view payload) {
  Head head;
  head.length = static_cast<std::uint32_t>(payload.size());
  head.type = static_cast<std::uint16_t>(type);
  head.call = call;
  std::string frame;
  frame.reserve(sizeof head + payload.size());
  frame.append(reinterpret_cast<const char*>(&head), sizeof head);
  frame += payload;
  return frame;
}

std::size_t LargestAnswer(std::uint64_t device_bytes, std::uint64_t call_bytes) {
  return static_cast<std::size_t>(device_bytes + 2 * call_bytes) + kOverheadBytes;  // what was pushed, and as much of messages
}

std::optional<FrameReader::Received> FrameReader::Next() {
  if (!problem_.empty() || buffer_.size() - read_ < sizeof(Head)) return std::nullopt;
  Head head;
  std::memcpy(&head, buffer_.data() + read_, sizeof head);
  if (head.version != kProtocolVersion) problem_ = "a frame of protocol version " + std::to_string(head.version);
  if (problem_.empty() && !IsType(head.type)) problem_ = "a frame of unknown type " + std::to_string(head.type);
  if (problem_.empty() && head.length > largest_) {
    problem_ = "a frame of " + std::to_string(head.length) + " bytes; at most " + std::to_string(largest_) + " are taken";
  }
  if (!problem_.empty() || buffer_.size() - read_ - sizeof head < head.length) return std::nullopt;
  Received received{static_cast<FrameType>(head.type), head.call, buffer_.substr(read_ + sizeof head, head.length)};
  read_ += sizeof head + head.length;
  if (read_ == buffer_.size() || read_ > 256 * 1024) {
    buffer_.erase(0, read_);
    read_ = 0;
    if (buffer_.empty() && buffer_.capacity() > 256 * 1024) buffer_.shrink_to_fit();
  }
  return received;
}

}  // namespace tranche::runner
