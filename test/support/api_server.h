// A real API server (etcd and kube-apiserver, test/cluster/tools/apiserver) for the length of a test, and requests to it as any user.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/process.h"

namespace tranche::test {

struct Impersonation {
  std::string user;  // empty: the administrator himself, of group system:masters
  std::vector<std::string> groups;
  std::map<std::string, std::string> extra;  // of the token, such as authentication.kubernetes.io/node-name
};

// What a pod-bound token of a service account says. No node: a token that is bound to nothing.
Impersonation ServiceAccountUser(const std::string& namespace_name, const std::string& name, const std::string& node = "");

struct Answer {
  int code = 0;  // HTTP; 0: no answer
  std::string body;
};

class ApiServer {
 public:
  // "" when its binaries are in the cache, otherwise why not and what to do; nothing is built by a test.
  static std::string Missing(const std::string& version = "1.37");

  // Null with a failure on the test when it does not start. `flags` go to kube-apiserver.
  static std::unique_ptr<ApiServer> Start(const std::vector<std::string>& flags = {}, const std::string& version = "1.37");
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  const std::string& kubeconfig() const { return kubeconfig_; }
  // `path` with query, such as "/api/v1/namespaces". `body`: JSON, or "".
  Answer Request(const std::string& method, const std::string& path, const std::string& body = "", const Impersonation& as = {},
                 const std::string& content_type = "application/json") const;

 private:
  ApiServer() = default;

  TemporaryDirectory directory_;
  std::string kubeconfig_, url_;
};

}  // namespace tranche::test
