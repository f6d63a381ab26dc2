#include "plugins/vnic_tc/kernel/netlink.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>

namespace vnic {
namespace {

std::int32_t CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ESRCH: return TRANCHE_NOT_FOUND;
    case EEXIST: return TRANCHE_ALREADY_EXISTS;
    case EPERM:
    case EACCES: return TRANCHE_PERMISSION_DENIED;
    case EINVAL:
    case ERANGE: return TRANCHE_INVALID_ARGUMENT;
    case EXFULL:
    case ENOSPC:
    case ENFILE:
    case EMFILE: return TRANCHE_RESOURCE_EXHAUSTED;
    case EOPNOTSUPP: return TRANCHE_FAILED_PRECONDITION;
    case EBUSY:
    case EAGAIN:
    case ENOMEM:
    case ENOBUFS:
    case EINTR: return TRANCHE_UNAVAILABLE;
    default: return TRANCHE_INTERNAL;
  }
}

Failure KernelFailure(std::string_view what, int error, const std::string& detail) {
  std::string message = std::string(what) + ": " + std::strerror(error);
  if (!detail.empty()) message += " (" + detail + ")";
  return {CodeOf(error), std::move(message), error};
}

// The text of an extended acknowledgement, "" where the kernel gave none.
std::string ExtendedAck(const nlmsghdr* header) {
  const auto* error = static_cast<const nlmsgerr*>(nlmsg_data(const_cast<nlmsghdr*>(header)));
  if ((header->nlmsg_flags & NLM_F_ACK_TLVS) == 0) return {};
  std::size_t offset = sizeof(nlmsgerr);
  if ((header->nlmsg_flags & NLM_F_CAPPED) == 0) offset += error->msg.nlmsg_len - sizeof(nlmsghdr);
  offset = NLMSG_ALIGN(offset);
  const std::size_t size = header->nlmsg_len - NLMSG_HDRLEN;
  if (offset >= size) return {};
  auto* attribute = reinterpret_cast<nlattr*>(reinterpret_cast<char*>(const_cast<nlmsgerr*>(error)) + offset);
  Attributes<NLMSGERR_ATTR_MAX> parsed;
  nla_parse(parsed.table, NLMSGERR_ATTR_MAX, attribute, static_cast<int>(size - offset), nullptr);
  return parsed.Text(NLMSGERR_ATTR_MSG);
}

void SetOption(int fd, int option) {
  const int one = 1;
  // Old kernels lack the option; only the text of errors gets poorer.
  (void)setsockopt(fd, SOL_NETLINK, option, &one, sizeof(one));
}

}  // namespace

Message::Message(int type, int flags) : message_(nlmsg_alloc_size(8192)) { nlmsg_put(message_, NL_AUTO_PORT, NL_AUTO_SEQ, type, 0, NLM_F_REQUEST | flags); }
Message::~Message() { nlmsg_free(message_); }
void Message::Append(const void* data, std::size_t size) { nlmsg_append(message_, const_cast<void*>(data), size, NLMSG_ALIGNTO); }
void Message::PutBytes(int attribute, const void* data, std::size_t size) { nla_put(message_, attribute, static_cast<int>(size), data); }
void Message::PutText(int attribute, std::string_view text) {
  const std::string terminated(text);
  PutBytes(attribute, terminated.c_str(), terminated.size() + 1);
}
nlattr* Message::Begin(int attribute) { return nla_nest_start(message_, attribute); }
void Message::End(nlattr* nested) { nla_nest_end(message_, nested); }

Socket::Socket(Socket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}
Socket::~Socket() {
  if (socket_ != nullptr) nl_socket_free(socket_);
}
int Socket::fd() const { return nl_socket_get_fd(socket_); }

Result<Socket> Socket::Open() {
  nl_sock* raw = nl_socket_alloc();
  if (raw == nullptr) return Failure{TRANCHE_UNAVAILABLE, "route netlink socket: out of memory"};
  Socket socket(raw);
  if (const int error = nl_connect(raw, NETLINK_ROUTE); error < 0) {
    return Failure{TRANCHE_UNAVAILABLE, std::string("route netlink socket: ") + nl_geterror(error)};
  }
  nl_socket_set_buffer_size(raw, 1 << 20, 1 << 16);
  nl_socket_set_msg_buf_size(raw, 1 << 16);
  SetOption(socket.fd(), NETLINK_EXT_ACK);
  SetOption(socket.fd(), NETLINK_CAP_ACK);
  return socket;
}

Result<Socket> Socket::OpenMonitor(int group) {
  Result<Socket> socket = Open();
  if (!socket.ok()) return socket;
  nl_socket_set_nonblocking(socket->socket_);
  nl_socket_set_buffer_size(socket->socket_, 8 << 20, 1 << 16);
  if (const int error = nl_socket_add_membership(socket->socket_, group); error < 0) {
    return Failure{TRANCHE_UNAVAILABLE, std::string("link events: ") + nl_geterror(error)};
  }
  return socket;
}

Status Socket::Run(Message& message, std::string_view what, const Handler& handler) {
  nlmsg_hdr(message.get())->nlmsg_flags |= NLM_F_ACK;
  if (const int sent = nl_send_auto(socket_, message.get()); sent < 0) { return Failure{TRANCHE_UNAVAILABLE, std::string(what) + ": " + nl_geterror(sent)}; }
  bool interrupted = false;
  return Collect(nlmsg_hdr(message.get())->nlmsg_seq, what, handler, &interrupted);
}

Status Socket::Dump(const std::function<void(Message&)>& fill, int type, std::string_view what, const std::function<void()>& reset, const Handler& handler) {
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    reset();
    Message message(type, NLM_F_DUMP);
    fill(message);
    if (const int sent = nl_send_auto(socket_, message.get()); sent < 0) { return Failure{TRANCHE_UNAVAILABLE, std::string(what) + ": " + nl_geterror(sent)}; }
    bool interrupted = false;
    Status status = Collect(nlmsg_hdr(message.get())->nlmsg_seq, what, handler, &interrupted);
    if (!status.ok() || !interrupted) return status;
  }
  return Failure{TRANCHE_UNAVAILABLE, std::string(what) + ": the kernel's list kept changing while it was read; try again"};
}

Status Socket::Collect(std::uint32_t sequence, std::string_view what, const Handler& handler, bool* interrupted) {
  while (true) {
    sockaddr_nl from{};
    unsigned char* buffer = nullptr;
    const int received = nl_recv(socket_, &from, &buffer, nullptr);
    if (received == 0) return Failure{TRANCHE_UNAVAILABLE, std::string(what) + ": the netlink socket closed"};
    if (received < 0) return Failure{TRANCHE_UNAVAILABLE, std::string(what) + ": " + nl_geterror(received)};
    Status outcome;
    bool done = false;
    int left = received;
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(header, left) != 0; header = nlmsg_next(header, &left)) {
      if (header->nlmsg_seq != sequence) continue;  // a late answer of a request that failed earlier
      if ((header->nlmsg_flags & NLM_F_DUMP_INTR) != 0) *interrupted = true;
      if (header->nlmsg_type == NLMSG_DONE) {
        done = true;
      } else if (header->nlmsg_type == NLMSG_ERROR) {
        const int error = -static_cast<const nlmsgerr*>(nlmsg_data(header))->error;
        if (error != 0) outcome = KernelFailure(what, error, ExtendedAck(header));
        done = true;
      } else if (handler) {
        handler(header);
      }
    }
    std::free(buffer);
    if (done) return outcome;
  }
}

Result<bool> Socket::Receive(const Handler& handler) {
  sockaddr_nl from{};
  unsigned char* buffer = nullptr;
  errno = 0;
  const int received = nl_recv(socket_, &from, &buffer, nullptr);
  if (received == 0 || received == -NLE_AGAIN) return false;
  if (received < 0) return KernelFailure("link events", received == -NLE_NOMEM ? ENOBUFS : EIO, nl_geterror(received));
  int left = received;
  for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(header, left) != 0; header = nlmsg_next(header, &left)) { handler(header); }
  std::free(buffer);
  return true;
}

}  // namespace vnic
