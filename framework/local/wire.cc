#include "local/wire.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>

#include "base/text.h"

namespace tranche::local {
namespace {

constexpr int kMaxMessageBytes = 64 * 1024 * 1024;

std::string SocketUri(std::string_view path) {
  std::string uri = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || std::string_view("/-._~").find(c) != std::string_view::npos) {
      uri.push_back(c);
    } else {
      Append(uri, "%", absl::BytesToHexString(std::string(1, c)));
    }
  }
  return uri;
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(SocketUri(socket), grpc::InsecureChannelCredentials(), arguments);
}

std::chrono::system_clock::time_point ToWall(Deadline deadline) {
  return std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::steady_clock::now());
}

absl::Status FromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), Cat(what, ": ", status.error_message()));
}

}  // namespace tranche::local
