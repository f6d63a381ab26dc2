// How the API server is reached and with whose rights, as one immutable value: every request carries the value it was made with.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tranche::kube {

struct Access {
  std::string server;           // "https://10.0.0.1:6443/prefix", no slash at the end
  std::string ca_pem;           // empty: the certificates that the system trusts
  bool insecure = false;        // the server's certificate is not checked
  std::string tls_server_name;  // checked against the certificate instead of the server's host
  std::string client_certificate_pem, client_key_pem;
  std::string bearer_token;
  std::string username, password;
  std::string proxy_url;                                     // empty: what the environment says (HTTPS_PROXY, NO_PROXY)
  std::vector<std::pair<std::string, std::string>> headers;  // impersonation
  friend bool operator==(const Access&, const Access&) = default;
};

// An Access whose secrets may lie in files that change; paths are absolute, empty: none.
struct AccessSource {
  Access access;  // without what the files hold
  std::string ca_file, certificate_file, key_file, token_file;
  friend bool operator==(const AccessSource&, const AccessSource&) = default;
};

}  // namespace tranche::kube
