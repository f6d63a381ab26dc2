#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>

#include "admin/client.h"
#include "admin/protocol.h"
#include "admin/server.h"
#include "admin/views.h"
#include "support/process.h"

namespace tranche::admin {
namespace {

using ::testing::HasSubstr;
namespace json = boost::json;

Methods TestMethods() {
  return {
      {"echo", [](const json::value& params) -> absl::StatusOr<json::value> { return params; }},
      {"missing", [](const json::value&) -> absl::StatusOr<json::value> { return absl::NotFoundError("claim team-a/x is not known"); }},
      {"throws", [](const json::value&) -> absl::StatusOr<json::value> { throw std::runtime_error("thrown"); }},
      {"slow",
       [](const json::value&) -> absl::StatusOr<json::value> {
         std::this_thread::sleep_for(std::chrono::milliseconds(300));
         return json::value("done");
       }},
  };
}

class AdminTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.path = socket(), .methods = TestMethods()}); }

  void Start(ServerOptions options) {
    absl::StatusOr<std::unique_ptr<AdminServer>> started = AdminServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(*started);
  }

  std::string socket() const { return directory_.path() + "/admin.sock"; }
  absl::StatusOr<json::value> Ask(std::string_view method, const json::value& params = json::object()) {
    return Call(socket(), method, params, DeadlineIn(std::chrono::seconds(5)));
  }

  int RawConnection() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket().data(), socket().size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  // What the server says until it closes the connection or has said `lines` lines.
  static std::string Receive(int fd, int lines) {
    std::string text;
    char byte = 0;
    while (lines > 0 && ::recv(fd, &byte, 1, 0) == 1) {
      text.push_back(byte);
      if (byte == '\n') --lines;
    }
    return text;
  }
  static void Send(int fd, std::string_view text) {
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;  // the server may close early
      sent += static_cast<std::size_t>(count);
    }
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminTest, ResultsAndErrorsCrossUnchanged) {
  const json::value params = {{"name", "käse\n"}, {"n", 5}};
  absl::StatusOr<json::value> echoed = Ask("echo", params);
  ASSERT_TRUE(echoed.ok()) << echoed.status();
  EXPECT_EQ(*echoed, params);
  EXPECT_EQ(Ask("missing").status(), absl::NotFoundError("claim team-a/x is not known"));
  EXPECT_TRUE(absl::IsUnimplemented(Ask("nothing").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("throws").status()));
}

TEST_F(AdminTest, SocketIsForItsOwnerOnly) {
  struct stat info {};
  ASSERT_EQ(::lstat(socket().c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(AdminTest, GarbageIsAnsweredAndTheConnectionServesOn) {
  const int fd = RawConnection();
  Send(fd,
       "hello\n{}\n[1]\n\n{\"apiVersion\":\"admin.tranche.dev/v2\",\"method\":\"echo\"}\n"
       "{\"apiVersion\":\"admin.tranche.dev/v1\",\"method\":7}\n"
       "{\"apiVersion\":\"admin.tranche.dev/v1\",\"method\":\"echo\",\"params\":[1]}\n");
  const std::string answers = Receive(fd, 7);
  std::size_t errors = 0;
  for (std::size_t at = answers.find("\"INVALID_ARGUMENT\""); at != std::string::npos; at = answers.find("\"INVALID_ARGUMENT\"", at + 1)) ++errors;
  EXPECT_EQ(errors, 7u) << answers;
  Send(fd, EncodeRequest("echo", json::value({{"still", "here"}})) + "\n");
  EXPECT_EQ(Receive(fd, 1), "{\"result\":{\"still\":\"here\"}}\n");
  ::close(fd);
}

TEST_F(AdminTest, RandomBytesDoNotHurt) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const int fd = RawConnection();
    std::string noise(1 + random() % 4000, '\0');
    for (char& byte : noise) byte = static_cast<char>(random() % 256);
    Send(fd, noise);
    ::shutdown(fd, SHUT_WR);
    Receive(fd, 1000);
    ::close(fd);
  }
  EXPECT_TRUE(Ask("echo").ok());
}

TEST_F(AdminTest, DeepNestingIsRefused) {
  const int fd = RawConnection();
  Send(fd, std::string(100'000, '[') + "\n");
  EXPECT_THAT(Receive(fd, 1), HasSubstr("INVALID_ARGUMENT"));
  ::close(fd);
}

TEST_F(AdminTest, LongLineIsRefusedAndClosed) {
  const int fd = RawConnection();
  Send(fd, std::string(kMaxRequestBytes + 20'000, 'x'));
  EXPECT_THAT(Receive(fd, 2), HasSubstr("RESOURCE_EXHAUSTED"));
  ::close(fd);
  EXPECT_TRUE(Ask("echo").ok());
}

TEST_F(AdminTest, SlowClientIsDropped) {
  server_.reset();
  Start({.path = socket(), .methods = TestMethods(), .io_timeout = std::chrono::milliseconds(100)});
  const int fd = RawConnection();
  Send(fd, "{\"half\":");
  EXPECT_EQ(Receive(fd, 1), "");  // closed, not waited for
  ::close(fd);
}

TEST_F(AdminTest, ManyClientsAtOnce) {
  std::atomic<int> good = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      for (int call = 0; call < 50; ++call) {
        const json::value params = {{"client", client}, {"call", call}};
        absl::StatusOr<json::value> answer = Ask("echo", params);
        if (answer.ok() && *answer == params) ++good;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 400);
}

TEST_F(AdminTest, OneConnectionTooManyIsToldSo) {
  server_.reset();
  Start({.path = socket(), .methods = TestMethods(), .max_connections = 2});
  const int first = RawConnection();
  const int second = RawConnection();
  const int third = RawConnection();
  EXPECT_THAT(Receive(third, 1), HasSubstr("RESOURCE_EXHAUSTED"));
  ::close(first);
  ::close(second);
  ::close(third);
  EXPECT_TRUE(test::Eventually([&] { return Ask("echo").ok(); }));
}

TEST_F(AdminTest, ShutdownWaitsForMethodsAndRemovesTheSocket) {
  std::thread client([&] { Ask("slow").IgnoreError(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int idle = RawConnection();
  server_.reset();
  client.join();
  EXPECT_NE(::access(socket().c_str(), F_OK), 0);
  EXPECT_TRUE(absl::IsUnavailable(Ask("echo").status()));
  ::close(idle);
}

TEST_F(AdminTest, StaleSocketIsReplacedALiveOneIsNot) {
  EXPECT_TRUE(absl::IsAlreadyExists(AdminServer::Start({.path = socket(), .methods = {}}).status()));
  EXPECT_TRUE(Ask("echo").ok());
  const std::string stale = directory_.path() + "/stale.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, stale.data(), stale.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
  EXPECT_TRUE(AdminServer::Start({.path = stale, .methods = {}}).ok());
  const std::string file = directory_.path() + "/file";
  std::ofstream(file) << "keep";
  EXPECT_TRUE(absl::IsFailedPrecondition(AdminServer::Start({.path = file, .methods = {}}).status()));
  EXPECT_EQ(::access(file.c_str(), F_OK), 0);
}

TEST(AdminClient, NoHostIsUnavailableWithARemedy) {
  const absl::Status status = Call("/nonexistent/admin.sock", "status", json::object(), DeadlineIn(std::chrono::seconds(1))).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("start tranched"));
  EXPECT_TRUE(absl::IsInvalidArgument(Call(std::string(200, 'x'), "status", json::object(), DeadlineIn(std::chrono::seconds(1))).status()));
}

TEST(AdminProtocol, AnswersThatAreNeitherAreDataLoss) {
  for (const char* line : {"", "x", "[]", "{}", "{\"error\":5}"}) EXPECT_TRUE(absl::IsDataLoss(DecodeResponse(line).status())) << line;
  EXPECT_EQ(DecodeResponse("{\"error\":{}}").status().code(), absl::StatusCode::kUnknown);
}

TEST(AuditViewTest, ADamagedRecordIsShownWithItsReason) {
  AuditRecord record;
  record.id = 7;
  record.at = std::chrono::system_clock::now();
  record.actor = "kubelet";
  record.action = "prepare";
  record.capacity = "{}";
  record.outcome = "OK";
  EXPECT_TRUE(EncodeAuditRecord(record).at("problem").is_null());
  const auto problem = [](AuditRecord damaged, const std::function<void(AuditRecord&)>& damage) {
    damage(damaged);
    const boost::json::value view = EncodeAuditRecord(damaged);
    boost::system::error_code error;
    boost::json::parse(boost::json::serialize(view), error);
    EXPECT_FALSE(error) << "the view is no JSON any more";
    return view.at("problem").is_string() ? std::string(view.at("problem").get_string().c_str()) : std::string();
  };
  EXPECT_EQ(problem(record, [](AuditRecord& r) { r.claim = "a\xff"; }), "record 7 is damaged: its claim is no text");
  EXPECT_EQ(problem(record, [](AuditRecord& r) { r.outcome = "OJ"; }), "record 7 is damaged: its outcome is none of the canonical codes");
  EXPECT_EQ(problem(record, [](AuditRecord& r) { r.capacity = "{"; }), "record 7 is damaged: its capacity is no JSON object");
  EXPECT_EQ(problem(record, [](AuditRecord& r) { r.at = WallTime{}; }), "record 7 is damaged: its time cannot be");
}

}  // namespace
}  // namespace tranche::admin
