#include "support/api_server.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace tranche::test {
namespace {

constexpr char kTools[] = TRANCHE_SOURCE_DIRECTORY "/test/cluster/tools/";

std::string Cache() {
  if (const char* cache = std::getenv("TRANCHE_CACHE"); cache != nullptr && *cache != '\0') return std::string(cache) + "/cluster";
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/tranche/cluster";
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The text between `before` and the next quote.
std::string Between(const std::string& text, const std::string& before) {
  const std::size_t start = text.find(before);
  if (start == std::string::npos) return "";
  const std::size_t from = start + before.size();
  return text.substr(from, text.find('"', from) - from);
}

std::string Escaped(const std::string& key) {
  std::string escaped;
  for (const char c : key) escaped += c == '/' ? std::string("%2f") : std::string(1, c);
  return escaped;
}

}  // namespace

Impersonation ServiceAccountUser(const std::string& namespace_name, const std::string& name, const std::string& node) {
  Impersonation user{"system:serviceaccount:" + namespace_name + ":" + name,
                     {"system:serviceaccounts", "system:serviceaccounts:" + namespace_name, "system:authenticated"},
                     {}};
  if (!node.empty()) user.extra["authentication.kubernetes.io/node-name"] = node;
  return user;
}

std::string ApiServer::Missing(const std::string& version) {
  const std::string cache = Cache();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cache, ignored)) {
    const std::string bin = entry.path().string() + "/bin/";
    const bool wanted = entry.path().filename().string().starts_with("v" + version + ".");
    if (wanted && std::filesystem::exists(bin + "kube-apiserver") && std::filesystem::exists(bin + "etcd")) return "";
  }
  return "no kube-apiserver and etcd of Kubernetes " + version + " under " + cache + "; build them with test/cluster/tools/build --version " + version +
         " apiserver (minutes, once)";
}

std::unique_ptr<ApiServer> ApiServer::Start(const std::vector<std::string>& flags, const std::string& version) {
  std::unique_ptr<ApiServer> server(new ApiServer());
  // --with: it ends with this process, however that ends.
  std::vector<std::string> command = {std::string(kTools) + "apiserver", "up", server->directory_.path(), "--version", version, "--with",
                                      std::to_string(::getpid())};
  if (!flags.empty()) command.emplace_back("--");
  command.insert(command.end(), flags.begin(), flags.end());
  const RunResult started = RunProgram(command, {}, std::chrono::minutes(3));
  if (started.exit_code != 0) {
    std::cerr << "apiserver up: exit code " << started.exit_code << "\n" << started.output << started.error << "\n";
    return nullptr;
  }
  server->kubeconfig_ = started.output.substr(0, started.output.find('\n'));
  server->url_ = Between(ReadText(server->kubeconfig_), "server: \"");
  return server;
}

ApiServer::~ApiServer() { RunProgram({std::string(kTools) + "apiserver", "down", directory_.path()}); }

Answer ApiServer::Request(const std::string& method, const std::string& path, const std::string& body, const Impersonation& as,
                          const std::string& content_type) const {
  const std::string sent = directory_.path() + "/request.json", received = directory_.path() + "/answer.json";
  std::vector<std::string> command = {"curl",       "-sS",
                                      "--max-time", "30",
                                      "--cacert",   directory_.path() + "/ca.crt",
                                      "-X",         method,
                                      "-o",         received,
                                      "-w",         "%{http_code}",
                                      "-H",         "Authorization: Bearer " + Between(ReadText(kubeconfig_), "token: \"")};
  const auto header = [&](const std::string& text) { command.insert(command.end(), {"-H", text}); };
  if (!as.user.empty()) header("Impersonate-User: " + as.user);
  for (const std::string& group : as.groups) header("Impersonate-Group: " + group);
  for (const auto& [key, value] : as.extra) header("Impersonate-Extra-" + Escaped(key) + ": " + value);
  if (!body.empty()) {
    std::ofstream(sent) << body;
    header("Content-Type: " + content_type);
    command.insert(command.end(), {"--data-binary", "@" + sent});
  }
  command.push_back(url_ + path);
  const RunResult result = RunProgram(command);
  if (result.exit_code != 0) return {0, result.error};
  return {std::atoi(result.output.c_str()), ReadText(received)};
}

}  // namespace tranche::test
