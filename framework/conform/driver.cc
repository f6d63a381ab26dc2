#include "conform/driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "base/status.h"
#include "base/text.h"
#include "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.grpc.pb.h"
#include "local/wire.h"

namespace tranche::dra_conform {
namespace {

using local::FromGrpc;
using local::MakeRequest;
using local::OpenChannel;
using local::ToWall;

// The bits of an answer's messages; both versions and both methods have the same names.
template <typename From>
Entry ReadEntry(const From& from) {
  Entry entry{from.error(), {}};
  if constexpr (requires { from.devices(); }) {
    for (const auto& device : from.devices()) {
      Device& to = entry.devices.emplace_back();
      to.request_names.assign(device.request_names().begin(), device.request_names().end());
      to.pool = device.pool_name();
      to.device = device.device_name();
      to.cdi_ids.assign(device.cdi_device_ids().begin(), device.cdi_device_ids().end());
      if constexpr (requires { device.has_share_id(); }) {
        if (device.has_share_id()) to.share_id = device.share_id();
      }
    }
    std::sort(entry.devices.begin(), entry.devices.end());
  }
  return entry;
}

template <typename Response>
Reply ReadReply(const grpc::Status& status, const Response& response, std::string_view method) {
  Reply reply{FromGrpc(status, method), {}};
  if (!status.ok()) return reply;
  for (const auto& [uid, entry] : response.claims()) reply.entries.emplace(uid, ReadEntry(entry));
  return reply;
}

template <typename Traits>
Reply CallPrepare(typename Traits::Stub& stub, const std::vector<ClaimReference>& claims, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  typename Traits::PrepareResponse response;
  const grpc::Status status = stub.NodePrepareResources(&context, MakeRequest<typename Traits::PrepareRequest>(claims), &response);
  return ReadReply(status, response, "NodePrepareResources");
}

template <typename Traits>
Reply CallUnprepare(typename Traits::Stub& stub, const std::vector<ClaimReference>& claims, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  typename Traits::UnprepareResponse response;
  const grpc::Status status = stub.NodeUnprepareResources(&context, MakeRequest<typename Traits::UnprepareRequest>(claims), &response);
  return ReadReply(status, response, "NodeUnprepareResources");
}

// NodeWatchResourcesResponse: how many `devices` (field 1) it has; -1 when it is no message.
int CountDevices(const std::string& bytes) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  int devices = 0;
  while (const std::uint32_t tag = stream.ReadTag()) {
    constexpr std::uint32_t kLengthDelimited = 2;
    std::uint32_t length = 0;
    if ((tag & 7U) != kLengthDelimited || !stream.ReadVarint32(&length) || !stream.Skip(static_cast<int>(length & 0x7fffffffU))) return -1;
    devices += tag >> 3U == 1 ? 1 : 0;
  }
  return stream.ConsumedEntireMessage() ? devices : -1;
}

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// One step of a stream on its own queue.
bool Step(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

class RawSocket {
 public:
  static absl::StatusOr<RawSocket> Connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return absl::InvalidArgumentError(Cat("the path has ", path.size(), " bytes, at most 107 fit"));
    std::memcpy(address.sun_path, path.data(), path.size());
    RawSocket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (made.fd_ < 0 || ::connect(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return absl::UnavailableError(Cat("connect ", path, ": ", std::strerror(errno)));
    }
    return made;
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&&) = delete;
  ~RawSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  void Write(std::string_view bytes) const { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }

 private:
  explicit RawSocket(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace

std::string_view ServiceName(Version version) { return version == Version::kV1 ? "v1.DRAPlugin" : "v1beta1.DRAPlugin"; }

bool Reply::Ok(const std::string& uid) const {
  const auto entry = entries.find(uid);
  return status.ok() && entry != entries.end() && entry->second.error.empty();
}

std::string Reply::Why(const std::string& uid) const {
  if (!status.ok()) return Cat(CodeName(status.code()), ": ", View(status.message()));
  const auto entry = entries.find(uid);
  return entry == entries.end() ? Cat("no entry for claim UID ", uid) : entry->second.error;
}

std::vector<Device> Reply::Devices(const std::string& uid) const { return Ok(uid) ? entries.at(uid).devices : std::vector<Device>(); }

struct Registration::Impl {
  std::unique_ptr<pluginregistration::Registration::Stub> stub;
};
Registration::Registration(const std::string& socket) : impl_(new Impl{pluginregistration::Registration::NewStub(OpenChannel(socket))}) {}
Registration::~Registration() = default;

absl::StatusOr<Info> Registration::GetInfo(Deadline deadline) const {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  pluginregistration::PluginInfo info;
  const grpc::Status status = impl_->stub->GetInfo(&context, pluginregistration::InfoRequest(), &info);
  if (!status.ok()) return FromGrpc(status, "GetInfo");
  return Info{info.type(), info.name(), info.endpoint(), {info.supported_versions().begin(), info.supported_versions().end()}};
}

absl::Status Registration::Notify(const std::string& error, Deadline deadline) const {
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  pluginregistration::RegistrationStatus outcome;
  outcome.set_plugin_registered(error.empty());
  outcome.set_error(error);
  pluginregistration::RegistrationStatusResponse response;
  return FromGrpc(impl_->stub->NotifyRegistrationStatus(&context, outcome, &response), "NotifyRegistrationStatus");
}

struct Plugin::Impl {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<local::V1::Stub> stable;
  std::unique_ptr<local::V1Beta1::Stub> beta;
};
Plugin::Plugin(const std::string& endpoint) : impl_(new Impl()) {
  impl_->channel = OpenChannel(endpoint);
  impl_->stable = local::V1::Service::NewStub(impl_->channel);
  impl_->beta = local::V1Beta1::Service::NewStub(impl_->channel);
}
Plugin::~Plugin() = default;

Reply Plugin::Prepare(Version version, const std::vector<ClaimReference>& claims, Deadline deadline) const {
  return version == Version::kV1 ? CallPrepare<local::V1>(*impl_->stable, claims, deadline) : CallPrepare<local::V1Beta1>(*impl_->beta, claims, deadline);
}

Reply Plugin::Unprepare(Version version, const std::vector<ClaimReference>& claims, Deadline deadline) const {
  return version == Version::kV1 ? CallUnprepare<local::V1>(*impl_->stable, claims, deadline) : CallUnprepare<local::V1Beta1>(*impl_->beta, claims, deadline);
}

absl::StatusOr<int> Plugin::FirstHealth(const std::string& service, Deadline deadline) const {
  grpc::GenericStub stub(impl_->channel);
  grpc::ClientContext context;
  context.set_deadline(ToWall(deadline));
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, Cat("/", service, "/NodeWatchResources"), &queue);
  const grpc::ByteBuffer empty(nullptr, 0);
  grpc::ByteBuffer first;
  stream->StartCall(nullptr);
  bool got = Step(queue);
  if (got) {
    stream->WriteLast(empty, grpc::WriteOptions(), nullptr);
    got = Step(queue);
  }
  if (got) {
    stream->Read(&first, nullptr);
    got = Step(queue);
  }
  if (got) context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  Step(queue);
  queue.Shutdown();
  while (Step(queue)) continue;
  if (!got && status.ok()) return absl::UnavailableError("NodeWatchResources: the stream ended before its first message");
  if (!got) return FromGrpc(status, "NodeWatchResources");
  const int devices = CountDevices(Bytes(first));
  if (devices < 0) return absl::DataLossError("NodeWatchResources: the first message is no NodeWatchResourcesResponse");
  return devices;
}

absl::Status TryConnect(const std::string& socket) { return RawSocket::Connect(socket).status(); }

absl::Status WriteRaw(const std::string& socket, std::string_view bytes) {
  TRANCHE_ASSIGN_OR_RETURN(const RawSocket connection, RawSocket::Connect(socket));
  connection.Write(bytes);
  return absl::OkStatus();
}

}  // namespace tranche::dra_conform
