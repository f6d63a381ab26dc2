#include "plugins/vnic_tc/attach/attach.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include <boost/json.hpp>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

namespace vnic {
namespace {

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A socket of another network namespace; the thread is back in its own afterwards.
Result<Socket> OpenIn(int namespace_fd, int own_fd) {
  if (setns(namespace_fd, CLONE_NEWNET) != 0)
    return Failure{TRANCHE_UNAVAILABLE, std::string("enter the pod's network namespace: ") + std::strerror(errno), errno};
  Result<Socket> socket = Socket::Open();
  if (setns(own_fd, CLONE_NEWNET) != 0) return Failure{TRANCHE_INTERNAL, std::string("return to the host's network namespace: ") + std::strerror(errno), errno};
  return socket;
}

Result<std::optional<Link>> Find(Socket& socket, const std::string& name) {
  Result<Link> link = GetLink(socket, name);
  if (link.ok()) return std::optional<Link>(*link);
  if (link.failure().code == TRANCHE_NOT_FOUND) return std::optional<Link>();
  return link.failure();
}

class Attachment {
 public:
  Attachment(const AttachRequest& request, Socket host, Socket pod, int host_fd, int pod_fd)
      : request_(request), host_(std::move(host)), pod_(std::move(pod)), host_fd_(host_fd), pod_fd_(pod_fd) {}

  Status Run(std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      Result<Progress> progress = Step();
      if (!progress.ok()) return progress.failure();
      if (*progress == Progress::kDone) return {};
      if (std::chrono::steady_clock::now() >= deadline) {
        return Failure{TRANCHE_DEADLINE_EXCEEDED, "share interface " + request_.host_end + " is not there after " + std::to_string(patience.count()) +
                                                      " ms; is tranched running on this node?"};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  enum class Progress { kDone, kWait };

  Result<Progress> Step() {
    for (const std::string& name : {request_.name, request_.pod_end}) {
      Result<std::optional<Link>> inside = Find(pod_, name);
      if (!inside.ok()) return inside.failure();
      if (!inside->has_value()) continue;
      if ((*inside)->mac != request_.mac) {
        return Failure{TRANCHE_ALREADY_EXISTS, "interface " + name + " exists in the pod and is not this share's; choose another interfaceName"};
      }
      return Done(Complete(**inside));
    }
    Result<std::optional<Link>> host_end = Find(host_, request_.host_end);
    if (!host_end.ok()) return host_end.failure();
    if (!host_end->has_value()) return Progress::kWait;
    Result<std::optional<Link>> parked = Find(host_, request_.pod_end);
    if (!parked.ok()) return parked.failure();
    if (!parked->has_value()) {
      return Failure{TRANCHE_FAILED_PRECONDITION, "the interface of share " + request_.host_end + " is in another pod; a share serves one pod"};
    }
    if (!(*host_end)->up || (*host_end)->master == 0) return Progress::kWait;  // still being set up
    return Done(MoveIn(**parked));
  }

  static Result<Progress> Done(const Status& status) {
    if (!status.ok()) return status.failure();
    return Progress::kDone;
  }

  Status MoveIn(const Link& parked) {
    if (Status moved = MoveToNamespace(host_, parked, pod_fd_, request_.name); !moved.ok()) return Park(moved);
    Result<Link> inside = GetLink(pod_, request_.name);
    if (!inside.ok()) return Park(inside.failure());
    Status completed = Complete(*inside);
    return completed.ok() ? completed : Park(completed);
  }

  // Name, MAC, MTU, address, up; only what is not so already.
  Status Complete(const Link& inside) {
    if (inside.name != request_.name) {
      if (Status status = RenameLink(pod_, inside, request_.name); !status.ok()) return status;
    }
    if (inside.mac != request_.mac || (request_.mtu != 0 && inside.mtu != request_.mtu)) {
      if (Status status = SetMacAndMtu(pod_, inside, request_.mac, request_.mtu); !status.ok()) return status;
    }
    Result<std::vector<InterfaceAddress>> addresses = ListAddresses(pod_, inside);
    if (!addresses.ok()) return addresses.failure();
    if (std::find(addresses->begin(), addresses->end(), request_.address) == addresses->end()) {
      if (Status status = AddAddress(pod_, inside, request_.address); !status.ok()) return status;
    }
    if (!inside.up) {
      if (Status status = SetAdminState(pod_, inside, AdminState::kUp); !status.ok()) return status;
    }
    Result<std::optional<Link>> loopback = Find(pod_, "lo");
    if (!loopback.ok()) return loopback.failure();
    return loopback->has_value() && !(*loopback)->up ? SetAdminState(pod_, **loopback, AdminState::kUp) : Status();
  }

  // Back to where it was, so that the next try starts anew.
  Status Park(const Status& why) {
    for (const std::string& name : {request_.name, request_.pod_end}) {
      Result<Link> inside = GetLink(pod_, name);
      if (!inside.ok() || inside->mac != request_.mac) continue;
      (void)SetAdminState(pod_, *inside, AdminState::kDown).ok();
      (void)MoveToNamespace(pod_, *inside, host_fd_, request_.pod_end).ok();
    }
    return why;
  }

  const AttachRequest& request_;
  Socket host_, pod_;
  const int host_fd_, pod_fd_;
};

}  // namespace

Result<AttachRequest> ParseAttachArguments(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> values;
  for (std::size_t index = 0; index + 1 < arguments.size(); index += 2) values[arguments[index]] = arguments[index + 1];
  AttachRequest request{values["--host-end"], values["--pod-end"], values["--name"], {}, {}, 0};
  const auto address = ParseInterfaceAddress(values["--address"]);
  const auto mac = ParseMac(values["--mac"]);
  const std::string mtu = values["--mtu"];
  const auto parsed = std::from_chars(mtu.data(), mtu.data() + mtu.size(), request.mtu);
  const bool bad_mtu = !mtu.empty() && (parsed.ec != std::errc() || parsed.ptr != mtu.data() + mtu.size());
  const auto is_name = [](const std::string& name) { return !name.empty() && name.size() <= 15; };
  if (arguments.size() % 2 != 0 || values.size() > 6 || !is_name(request.host_end) || !is_name(request.pod_end) || !is_name(request.name) || !address || !mac ||
      bad_mtu) {
    return Failure{TRANCHE_INVALID_ARGUMENT,
                   "usage: vnic-attach --host-end NAME --pod-end NAME --name NAME --address IP/PREFIX --mac MAC [--mtu BYTES] < OCI-state"};
  }
  request.address = *address;
  request.mac = *mac;
  return request;
}

Result<int> PidOfState(const std::string& text) {
  boost::system::error_code error;
  const boost::json::value state = boost::json::parse(text, error);
  const boost::json::value* pid = !error && state.is_object() ? state.get_object().if_contains("pid") : nullptr;
  if (pid != nullptr && pid->is_int64() && pid->get_int64() > 0 && pid->get_int64() <= INT32_MAX) return static_cast<int>(pid->get_int64());
  return Failure{TRANCHE_INVALID_ARGUMENT, "standard input is not the state of a container (a JSON object with its pid); run this as a createRuntime hook"};
}

Status Attach(const AttachRequest& request, const std::string& namespace_path, std::chrono::milliseconds patience) {
  const Descriptor own("/proc/thread-self/ns/net"), target(namespace_path);
  if (own.get() < 0) return Failure{TRANCHE_INTERNAL, std::string("own network namespace: ") + std::strerror(errno), errno};
  if (target.get() < 0) return Failure{TRANCHE_NOT_FOUND, "network namespace " + namespace_path + ": " + std::strerror(errno), errno};
  struct stat own_identity {
  }, target_identity{};
  if (fstat(own.get(), &own_identity) == 0 && fstat(target.get(), &target_identity) == 0 && own_identity.st_ino == target_identity.st_ino) {
    return Failure{TRANCHE_FAILED_PRECONDITION, "the pod uses the host's network namespace; a share needs a pod with a network of its own"};
  }
  Result<Socket> host = Socket::Open();
  if (!host.ok()) return host.failure();
  Result<Socket> pod = OpenIn(target.get(), own.get());
  if (!pod.ok()) return pod.failure();
  return Attachment(request, std::move(*host), std::move(*pod), own.get(), target.get()).Run(patience);
}

}  // namespace vnic
