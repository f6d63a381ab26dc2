// A libcurl easy handle, set up once for an Access and then for one exchange after the other. Internal to the room.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include <curl/curl.h>

#include "kube/exchange.h"

namespace tranche::kube {

class Easy;

// An exchange while it runs; its address stays.
struct Transfer {
  std::uint64_t id = 0;
  HttpRequest request;
  HttpHandler handler;
  std::unique_ptr<Easy> easy;  // null until it is given to libcurl
  HttpAnswer answer;
  std::size_t body_sent = 0;
  bool cancelled = false;
  bool too_large = false;
  bool stopped = false;  // on_data said so
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point* last_received = nullptr;
};

class Easy {
 public:
  explicit Easy(CURLSH* share);
  ~Easy();
  Easy(const Easy&) = delete;
  Easy& operator=(const Easy&) = delete;

  void Prepare(Transfer& transfer);
  CURL* handle() const { return handle_; }
  // Outcome and problem of `transfer`, which ended with `code`.
  void Conclude(Transfer& transfer, CURLcode code) const;
  // The socket that was used, or CURL_SOCKET_BAD.
  curl_socket_t Socket() const;

 private:
  struct Free {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  using List = std::unique_ptr<curl_slist, Free>;

  void Configure(std::shared_ptr<const Access> access);
  void ConfigureTls();
  void SetHeaders(const HttpRequest& request);
  static void Add(List& list, const std::string& line);
  bool WasSent() const;

  CURL* const handle_;
  CURLSH* const share_;
  std::shared_ptr<const Access> access_;  // that the handle is set up for
  std::string base_url_;
  std::string host_header_;  // where the URL's host is not the server's
  List headers_, connect_to_;
  std::array<char, CURL_ERROR_SIZE> error_{};
};

}  // namespace tranche::kube
