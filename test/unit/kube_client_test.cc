// Calls against a server that misbehaves.
#include <atomic>
#include <barrier>
#include <thread>

#include "kube/claim_reader.h"
#include "unit/kube_fixture.h"

namespace tranche::kube {
namespace {

using testing::HasSubstr;
using testing::Not;

class KubeClientTest : public KubeTest {};

TEST_F(KubeClientTest, SendsTokenAgentAndPathAndReadsTheObject) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(200, R"({"kind":"Thing"})"); });
  const auto object = client().Get("/api/things/a%2Fb?x=1", DeadlineIn(10s));
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->at("kind").as_string(), "Thing");
  const std::vector<Received> requests = server_->Requests();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].path, "/api/things/a%2Fb?x=1");
  EXPECT_EQ(requests[0].headers.at("authorization"), "Bearer first");
  EXPECT_EQ(requests[0].headers.at("user-agent"), "tranched");
  EXPECT_EQ(requests[0].headers.at("accept"), "application/json");
}

TEST_F(KubeClientTest, EveryVerbHasItsMethodTypeAndBody) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(200, "{}"); });
  const json::object object{{"a", 1}};
  ASSERT_TRUE(client().Create("/c", object, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Replace("/r", object, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Patch("/p", PatchKind::kMerge, object, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Patch("/p", PatchKind::kApply, object, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Delete("/d", {.uid = "u", .resource_version = "7"}, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Delete("/d", {}, DeadlineIn(10s)).ok());
  ASSERT_TRUE(client().Get("/g", DeadlineIn(10s)).ok());
  std::vector<std::string> seen;
  for (const Received& request : server_->Requests()) {
    const auto type = request.headers.find("content-type");
    seen.push_back(request.method + " " + request.path + " " + (type == request.headers.end() ? "" : type->second) + " " + request.body);
  }
  EXPECT_THAT(seen,
              testing::ElementsAre(R"(POST /c application/json {"a":1})", R"(PUT /r application/json {"a":1})",
                                   R"(PATCH /p application/merge-patch+json {"a":1})", R"(PATCH /p application/apply-patch+yaml {"a":1})",
                                   R"(DELETE /d application/json {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"}})",
                                   "DELETE /d  ", "GET /g  "));
}

TEST_F(KubeClientTest, ErrorsNameMethodPathAndWhatTheServerSaid) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(404, StatusText(404, "NotFound", "no such thing")); });
  const absl::Status status = client().Get("/things/a", DeadlineIn(10s)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "GET /things/a: 404 NotFound: no such thing");
}

TEST_F(KubeClientTest, AGetIsRepeatedAfterATruncatedBodyAResetAndServerErrors) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    switch (count++) {
      case 0: connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":"); return connection.Close();
      case 1: return connection.Reset();
      case 2: connection.Answer(500, "oops"); return;
      case 3: connection.Answer(503, ""); return;
      default: connection.Answer(200, "{}");
    }
  });
  const auto object = client().Get("/x", DeadlineIn(20s));
  EXPECT_TRUE(object.ok()) << object.status();
}

TEST_F(KubeClientTest, AWriteThatMayHaveArrivedIsNotRepeated) {
  std::atomic<int> posts = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    if (request.method == "GET") return void(connection.Answer(200, "{}"));
    ++posts;
    connection.Reset();
  });
  // On a new connection and on one that was used before, where libcurl by itself would send it again.
  EXPECT_EQ(client().Create("/x", {{"a", 1}}, DeadlineIn(10s)).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(client().Get("/x", DeadlineIn(10s)).ok());
  EXPECT_EQ(client().Create("/x", {{"a", 1}}, DeadlineIn(10s)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(posts, 2);
}

TEST_F(KubeClientTest, AWriteIsRepeatedWhereTheServerSaysThatItDidNothing) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    if (count++ == 0) return void(connection.Answer(429, StatusText(429, "TooManyRequests", "m"), "Retry-After: 1\r\n"));
    EXPECT_EQ(request.body, R"({"a":1})");
    connection.Answer(201, "{}");
  });
  const auto created = client().Create("/x", {{"a", 1}}, DeadlineIn(20s));
  EXPECT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(count, 2);
}

TEST_F(KubeClientTest, AWaitBeyondTheDeadlineIsNotBegun) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(429, "", "Retry-After: 3600\r\n"); });
  EXPECT_EQ(client().Get("/x", DeadlineIn(60s)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server_->Count("GET"), 1);
}

TEST_F(KubeClientTest, AWriteIsNotRepeatedAfter503WithoutAPromise) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(503, ""); });
  EXPECT_EQ(client().Create("/x", {{"a", 1}}, DeadlineIn(10s)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->Count("POST"), 1);
}

TEST_F(KubeClientTest, ARefusedTokenIsReadAgainOnce) {
  const Serving serving = Serve([](Connection& connection, const Received& request) {
    const bool good = request.headers.at("authorization") == "Bearer second";
    connection.Answer(good ? 200 : 401, good ? "{}" : StatusText(401, "Unauthorized", "m"));
  });
  Connect(64);
  SetToken("second");
  EXPECT_TRUE(client().Create("/x", {{"a", 1}}, DeadlineIn(10s)).ok());
  EXPECT_EQ(server_->Count("POST"), 2);
  SetToken("third");
  EXPECT_TRUE(test::Eventually([&] { return client().Get("/x", DeadlineIn(10s)).status().code() == absl::StatusCode::kUnauthenticated; }));
}

TEST_F(KubeClientTest, ATokenThatStaysRefusedIsUnauthenticatedAfterTwoTries) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(401, StatusText(401, "Unauthorized", "m")); });
  EXPECT_EQ(client().Get("/x", DeadlineIn(10s)).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(server_->Count("GET"), 2);
}

TEST_F(KubeClientTest, AnAnswerThatDripsBeyondTheDeadlineIsCutOff) {
  const Serving serving = Serve([](Connection& connection, const Received&) {
    connection.BeginChunked();
    while (connection.Chunk(" ")) std::this_thread::sleep_for(5ms);
    connection.Close();
  });
  EXPECT_EQ(client().Get("/x", DeadlineIn(200ms)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(KubeClientTest, WhatIsNoJsonObjectIsAnErrorOfThatCall) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    static const std::string kBodies[] = {"", "{\"a\":\"\xff\xfe\"}", "[1]", "{\"a\":1", std::string(100, '\0')};
    connection.Answer(200, kBodies[count++ % 5]);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client().Get("/x", DeadlineIn(10s)).status().code(), absl::StatusCode::kDataLoss) << i;
}

TEST_F(KubeClientTest, AnAnswerBeyondTheBoundIsRefused) {
  const Serving serving = Serve([](Connection& connection, const Received&) {
    connection.BeginChunked();
    const std::string mebibyte(1 << 20, ' ');
    while (connection.Chunk(mebibyte)) {}
    connection.Close();
  });
  const absl::Status status = client().Get("/x", DeadlineIn(60s)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("larger than"));
}

TEST_F(KubeClientTest, GarbageInsteadOfHttpIsUnavailable) {
  const Serving serving = Serve([](Connection& connection, const Received&) {
    connection.Send("\x15\x03\x01 what?\r\n\r\n");
    connection.Close();
  });
  EXPECT_EQ(client().Create("/x", {{"a", 1}}, DeadlineIn(10s)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(KubeClientTest, AServerThatIsNotThereIsUnavailableAndNamed) {
  Connect(64, "http://127.0.0.1:1");
  const absl::Status status = client().Create("/x", {{"a", 1}}, DeadlineIn(100ms)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot reach http://127.0.0.1:1"));
}

TEST_F(KubeClientTest, TheProxyOfTheKubeconfigIsUsed) {
  const Serving serving = Serve([](Connection& connection, const Received&) { connection.Answer(200, "{}"); });
  Connect(64, "http://api.invalid:80", ", proxy-url: \"http://127.0.0.1:" + std::to_string(server_->port()) + "\"");
  ASSERT_TRUE(client().Get("/x", DeadlineIn(10s)).ok());
  EXPECT_EQ(server_->Requests().at(0).path, "http://api.invalid/x");
}

TEST_F(KubeClientTest, CallsRunInParallelUpToTheBound) {
  std::atomic<int> now = 0, most = 0;
  std::barrier both(2);
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    const int running = ++now;
    for (int seen = most; running > seen && !most.compare_exchange_weak(seen, running);) {}
    both.arrive_and_wait();  // passes only where two are here
    --now;
    connection.Answer(200, "{}");
  });
  Connect(2);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { good += client().Get("/x", DeadlineIn(20s)).ok() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(most, 2);
}

TEST_F(KubeClientTest, ACallThatWaitsForAPlaceKeepsItsDeadline) {
  std::atomic<bool> first_is_in = false;
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    first_is_in = true;
    connection.WaitUntilClientLeaves();
    connection.Close();
  });
  Connect(1);
  std::thread first([&] { EXPECT_EQ(client().Get("/a", DeadlineIn(2s)).status().code(), absl::StatusCode::kDeadlineExceeded); });
  EXPECT_TRUE(test::Eventually([&] { return first_is_in.load(); }));
  const absl::Status status = client().Get("/b", DeadlineIn(50ms)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other calls are in flight"));
  first.join();
}

TEST_F(KubeClientTest, DestructionEndsCallsInFlightAndInWaiting) {
  std::atomic<int> arrived = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    ++arrived;
    if (request.path == "/busy") return void(connection.Answer(429, "", "Retry-After: 600\r\n"));
    connection.WaitUntilClientLeaves();
    connection.Close();
  });
  Connect(64);
  std::vector<std::thread> threads;
  std::atomic<int> ended = 0;
  for (const char* path : {"/hangs", "/hangs", "/busy"}) {
    threads.emplace_back([&, path] { ended += client_->Get(path, DeadlineIn(1h)).ok() ? 0 : 1; });
  }
  EXPECT_TRUE(test::Eventually([&] { return arrived == 3; }));
  ClientImpl* const raw = client_.release();  // callers still use the pointer of the fixture's object, not the fixture's member
  delete raw;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 3);
}

TEST_F(KubeClientTest, ListReadsEveryPageAndBeginsAnewWhenTheListExpired) {
  std::atomic<int> expired = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    if (request.path == "/things?limit=500") return void(connection.Answer(200, ListText("7", ObjectText("a", "1"), "n1")));
    if (expired++ == 0) return void(connection.Answer(410, StatusText(410, "Expired", "m")));
    connection.Answer(200, ListText("7", ObjectText("b", "2")));
  });
  const auto items = client().List("/things", DeadlineIn(10s));
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_EQ(items->size(), 2U);
  EXPECT_EQ(server_->Count("GET"), 4);
}

TEST_F(KubeClientTest, TheVersionMayHaveASuffix) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    connection.Answer(200, count++ == 0 ? R"({"major":"1","minor":"37+","gitVersion":"v1.37.2-x"})" : R"({"major":"one"})");
  });
  const auto version = client().Version(DeadlineIn(10s));
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->minor, 37);
  EXPECT_EQ(version->text, "v1.37.2-x");
  EXPECT_EQ(client().Version(DeadlineIn(10s)).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(KubeClientTest, AClaimThatCanHaveNoSuchNameIsNotAskedFor) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received&) {
    ++count;
    connection.Answer(404, "{}");
  });
  ApiClaimReader reader(client());
  const std::string big(100'000, 'a');
  for (const auto& [space, name] : std::vector<std::pair<std::string, std::string>>{{"", "one"},
                                                                                    {"../..", "one"},
                                                                                    {"a.b", "one"},
                                                                                    {big, "one"},
                                                                                    {"team", ""},
                                                                                    {"team", "../../nodes"},
                                                                                    {"team", "a/b?c#d"},
                                                                                    {"team", "A"},
                                                                                    {"team", big},
                                                                                    {"team", std::string("a\0b", 3)},
                                                                                    {"team", "\xff\xfe"},
                                                                                    {"team", std::string(254, 'a')}}) {
    const absl::Status refused = reader.ReadClaim({space, name, "u1"}, DeadlineIn(10s)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_LT(refused.message().size(), 600U);
  }
  EXPECT_EQ(count, 0);
  EXPECT_EQ(reader.ReadClaim({"team", std::string(253, 'a'), "u1"}, DeadlineIn(10s)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(count, 1);
}

TEST_F(KubeClientTest, ClaimsAreReadAndBadOnesAreNamedWithTheirField) {
  std::atomic<int> count = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    EXPECT_EQ(request.path, "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/one");
    connection.Answer(200, count++ == 0
                               ? R"({"metadata":{"namespace":"team","name":"one","uid":"u1","later":{}},"spec":{"devices":{"requests":[]}},"status":{}})"
                               : R"({"metadata":{"namespace":"team","name":"one","uid":7}})");
  });
  ApiClaimReader reader(client());
  const auto claim = reader.ReadClaim({"team", "one", "u1"}, DeadlineIn(10s));
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(claim->uid, "u1");
  const absl::Status bad = reader.ReadClaim({"team", "one", "u1"}, DeadlineIn(10s)).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("ResourceClaim team/one: "));
  EXPECT_THAT(std::string(bad.message()), HasSubstr("metadata.uid"));
}

}  // namespace
}  // namespace tranche::kube
