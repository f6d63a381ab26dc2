#include "kube/easy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/text.h"

namespace tranche::kube {

namespace {

constexpr long kConnectTimeoutMilliseconds = 10'000;
// Sent data that nobody acknowledges for this long, or as many seconds of unanswered keepalives, end a connection (a vanished peer, a forgotten NAT).
constexpr int kUnacknowledgedMilliseconds = 20'000;
constexpr int kKeepIdleSeconds = 20, kKeepIntervalSeconds = 5, kKeepCount = 4;
constexpr std::size_t kMaxErrorBytes = 1 << 20;  // of an error's body where a 200 would be streamed

void SetOption(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

curl_socket_t OpenSocket(void*, curlsocktype, curl_sockaddr* address) {
  const int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) return CURL_SOCKET_BAD;
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
  return fd;
}

std::size_t OnBody(char* data, std::size_t one, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t size = one * count;
  *transfer.last_received = std::chrono::steady_clock::now();
  if (transfer.cancelled) return 0;
  const bool streamed = transfer.handler.on_data && transfer.answer.status == 200;
  if (streamed) {
    transfer.stopped = !transfer.handler.on_data(std::string_view(data, size));
    return transfer.stopped || transfer.cancelled ? 0 : size;
  }
  const std::size_t most = transfer.handler.on_data ? kMaxErrorBytes : transfer.request.max_bytes;
  transfer.too_large = size > most - std::min(most, transfer.answer.body.size());
  if (transfer.too_large) return 0;
  transfer.answer.body.append(data, size);
  return size;
}

void ReadStatusLine(std::string_view line, HttpAnswer& answer) {
  const std::size_t space = line.find(' ');
  answer.status = 0;
  answer.retry_after.reset();
  if (space == std::string_view::npos) return;
  std::from_chars(line.data() + space + 1, line.data() + line.size(), answer.status);
}

void ReadRetryAfter(std::string_view value, HttpAnswer& answer) {
  while (value.starts_with(' ')) value.remove_prefix(1);
  unsigned seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error == std::errc() && end != value.data()) answer.retry_after = std::chrono::seconds(std::min(seconds, 3600U));
}

std::size_t OnHeader(char* data, std::size_t one, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t size = one * count;
  *transfer.last_received = std::chrono::steady_clock::now();
  if (transfer.cancelled) return 0;
  std::string_view line(data, size);
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  constexpr std::string_view kRetryAfter = "retry-after:";
  if (line.starts_with("HTTP/")) {
    ReadStatusLine(line, transfer.answer);
  } else if (line.size() > kRetryAfter.size() && ::strncasecmp(line.data(), kRetryAfter.data(), kRetryAfter.size()) == 0) {
    ReadRetryAfter(line.substr(kRetryAfter.size()), transfer.answer);
  } else if (line.empty() && transfer.answer.status >= 200 && transfer.handler.on_status) {
    transfer.handler.on_status(transfer.answer.status);
    if (transfer.cancelled) return 0;
  }
  return size;
}

// There is no seek function: libcurl sends a request again by itself on another connection only where nothing of its body was sent yet.
std::size_t OnSend(char* buffer, std::size_t one, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string& body = transfer.request.body;
  const std::size_t size = std::min(one * count, body.size() - transfer.body_sent);
  std::memcpy(buffer, body.data() + transfer.body_sent, size);
  transfer.body_sent += size;
  return size;
}

curl_blob Blob(const std::string& text) { return {const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY}; }

// "https://host:443/prefix" as scheme, authority and prefix; the authority as host (with brackets) and port.
struct Url {
  std::string scheme, host, port, prefix;
};
Url Split(const std::string& url) {
  Url parts;
  const std::size_t authority = url.find("://") + 3;
  parts.scheme = url.substr(0, authority);
  const std::size_t slash = std::min(url.find('/', authority), url.size());
  parts.prefix = url.substr(slash);
  const std::string whole = url.substr(authority, slash - authority);
  const std::size_t colon = whole.rfind(':');
  const bool port = colon != std::string::npos && whole.find(']', colon) == std::string::npos;
  parts.host = whole.substr(0, port ? colon : whole.size());
  parts.port = port ? whole.substr(colon + 1) : (parts.scheme == "https://" ? "443" : "80");
  return parts;
}

}  // namespace

Easy::Easy(CURLSH* share) : handle_(curl_easy_init()), share_(share) {}

Easy::~Easy() { curl_easy_cleanup(handle_); }

void Easy::Add(List& list, const std::string& line) { list.reset(curl_slist_append(list.release(), line.c_str())); }

void Easy::Configure(std::shared_ptr<const Access> access) {
  access_ = std::move(access);
  curl_easy_reset(handle_);
  const Url url = Split(access_->server);
  const bool tls = url.scheme == "https://";
  base_url_ = access_->server;
  host_header_.clear();
  connect_to_.reset();
  if (tls && !access_->tls_server_name.empty()) {
    base_url_ = Cat(url.scheme, access_->tls_server_name, ":", url.port, url.prefix);
    host_header_ = Cat("Host: ", url.host, ":", url.port);
    Add(connect_to_, Cat(access_->tls_server_name, ":", url.port, ":", url.host, ":", url.port));
    curl_easy_setopt(handle_, CURLOPT_CONNECT_TO, connect_to_.get());
  }
  curl_easy_setopt(handle_, CURLOPT_SHARE, share_);
  curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle_, CURLOPT_QUICK_EXIT, 1L);  // a name that is still being looked up holds nobody
  curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMilliseconds);
  curl_easy_setopt(handle_, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
  curl_easy_setopt(handle_, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(handle_, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
  curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, error_.data());
  curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(handle_, CURLOPT_READFUNCTION, OnSend);
  // Over TLS the first call opens the connection and those that come meanwhile wait to share it; plain HTTP is version 1.1, where each needs its own.
  curl_easy_setopt(handle_, CURLOPT_HTTP_VERSION, tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(handle_, CURLOPT_PIPEWAIT, tls ? 1L : 0L);
  if (!access_->proxy_url.empty()) {
    // Names are looked up by the proxy, as other Kubernetes clients do it.
    const bool socks = access_->proxy_url.starts_with("socks5://");
    curl_easy_setopt(handle_, CURLOPT_PROXY, (socks ? Cat("socks5h://", access_->proxy_url.substr(9)) : access_->proxy_url).c_str());
    curl_easy_setopt(handle_, CURLOPT_NOPROXY, "");
  }
  if (!access_->username.empty()) {
    curl_easy_setopt(handle_, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(handle_, CURLOPT_USERNAME, access_->username.c_str());
    curl_easy_setopt(handle_, CURLOPT_PASSWORD, access_->password.c_str());
  }
  if (tls) ConfigureTls();
}

void Easy::ConfigureTls() {
  curl_easy_setopt(handle_, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
  if (access_->insecure) {
    curl_easy_setopt(handle_, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(handle_, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!access_->ca_pem.empty()) {
    curl_blob ca = Blob(access_->ca_pem);
    curl_easy_setopt(handle_, CURLOPT_CAINFO_BLOB, &ca);
    curl_easy_setopt(handle_, CURLOPT_CAINFO, nullptr);
    curl_easy_setopt(handle_, CURLOPT_CAPATH, nullptr);  // nobody else is trusted
  }
  if (access_->client_certificate_pem.empty()) return;
  curl_blob certificate = Blob(access_->client_certificate_pem);
  curl_blob key = Blob(access_->client_key_pem);
  curl_easy_setopt(handle_, CURLOPT_SSLCERT_BLOB, &certificate);
  curl_easy_setopt(handle_, CURLOPT_SSLKEY_BLOB, &key);
}

void Easy::SetHeaders(const HttpRequest& request) {
  headers_.reset();
  Add(headers_, "Accept: application/json");
  Add(headers_, "Expect:");
  if (!request.body.empty()) Add(headers_, Cat("Content-Type: ", request.content_type));
  if (!host_header_.empty()) Add(headers_, host_header_);
  if (!access_->bearer_token.empty()) Add(headers_, Cat("Authorization: Bearer ", access_->bearer_token));
  for (const auto& [name, value] : access_->headers) Add(headers_, Cat(name, ": ", value));
  curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_.get());
}

void Easy::Prepare(Transfer& transfer) {
  const HttpRequest& request = transfer.request;
  if (access_ != request.access) Configure(request.access);
  error_[0] = '\0';
  SetHeaders(request);
  curl_easy_setopt(handle_, CURLOPT_URL, Cat(base_url_, request.path).c_str());
  curl_easy_setopt(handle_, CURLOPT_USERAGENT, request.user_agent.c_str());
  curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<std::int64_t>(1, request.timeout.count())));
  if (request.body.empty()) {
    curl_easy_setopt(handle_, CURLOPT_HTTPGET, 1L);
  } else {
    curl_easy_setopt(handle_, CURLOPT_POST, 1L);
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(handle_, CURLOPT_READDATA, &transfer);
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle_, CURLOPT_PRIVATE, &transfer);
}

namespace {
// libcurl counts whole milliseconds from its own start and may end a call a moment before our clock says so.
constexpr std::chrono::milliseconds kClockSlack{10};
std::chrono::steady_clock::duration Elapsed(const Transfer& transfer) { return std::chrono::steady_clock::now() - transfer.begun; }
}  // namespace

bool Easy::WasSent() const {
  long bytes = 0;
  return curl_easy_getinfo(handle_, CURLINFO_REQUEST_SIZE, &bytes) == CURLE_OK && bytes > 0;
}

curl_socket_t Easy::Socket() const {
  curl_socket_t socket = CURL_SOCKET_BAD;
  return curl_easy_getinfo(handle_, CURLINFO_ACTIVESOCKET, &socket) == CURLE_OK ? socket : CURL_SOCKET_BAD;
}

void Easy::Conclude(Transfer& transfer, CURLcode code) const {
  HttpAnswer& answer = transfer.answer;
  if (code == CURLE_OK) {
    answer.outcome = Outcome::kAnswered;
    return;
  }
  answer.problem = error_[0] != '\0' ? error_.data() : curl_easy_strerror(code);
  if (transfer.stopped) {
    answer.outcome = Outcome::kStopped;
  } else if (transfer.too_large) {
    answer.outcome = Outcome::kTooLarge;
  } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE) {
    answer.outcome = Outcome::kUntrusted;
  } else if (code == CURLE_OPERATION_TIMEDOUT && (WasSent() || Elapsed(transfer) + kClockSlack >= transfer.request.timeout)) {
    // Not the bound on connecting alone, which is over for what was sent.
    answer.outcome = Outcome::kTimedOut;
  } else {
    answer.outcome = WasSent() ? Outcome::kBroken : Outcome::kNotSent;
  }
}

}  // namespace tranche::kube
