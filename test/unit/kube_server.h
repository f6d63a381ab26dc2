// An HTTP/1.1 server on raw sockets that does what the test says, however wrong: one thread per connection, bytes as given.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tranche::test {

struct HttpRequest {
  std::string method, path, body;
  std::map<std::string, std::string> headers;  // names in lower case
};

class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  bool Send(std::string_view bytes) const;  // false: the client is gone
  bool Answer(int status, std::string_view body, std::string_view more_headers = "") const;
  bool BeginChunked(int status = 200) const;
  bool Chunk(std::string_view data) const;
  bool EndChunks() const;
  void Close();                        // in an orderly way
  void Reset();                        // RST
  void WaitUntilClientLeaves() const;  // or the server stops
  bool closed() const { return fd_ < 0; }
  int fd() const { return fd_; }

 private:
  int fd_;
};

class HttpServer {
 public:
  // Called from the connection's thread for each request; the connection is closed after it where the handler did so.
  using Handler = std::function<void(Connection& connection, const HttpRequest& request)>;

  explicit HttpServer(Handler handler);
  ~HttpServer() { Stop(); }
  void Stop();  // every connection ends
  int port() const { return port_; }
  std::vector<HttpRequest> Requests() const;  // so far
  int Count(std::string_view method) const;

 private:
  void Accept();
  void Serve(int fd);

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace tranche::test
