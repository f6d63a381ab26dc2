// A client of a hostile server, with waits of milliseconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/client_impl.h"
#include "support/process.h"
#include "unit/kube_server.h"

namespace tranche::kube {

using namespace std::chrono_literals;
namespace json = boost::json;
using test::Connection;
using Received = test::HttpRequest;

inline void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

class KubeTest : public testing::Test {
 protected:
  // The server ends with what is returned: before the locals of a test that its handler uses.
  struct EndServer {
    void operator()(test::HttpServer* server) const { server->Stop(); }
  };
  using Serving = std::unique_ptr<test::HttpServer, EndServer>;
  [[nodiscard]] Serving Serve(test::HttpServer::Handler handler) {
    server_ = std::make_unique<test::HttpServer>(std::move(handler));
    return Serving(server_.get());
  }

  void SetToken(const std::string& token) {
    WriteText(directory_.path() + "/token.new", token + "\n");
    ASSERT_EQ(std::rename((directory_.path() + "/token.new").c_str(), (directory_.path() + "/token").c_str()), 0);
  }

  std::string WriteKubeconfig(const std::string& server, const std::string& more = "") {
    std::string path = directory_.path() + "/kubeconfig";
    WriteText(path, "current-context: c\ncontexts: [{name: c, context: {cluster: s, user: u}}]\nclusters: [{name: s, cluster: {server: \"" + server + "\"" +
                        more + "}}]\nusers: [{name: u, user: {tokenFile: token}}]\n");
    return path;
  }

  ClientImpl& client() {
    if (client_ == nullptr) Connect(64);
    return *client_;
  }
  void Connect(int max_in_flight, const std::string& server_url = "", const std::string& more = "") {
    if (token_unset_) SetToken("first");
    token_unset_ = false;
    ClientOptions options;
    options.kubeconfig = WriteKubeconfig(server_url.empty() ? "http://127.0.0.1:" + std::to_string(server_->port()) : server_url, more);
    options.max_in_flight = max_in_flight;
    absl::StatusOr<std::unique_ptr<Credentials>> credentials = Credentials::Load(options);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    const RetryTimes retry{1ms, 20ms};
    WatchTimes watch;
    watch.first_wait = 1ms;
    watch.longest_wait = 20ms;
    client_ = std::make_unique<ClientImpl>(options, *std::move(credentials), retry, watch);
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<test::HttpServer> server_;
  std::unique_ptr<ClientImpl> client_;
  bool token_unset_ = true;
};

// What a watch's callbacks were told.
class Recorder {
 public:
  WatchHandler Handler() {
    return {
        .on_list = [this](std::vector<json::object> items) { Add("list " + std::to_string(items.size())); },
        .on_event =
            [this](WatchEvent event, json::object item) {
              static constexpr const char* kNames[] = {"added ", "modified ", "deleted "};
              Add(kNames[static_cast<int>(event)] + std::string(item.at("metadata").at("name").as_string().c_str()));
            },
        .on_problem = [this](const absl::Status& problem) { Add(problem.ok() ? "works" : "problem " + std::string(absl::StatusCodeToString(problem.code()))); },
    };
  }
  void Add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  // Waits until there are that many lines.
  std::vector<std::string> Lines(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

inline std::string ObjectText(const std::string& name, const std::string& version) {
  return R"({"metadata":{"name":")" + name + R"(","resourceVersion":")" + version + R"("}})";
}
inline std::string EventText(const std::string& type, const std::string& name, const std::string& version) {
  return R"({"type":")" + type + R"(","object":)" + ObjectText(name, version) + "}\n";
}
inline std::string ListText(const std::string& version, const std::string& items = "", const std::string& next = "") {
  return R"({"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":")" + version + R"(","continue":")" + next + R"("},"items":[)" + items + "]}";
}
inline std::string StatusText(int code, const std::string& reason, const std::string& message, const std::string& more = "") {
  return R"({"kind":"Status","status":"Failure","code":)" + std::to_string(code) + R"(,"reason":")" + reason + R"(","message":")" + message + "\"" + more + "}";
}
inline bool IsWatch(const Received& request) { return request.path.find("watch=1") != std::string::npos; }

}  // namespace tranche::kube
