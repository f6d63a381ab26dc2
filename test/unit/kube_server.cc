#include "unit/kube_server.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tranche::test {

namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Reads one request; `rest` keeps what came beyond it.
std::optional<HttpRequest> ReadRequest(int fd, std::string& rest) {
  std::size_t head = std::string::npos;
  const auto more = [&] {
    char buffer[4096];
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    rest.append(buffer, static_cast<std::size_t>(got));
    return true;
  };
  while ((head = rest.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return std::nullopt;
  }
  HttpRequest request;
  std::size_t at = rest.find("\r\n");
  const std::string first = rest.substr(0, at);
  request.method = first.substr(0, first.find(' '));
  request.path = first.substr(request.method.size() + 1, first.rfind(' ') - request.method.size() - 1);
  while (at < head) {
    const std::size_t end = rest.find("\r\n", at + 2);
    const std::string line = rest.substr(at + 2, end - at - 2);
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) request.headers[Lower(line.substr(0, colon))] = line.substr(colon + 2);
    at = end;
  }
  rest.erase(0, head + 4);
  std::size_t length = 0;
  const std::string& text = request.headers["content-length"];
  std::from_chars(text.data(), text.data() + text.size(), length);
  while (rest.size() < length) {
    if (!more()) return std::nullopt;
  }
  request.body = rest.substr(0, length);
  rest.erase(0, length);
  return request;
}

}  // namespace

bool Connection::Send(std::string_view bytes) const {
  while (!bytes.empty() && fd_ >= 0) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return fd_ >= 0;
}

bool Connection::Answer(int status, std::string_view body, std::string_view more_headers) const {
  return Send("HTTP/1.1 " + std::to_string(status) + " Said\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + std::string(more_headers) + "\r\n" +
              std::string(body));
}

bool Connection::BeginChunked(int status) const { return Send("HTTP/1.1 " + std::to_string(status) + " Said\r\nTransfer-Encoding: chunked\r\n\r\n"); }

bool Connection::Chunk(std::string_view data) const {
  char size[32];
  const auto end = std::to_chars(size, size + sizeof size, data.size(), 16).ptr;
  return Send(std::string(size, end) + "\r\n" + std::string(data) + "\r\n");
}

bool Connection::EndChunks() const { return Send("0\r\n\r\n"); }

void Connection::Close() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  fd_ = -1;
}

void Connection::Reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd_ = -1;  // the server's close sends the RST
}

void Connection::WaitUntilClientLeaves() const {
  pollfd poll{fd_, POLLRDHUP, 0};
  while (::poll(&poll, 1, -1) < 0) {}
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 128) != 0) std::abort();
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

void HttpServer::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

void HttpServer::Accept() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    if (fd < 0) continue;
    const int at_once = 1;  // every Send is a packet of its own
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void HttpServer::Serve(int fd) {
  Connection connection(fd);
  std::string rest;
  while (!connection.closed()) {
    const std::optional<HttpRequest> request = ReadRequest(fd, rest);
    if (!request.has_value()) break;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
    }
    handler_(connection, *request);
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

std::vector<HttpRequest> HttpServer::Requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int HttpServer::Count(std::string_view method) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(requests_.begin(), requests_.end(), [&](const HttpRequest& request) { return request.method == method; }));
}

}  // namespace tranche::test
