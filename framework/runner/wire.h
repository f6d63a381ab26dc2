// What tranched and tranche-runner say to each other over one socket pair: frames of a 16-byte head and a payload. Both ends run on one machine and
// come from one build: integers are the machine's own, another protocol version is refused at the first frame. Texts of backends (devices,
// shares, keys, verdicts) travel as they are; tranched alone parses and judges them.
//
//   tranched → runner   start, then call (any number at a time), cancel, stop
//   runner → tranched   started or refused, then done for each call; log, health, devices_changed, share_lost, metric at any time
//
// Only the C++ standard library: the runner is small because nothing else is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tranche::runner {

inline constexpr std::uint16_t kProtocolVersion = 3;
inline constexpr int kSocketFd = 3;                             // in the runner
inline constexpr std::size_t kMaxCallBytes = 64 * 1024 * 1024;  // one frame to the runner

enum class FrameType : std::uint16_t {
  kStart = 1,
  kCall,
  kCancel,
  kStop,
  kStarted = 16,
  kRefused,
  kDone,
  kLog,
  kHealth,
  kDevicesChanged,
  kShareLost,
  kMetric,
};

// The functions of the ABI that a call names.
enum class Function : std::uint16_t {
  kCreate = 0,
  kDiscover,
  kPrepare,
  kUnprepare,
  kListPrepared,
  kVerify,
  kCheckHealth,
  kRecover,
  kReleaseHandles,
  kSelfTest,
  kSweep
};
inline constexpr std::uint16_t kFunctions = 11;

struct Head {
  std::uint32_t length = 0;  // of the payload
  std::uint16_t type = 0;
  std::uint16_t version = kProtocolVersion;
  std::uint64_t call = 0;  // 0 outside call, cancel and done
};
static_assert(sizeof(Head) == 16);

// What the runner is told before anything of the backend runs.
struct Start {
  std::string name, path;  // the manifest's name; the library to open
  std::uint64_t device_bytes = 0, call_bytes = 0;
  std::uint64_t memory_bytes = 0, open_files = 0;  // 0: as inherited
  std::vector<std::string> capabilities;           // to keep: "NET_ADMIN"
  std::vector<std::string> system_calls;           // otherwise denied ones to allow
};
struct Started {
  std::string version;
  std::uint16_t abi_minor = 0;
  std::uint32_t flags = 0, functions = 0;  // bits by Function
};
struct Refused {
  std::string stage, why;  // "dlopen" | "entry" | "table"; anything else: the runner itself
};
struct Call {
  Function function = Function::kDiscover;
  std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
  std::string argument;
};
struct Result {
  std::string key;
  std::int32_t code = 0;
  std::string message;
};
struct Done {
  std::int32_t code = 0;    // what the function returned
  std::int32_t failed = 0;  // what fail() recorded
  std::string message;
  bool threw = false;      // message is what it threw
  bool instance = false;   // of create
  bool exhausted = false;  // descriptors or memory are nearly used up: this process should be replaced
  std::string violation;
  std::uint64_t microseconds = 0;  // inside the function
  std::vector<std::string> devices, shares;
  std::vector<Result> results;
};
struct Log {
  std::uint32_t level = 0;
  std::string text;
};

struct Metric {
  std::string name;
  std::int64_t value = 0;
};

std::string Encode(const Start& start);
std::string Encode(const Started& started);
std::string Encode(const Refused& refused);
std::string Encode(const Call& call);
std::string Encode(const Done& done);
std::string Encode(const Log& log);
std::string Encode(const Metric& metric);
// nullopt: not what the type says.
std::optional<Start> DecodeStart(std::string_view payload);
std::optional<Started> DecodeStarted(std::string_view payload);
std::optional<Refused> DecodeRefused(std::string_view payload);
std::optional<Call> DecodeCall(std::string_view payload);
std::optional<Done> DecodeDone(std::string_view payload);
std::optional<Log> DecodeLog(std::string_view payload);
std::optional<Metric> DecodeMetric(std::string_view payload);

// A whole frame.
std::string Frame(FrameType type, std::uint64_t call, std::string_view payload);
// The largest payload that the runner sends under these limits.
std::size_t LargestAnswer(std::uint64_t device_bytes, std::uint64_t call_bytes);

// Cuts what arrives into frames.
class FrameReader {
 public:
  struct Received {
    FrameType type;
    std::uint64_t call;
    std::string payload;
  };
  explicit FrameReader(std::size_t largest) : largest_(largest) {}
  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // nullopt: more bytes are needed, or problem() is not empty and nothing more will come.
  std::optional<Received> Next();
  const std::string& problem() const { return problem_; }

 private:
  const std::size_t largest_;
  std::string buffer_, problem_;
  std::size_t read_ = 0;
};

}  // namespace tranche::runner
