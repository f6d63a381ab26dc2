// Kubeconfigs, credentials, answers, pages and event streams: what needs no connection.
#include "kube/answer.h"
#include "kube/client.h"
#include "kube/event_stream.h"
#include "kube/kubeconfig.h"
#include "kube/pages.h"

#include <cstdlib>

#include "unit/kube_fixture.h"

namespace tranche::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kFull = R"(
apiVersion: v1
kind: Config
current-context: main
contexts:
- {name: other, context: {cluster: far, user: nobody}}
- {name: main, context: {cluster: near, user: admin}}
clusters:
- name: near
  cluster: {server: "https://[fd00::1]:6443/prefix/", certificate-authority: pki/ca.crt, tls-server-name: api.internal, proxy-url: "socks5://p:1080"}
- name: far
  cluster: {server: "https://far:443", certificate-authority-data: UEVN}
users:
- name: admin
  user:
    client-certificate-data: Q0VSVA==
    client-key: /etc/key.pem
    token: abc
    tokenFile: token
    as: robot
    as-uid: "7"
    as-groups: [g1, g2]
    as-user-extra: {"a/b": [x]}
- name: nobody
)";

std::string Refusal(std::string_view text, std::string_view context = "") {
  const absl::StatusOr<AccessSource> source = ParseKubeconfig(text, "dir/config", context);
  EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(source.status().message());
}

// A kubeconfig with one cluster and one user of these fields.
std::string With(const std::string& cluster, const std::string& user) {
  return "current-context: c\ncontexts: [{name: c, context: {cluster: s, user: u}}]\nclusters: [{name: s, cluster: {" + cluster +
         "}}]\nusers: [{name: u, user: {" + user + "}}]\n";
}

TEST(Kubeconfig, TakesTheCurrentContextWithDataAndRelativeFiles) {
  const absl::StatusOr<AccessSource> source = ParseKubeconfig(kFull, "/home/me/config", "");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->access.server, "https://[fd00::1]:6443/prefix");
  EXPECT_EQ(source->ca_file, "/home/me/pki/ca.crt");
  EXPECT_EQ(source->access.tls_server_name, "api.internal");
  EXPECT_EQ(source->access.proxy_url, "socks5://p:1080");
  EXPECT_EQ(source->access.client_certificate_pem, "CERT");
  EXPECT_EQ(source->key_file, "/etc/key.pem");
  EXPECT_EQ(source->token_file, "/home/me/token");
  using Header = std::pair<std::string, std::string>;
  EXPECT_THAT(source->access.headers, ElementsAre(Header("Impersonate-User", "robot"), Header("Impersonate-Uid", "7"), Header("Impersonate-Group", "g1"),
                                                  Header("Impersonate-Group", "g2"), Header("Impersonate-Extra-a%2Fb", "x")));
}

TEST(Kubeconfig, TakesTheContextThatIsAskedFor) {
  const absl::StatusOr<AccessSource> source = ParseKubeconfig(kFull, "config", "other");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->access.server, "https://far:443");
  EXPECT_EQ(source->access.ca_pem, "PEM");
  EXPECT_THAT(Refusal(kFull, "third"), HasSubstr("there is no entry called \"third\""));
}

TEST(Kubeconfig, ProgramsAndProvidersAreRefusedAndNamed) {
  EXPECT_THAT(Refusal(With("server: \"https://a\"", "exec: {command: x}")), HasSubstr("users[u].user.exec: user \"u\" gets its credentials from a program"));
  EXPECT_THAT(Refusal(With("server: \"https://a\"", "auth-provider: {name: gcp}")), HasSubstr("users[u].user.auth-provider: user \"u\""));
}

TEST(Kubeconfig, RefusalsNameFileLineAndField) {
  EXPECT_THAT(Refusal("clusters: []"), HasSubstr("dir/config:1: current-context: is missing"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("not a kubeconfig"));
  EXPECT_THAT(Refusal("a: *b"), HasSubstr("dir/config:1: not a kubeconfig"));
  EXPECT_THAT(Refusal(With("server: \"ftp://a\"", "")), HasSubstr("clusters[s].cluster.server: must be a URL"));
  EXPECT_THAT(Refusal(With("server: \"https:///x\"", "")), HasSubstr("names no host"));
  EXPECT_THAT(Refusal(With("server: \"https://u:p@a\"", "")), HasSubstr("must not contain '@'"));
  EXPECT_THAT(Refusal(With("server: \"https://a\", certificate-authority-data: \"!\"", "")), HasSubstr("certificate-authority-data: is not valid base64"));
  EXPECT_THAT(Refusal(With("server: \"https://a\", insecure-skip-tls-verify: true, certificate-authority: x", "")), HasSubstr("cannot be true together"));
  EXPECT_THAT(Refusal(With("server: \"https://a\", insecure-skip-tls-verify: 1", "")), HasSubstr("must be true or false"));
  EXPECT_THAT(Refusal(With("server: \"https://a\"", "client-key: x")), HasSubstr("client-certificate: is missing"));
  EXPECT_THAT(Refusal(With("server: \"https://a\"", "username: x, token: y")), HasSubstr("either a token or a name"));
  EXPECT_THAT(Refusal(With("server: \"https://a\"", "as-groups: [x]")), HasSubstr("as: is needed"));
  EXPECT_THAT(Refusal(With("server: \"https://a\", server: \"https://b\"", "")), HasSubstr("is there twice"));
}

TEST(Kubeconfig, ATokenThatWouldAddHeadersIsRefusedAndNotShown) {
  const std::string message = Refusal(With("server: \"https://a\"", "token: \"secret\\nX-Evil: 1\""));
  EXPECT_THAT(message, HasSubstr("users[u].user.token: has line breaks"));
  EXPECT_THAT(message, Not(HasSubstr("secret")));
}

class CredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteText(directory_.path() + "/ca.crt", "PEM");
    WriteText(directory_.path() + "/token", "one\n");
    options_.service_account_directory = directory_.path();
    ::setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    ::setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  }
  void TearDown() override {
    ::unsetenv("KUBERNETES_SERVICE_HOST");
    ::unsetenv("KUBERNETES_SERVICE_PORT");
  }
  test::TemporaryDirectory directory_;
  ClientOptions options_;
};

TEST_F(CredentialsTest, InAPodTheServiceAccountIsUsed) {
  const auto credentials = Credentials::Load(options_);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto access = (*credentials)->Current();
  EXPECT_EQ(access->server, "https://[fd00::1]:443");
  EXPECT_EQ(access->ca_pem, "PEM");
  EXPECT_EQ(access->bearer_token, "one");
}

TEST_F(CredentialsTest, OutsideAPodWithoutAKubeconfigIsAFailedPrecondition) {
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(Client::Create(options_).status().code(), absl::StatusCode::kFailedPrecondition);
  options_.kubeconfig = directory_.path() + "/none";
  const absl::Status missing = Client::Create(options_).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(options_.kubeconfig));
}

TEST_F(CredentialsTest, ChangedFilesAreReadAndUnusableOnesAreNot) {
  const auto credentials = Credentials::Load(options_);
  ASSERT_TRUE(credentials.ok());
  const auto first = (*credentials)->Current();
  EXPECT_EQ((*credentials)->Reload(), first);  // nothing changed: the same value, so connections stay
  WriteText(directory_.path() + "/token", "two");
  EXPECT_EQ((*credentials)->Reload()->bearer_token, "two");
  WriteText(directory_.path() + "/token", "tw\to");
  EXPECT_EQ((*credentials)->Reload()->bearer_token, "two");
  WriteText(directory_.path() + "/token", "");
  EXPECT_EQ((*credentials)->Reload()->bearer_token, "two");
  WriteText(directory_.path() + "/token", "three");
  const auto changed = test::Eventually([&] { return (*credentials)->Current()->bearer_token == "three"; });
  EXPECT_TRUE(changed);
}

TEST(Answers, CodesFollowStatusAndReason) {
  const std::vector<std::tuple<int, std::string, absl::StatusCode>> table = {
      {400, "BadRequest", absl::StatusCode::kInvalidArgument},
      {401, "Unauthorized", absl::StatusCode::kUnauthenticated},
      {403, "Forbidden", absl::StatusCode::kPermissionDenied},
      {404, "NotFound", absl::StatusCode::kNotFound},
      {409, "AlreadyExists", absl::StatusCode::kAlreadyExists},
      {409, "Conflict", absl::StatusCode::kAborted},
      {410, "Expired", absl::StatusCode::kOutOfRange},
      {422, "Invalid", absl::StatusCode::kInvalidArgument},
      {429, "TooManyRequests", absl::StatusCode::kResourceExhausted},
      {500, "InternalError", absl::StatusCode::kUnavailable},
      {504, "Timeout", absl::StatusCode::kUnavailable},
  };
  for (const auto& [status, reason, code] : table) {
    const ServerError error = DescribeError(status, StatusText(status, reason, "because"), "GET /x");
    EXPECT_EQ(error.status.code(), code) << status;
    EXPECT_EQ(error.status.message(), "GET /x: " + std::to_string(status) + " " + reason + ": because");
  }
}

TEST(Answers, RetryAfterComesFromTheStatus) {
  const ServerError error = DescribeError(429, StatusText(429, "TooManyRequests", "m", R"(,"details":{"retryAfterSeconds":3})"), "GET /x");
  EXPECT_EQ(error.retry_after, 3s);
}

TEST(Answers, BodiesThatAreNoStatusAreQuotedShortAndPrintable) {
  EXPECT_EQ(DescribeError(502, "<html>\x1b[31mbad\n", "GET /x").status.message(), "GET /x: 502: <html> [31mbad ");
  EXPECT_EQ(DescribeError(403, "", "GET /x").status.message(), "GET /x: 403: an empty body");
  EXPECT_EQ(DescribeError(404, R"({"kind":"Status","message":7,"reason":[],"details":[]})", "GET /x").status.code(), absl::StatusCode::kNotFound);
  EXPECT_LT(DescribeError(500, std::string(1 << 20, 'x'), "GET /x").status.message().size(), 300U);
}

TEST(Answers, WhatIsNoObjectIsDataLoss) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{} x"), std::string("{\"a\":\"\xff\"}"), std::string(10000, '[')}) {
    EXPECT_EQ(ParseObject(text, "GET /x").status().code(), absl::StatusCode::kDataLoss) << text.substr(0, 20);
  }
}

TEST(Paths, AreEscapedAndExtended) {
  EXPECT_EQ(Escape("spec.nodeName=a,b/ü"), "spec.nodeName%3Da%2Cb%2F%C3%BC");
  EXPECT_EQ(WithQuery("/a", "b=1"), "/a?b=1");
  EXPECT_EQ(WithQuery("/a?c", "b=1"), "/a?c&b=1");
}

json::object Page(const std::string& text) { return json::parse(text).as_object(); }

TEST(Pages, ItemsOfEveryPageWithTheirKind) {
  PageCollector pages("/things?x=1");
  EXPECT_EQ(pages.NextPath(), "/things?x=1&limit=500");
  ASSERT_TRUE(pages.Add(Page(ListText("7", ObjectText("a", "1"), "n/x"))).ok());
  EXPECT_FALSE(pages.done());
  EXPECT_EQ(pages.NextPath(), "/things?x=1&limit=500&continue=n%2Fx");
  ASSERT_TRUE(pages.Add(Page(ListText("7", ObjectText("b", "2")))).ok());
  EXPECT_TRUE(pages.done());
  EXPECT_EQ(pages.resource_version(), "7");
  const std::vector<json::object> items = pages.TakeItems();
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[1].at("kind").as_string(), "Thing");
  EXPECT_EQ(items[1].at("apiVersion").as_string(), "v1");
}

TEST(Pages, AnExpiredListBeginsAnewAndIsReadAtOnceInTheEnd) {
  PageCollector pages("/things");
  EXPECT_FALSE(pages.Expired());  // the first page cannot have expired
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pages.Add(Page(ListText("7", ObjectText("a", "1"), "next"))).ok());
    ASSERT_TRUE(pages.Expired());
  }
  EXPECT_EQ(pages.NextPath(), "/things");
  ASSERT_TRUE(pages.Add(Page(ListText("8", ObjectText("a", "1")))).ok());
  EXPECT_EQ(pages.TakeItems().size(), 1U);
}

TEST(Pages, WhatIsNoListIsDataLoss) {
  for (const char* text : {"{}", R"({"metadata":1})", R"({"metadata":{},"items":{}})", R"({"metadata":{},"items":[1]})"}) {
    EXPECT_EQ(PageCollector("/x").Add(Page(text)).code(), absl::StatusCode::kDataLoss) << text;
  }
  PageCollector empty("/x");
  EXPECT_TRUE(empty.Add(Page(R"({"metadata":{},"items":null})")).ok());
}

TEST(EventStream, LinesAreTheSameWhereverTheStreamIsCut) {
  const std::string stream = "one\n\ntwo\nthree\n";
  for (std::size_t first = 0; first <= stream.size(); ++first) {
    for (std::size_t second = first; second <= stream.size(); ++second) {
      LineSplitter splitter(100);
      std::vector<std::string> lines;
      const auto take = [&](std::string_view line) {
        lines.emplace_back(line);
        return true;
      };
      ASSERT_TRUE(splitter.Append(std::string_view(stream).substr(0, first), take).ok());
      ASSERT_TRUE(splitter.Append(std::string_view(stream).substr(first, second - first), take).ok());
      ASSERT_TRUE(splitter.Append(std::string_view(stream).substr(second), take).ok());
      ASSERT_THAT(lines, ElementsAre("one", "two", "three")) << first << " " << second;
    }
  }
}

TEST(EventStream, ALineBeyondTheBoundIsRefusedAndNotHeld) {
  LineSplitter splitter(8);
  const auto take = [](std::string_view) { return true; };
  ASSERT_TRUE(splitter.Append("12345678", take).ok());
  EXPECT_EQ(splitter.Append("9", take).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(splitter.held_bytes(), 0U);
}

TEST(EventStream, EventsAreDecodedOrRefused) {
  const auto event = DecodeEvent(EventText("MODIFIED", "a", "5"));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->kind, StreamEventKind::kModified);
  EXPECT_EQ(event->resource_version, "5");
  EXPECT_EQ(DecodeEvent(R"({"type":"LATER","object":1})")->kind, StreamEventKind::kUnknown);
  EXPECT_EQ(DecodeEvent(R"({"type":"ERROR","object":)" + StatusText(410, "Expired", "m") + "}")->kind, StreamEventKind::kGone);
  EXPECT_EQ(DecodeEvent(R"({"type":"ERROR","object":)" + StatusText(500, "X", "m") + "}")->error.code(), absl::StatusCode::kUnavailable);
  for (const char* text :
       {"", "{}", "7", R"({"type":1})", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{}})", R"({"type":"ADDED","object":{"metadata":{}}})"}) {
    EXPECT_EQ(DecodeEvent(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace tranche::kube
