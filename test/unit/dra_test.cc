// The kubelet's protocol over real unix sockets, with a handler of the test's own in place of claims/.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ids.h"
#include "dra/executor.h"
#include "dra/server.h"
#include "dra/service.h"
#include "dra/socket.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1/api.grpc.pb.h"
#include "k8s.io/kubelet/pkg/apis/dra/v1beta1/api.grpc.pb.h"
#include "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.grpc.pb.h"
#include "support/process.h"

namespace tranche::dra {
namespace {

namespace fs = std::filesystem;
namespace v1 = k8s::io::kubelet::pkg::apis::dra::v1;
namespace v1beta1 = k8s::io::kubelet::pkg::apis::dra::v1beta1;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDriver[] = "nic.example.com";

// A gate that handlers wait at.
class Gate {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void AwaitWaiting(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this, count] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

claims::PreparedDevice DeviceFor(const std::string& uid) { return {{"net"}, "node-1", "offer-nic0", {"nic.example.com/claim=" + uid}, "share-" + uid}; }

// Prepares every claim but those whose name starts with "bad" (an error) or "lost" (no answer).
Handler SimpleHandler() {
  Handler handler;
  handler.prepare = [](const std::string&, const std::vector<ClaimReference>& references, Deadline, const claims::GivenUp&) {
    claims::PrepareAnswers answers;
    for (const ClaimReference& reference : references) {
      if (reference.name.rfind("lost", 0) == 0) continue;
      if (reference.name.rfind("bad", 0) == 0) {
        answers.insert_or_assign(reference.uid, absl::ResourceExhaustedError("5M are missing \xFF"));
      } else {
        answers.insert_or_assign(reference.uid, std::vector<claims::PreparedDevice>{DeviceFor(reference.uid)});
      }
    }
    return answers;
  };
  handler.unprepare = [](const std::string&, const std::vector<ClaimReference>& references, Deadline, const claims::GivenUp&) {
    claims::UnprepareAnswers answers;
    for (const ClaimReference& reference : references) {
      answers[reference.uid] = reference.name.rfind("bad", 0) == 0 ? absl::UnavailableError("backend is away") : absl::OkStatus();
    }
    return answers;
  };
  return handler;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(SocketUri(path), grpc::InsecureChannelCredentials(), arguments);
}

template <typename Request>
void AddClaim(Request& request, const std::string& name, const std::string& uid) {
  auto& claim = *request.add_claims();
  claim.set_namespace_("tenant-a");
  claim.set_name(name);
  claim.set_uid(uid);
}

// A listening or dead socket file made without gRPC.
int BindSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << std::strerror(errno);
  return fd;
}

class DraServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("dra-" + NewUuid().substr(0, 8));
    fs::create_directories(root_);
  }
  void TearDown() override {
    server_.reset();
    fs::remove_all(root_);
  }
  ServerOptions Options(Handler handler) const {
    ServerOptions options;
    options.driver = kDriver;
    options.plugin_directory = (root_ / "plugins").string();
    options.registry_directory = (root_ / "registry").string();
    options.handler = std::move(handler);
    return options;
  }
  void Start(ServerOptions options) {
    auto server = DraServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<v1::DRAPlugin::Stub> Stub() const { return v1::DRAPlugin::NewStub(Dial(server_->service_socket())); }

  fs::path root_;
  std::unique_ptr<DraServer> server_;
};

TEST_F(DraServerTest, RegistrationNamesTheDriverItsSocketAndBothVersions) {
  Start(Options(SimpleHandler()));
  const auto stub = pluginregistration::Registration::NewStub(Dial(server_->registration_socket()));
  grpc::ClientContext context;
  pluginregistration::PluginInfo info;
  ASSERT_TRUE(stub->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.type(), "DRAPlugin");
  EXPECT_EQ(info.name(), kDriver);
  EXPECT_EQ(info.endpoint(), server_->service_socket());
  EXPECT_THAT(info.supported_versions(), ElementsAre("v1.DRAPlugin", "v1beta1.DRAPlugin"));

  pluginregistration::RegistrationStatus outcome;
  pluginregistration::RegistrationStatusResponse response;
  outcome.set_plugin_registered(true);
  grpc::ClientContext registered;
  EXPECT_TRUE(stub->NotifyRegistrationStatus(&registered, outcome, &response).ok());
  outcome.set_plugin_registered(false);
  grpc::ClientContext refused;
  EXPECT_FALSE(stub->NotifyRegistrationStatus(&refused, outcome, &response).ok());
}

TEST_F(DraServerTest, PrepareAnswersWithDevicesAndShareId) {
  Start(Options(SimpleHandler()));
  v1::NodePrepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  v1::NodePrepareResourcesResponse response;
  grpc::ClientContext context;
  const grpc::Status status = Stub()->NodePrepareResources(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.claims().count("uid-1"), 1U);
  const auto& entry = response.claims().at("uid-1");
  EXPECT_EQ(entry.error(), "");
  ASSERT_EQ(entry.devices_size(), 1);
  EXPECT_THAT(entry.devices(0).request_names(), ElementsAre("net"));
  EXPECT_EQ(entry.devices(0).pool_name(), "node-1");
  EXPECT_EQ(entry.devices(0).device_name(), "offer-nic0");
  EXPECT_THAT(entry.devices(0).cdi_device_ids(), ElementsAre("nic.example.com/claim=uid-1"));
  EXPECT_EQ(entry.devices(0).share_id(), "share-uid-1");
}

TEST_F(DraServerTest, V1Beta1ServesTheSameWithoutShareId) {
  Start(Options(SimpleHandler()));
  const auto stub = v1beta1::DRAPlugin::NewStub(Dial(server_->service_socket()));
  v1beta1::NodePrepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  AddClaim(request, "bad", "uid-2");
  v1beta1::NodePrepareResourcesResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->NodePrepareResources(&context, request, &response).ok());
  ASSERT_EQ(response.claims_size(), 2);
  ASSERT_EQ(response.claims().at("uid-1").devices_size(), 1);
  EXPECT_EQ(response.claims().at("uid-1").devices(0).device_name(), "offer-nic0");
  EXPECT_THAT(response.claims().at("uid-2").error(), HasSubstr("RESOURCE_EXHAUSTED"));
}

TEST_F(DraServerTest, EveryRequestedUidHasItsOwnEntry) {
  Start(Options(SimpleHandler()));
  v1::NodePrepareResourcesRequest request;
  AddClaim(request, "good", "uid-1");
  AddClaim(request, "good", "uid-1");  // a duplicate
  AddClaim(request, "bad", "uid-2");
  AddClaim(request, "lost", "uid-3");  // the handler forgets it
  AddClaim(request, "name-a", "uid-4");
  AddClaim(request, "name-b", "uid-4");  // contradicts
  AddClaim(request, "nameless", "");
  AddClaim(request, "huge", std::string(100000, 'u'));
  v1::NodePrepareResourcesResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(Stub()->NodePrepareResources(&context, request, &response).ok());
  ASSERT_EQ(response.claims_size(), 6);
  EXPECT_EQ(response.claims().at("uid-1").devices_size(), 1);
  // What is not UTF-8 in a backend's words must not cost the kubelet the answers of other claims.
  EXPECT_EQ(response.claims().at("uid-2").error(), "RESOURCE_EXHAUSTED: 5M are missing \xEF\xBF\xBD");
  EXPECT_THAT(response.claims().at("uid-3").error(), HasSubstr("no answer"));
  EXPECT_THAT(response.claims().at("uid-4").error(), HasSubstr("twice"));
  EXPECT_THAT(response.claims().at("").error(), HasSubstr("without a UID"));
  EXPECT_THAT(response.claims().at(std::string(100000, 'u')).error(), HasSubstr("longer than"));
}

TEST_F(DraServerTest, UnprepareOfUnknownClaimsSucceedsAndReportsErrorsPerClaim) {
  Start(Options(SimpleHandler()));
  v1::NodeUnprepareResourcesRequest request;
  AddClaim(request, "unknown", "uid-1");
  AddClaim(request, "bad", "uid-2");
  v1::NodeUnprepareResourcesResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(Stub()->NodeUnprepareResources(&context, request, &response).ok());
  ASSERT_EQ(response.claims_size(), 2);
  EXPECT_EQ(response.claims().at("uid-1").error(), "");
  EXPECT_EQ(response.claims().at("uid-2").error(), "UNAVAILABLE: backend is away");
}

TEST_F(DraServerTest, RequestsBeyondTheBoundsAreRefusedAsAWhole) {
  Start(Options(SimpleHandler()));
  v1::NodePrepareResourcesRequest many;
  for (int i = 0; i <= kMaxClaims; ++i) AddClaim(many, "c", "uid-" + std::to_string(i));
  v1::NodePrepareResourcesResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(Stub()->NodePrepareResources(&context, many, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::NodePrepareResourcesRequest large;
  AddClaim(large, std::string(17 * 1024 * 1024, 'n'), "uid-1");
  grpc::ClientContext large_context;
  EXPECT_EQ(Stub()->NodePrepareResources(&large_context, large, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  // More than gRPC's own 4 MiB is taken.
  v1::NodePrepareResourcesRequest medium;
  AddClaim(medium, std::string(6 * 1024 * 1024, 'n'), "uid-1");
  grpc::ClientContext medium_context;
  EXPECT_TRUE(Stub()->NodePrepareResources(&medium_context, medium, &response).ok());
}

TEST_F(DraServerTest, TheDeadlineIsTheClientsButAtMostFortySeconds) {
  std::mutex mutex;
  std::vector<milliseconds> left;
  Handler handler = SimpleHandler();
  const auto inner = handler.prepare;
  handler.prepare = [&](const std::string& driver, const std::vector<ClaimReference>& references, Deadline deadline, const claims::GivenUp& given_up) {
    const std::lock_guard<std::mutex> lock(mutex);
    left.push_back(std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()));
    return inner(driver, references, deadline, given_up);
  };
  Start(Options(std::move(handler)));
  v1::NodePrepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  v1::NodePrepareResourcesResponse response;
  grpc::ClientContext unbounded, bounded;
  ASSERT_TRUE(Stub()->NodePrepareResources(&unbounded, request, &response).ok());
  bounded.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
  ASSERT_TRUE(Stub()->NodePrepareResources(&bounded, request, &response).ok());
  const std::lock_guard<std::mutex> lock(mutex);
  ASSERT_EQ(left.size(), 2U);
  EXPECT_GT(left[0], std::chrono::seconds(35));
  EXPECT_LE(left[0], std::chrono::seconds(40));
  EXPECT_GT(left[1], std::chrono::seconds(10));
  EXPECT_LE(left[1], std::chrono::seconds(16));  // gRPC rounds a timeout up on the wire
}

TEST_F(DraServerTest, AHandlerThatThrowsFailsItsCallOnly) {
  Handler handler = SimpleHandler();
  handler.prepare = [](const std::string&, const std::vector<ClaimReference>&, Deadline, const claims::GivenUp&) -> claims::PrepareAnswers {
    throw std::bad_alloc();
  };
  Start(Options(std::move(handler)));
  v1::NodePrepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  v1::NodePrepareResourcesResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(Stub()->NodePrepareResources(&context, request, &response).error_code(), grpc::StatusCode::INTERNAL);
  v1::NodeUnprepareResourcesRequest release;
  AddClaim(release, "one", "uid-1");
  v1::NodeUnprepareResourcesResponse released;
  grpc::ClientContext after;
  EXPECT_TRUE(Stub()->NodeUnprepareResources(&after, release, &released).ok());
}

TEST_F(DraServerTest, SixtyFourParallelCallsAreAllAnsweredByTheBoundedThreads) {
  std::atomic<int> running{0}, most{0};
  Handler handler = SimpleHandler();
  const auto inner = handler.prepare;
  handler.prepare = [&](const std::string& driver, const std::vector<ClaimReference>& references, Deadline deadline, const claims::GivenUp& given_up) {
    const int now = ++running;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {}
    std::this_thread::sleep_for(milliseconds(20));
    --running;
    return inner(driver, references, deadline, given_up);
  };
  ServerOptions options = Options(std::move(handler));
  options.threads = 8;
  Start(std::move(options));
  const auto stub = Stub();
  std::atomic<int> right{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 64; ++i) {
    callers.emplace_back([&, i] {
      const std::string uid = "uid-" + std::to_string(i);
      v1::NodePrepareResourcesRequest request;
      AddClaim(request, "one", uid);
      v1::NodePrepareResourcesResponse response;
      grpc::ClientContext context;
      const bool answered = stub->NodePrepareResources(&context, request, &response).ok() && response.claims().count(uid) == 1 &&
                            response.claims().at(uid).devices_size() == 1 && response.claims().at(uid).devices(0).share_id() == "share-" + uid;
      if (answered) ++right;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right.load(), 64);
  EXPECT_LE(most.load(), 8);
  EXPECT_GT(most.load(), 1);
}

TEST_F(DraServerTest, AFullQueueAnswersResourceExhaustedAtOnce) {
  Gate gate;
  Handler handler = SimpleHandler();
  const auto inner = handler.prepare;
  handler.prepare = [&](const std::string& driver, const std::vector<ClaimReference>& references, Deadline deadline, const claims::GivenUp& given_up) {
    gate.Pass();
    return inner(driver, references, deadline, given_up);
  };
  ServerOptions options = Options(std::move(handler));
  options.threads = 1;
  options.queue_capacity = 1;
  Start(std::move(options));
  const auto stub = Stub();
  std::atomic<int> ok{0}, exhausted{0};
  const auto call = [&] {
    v1::NodePrepareResourcesRequest request;
    AddClaim(request, "one", "uid-1");
    v1::NodePrepareResourcesResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->NodePrepareResources(&context, request, &response);
    if (status.ok()) ++ok;
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) ++exhausted;
  };
  std::vector<std::thread> callers;
  callers.emplace_back(call);
  gate.AwaitWaiting(1);
  for (int i = 0; i < 4; ++i) callers.emplace_back(call);
  while (exhausted.load() < 3) std::this_thread::sleep_for(milliseconds(5));  // one of the four waits in the queue
  gate.Open();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ok.load(), 2);
  EXPECT_EQ(exhausted.load(), 3);
}

TEST_F(DraServerTest, AHandlerHearsThatItsCallWasGivenUp) {
  Gate gate;
  Handler handler = SimpleHandler();
  std::atomic<bool> before{true}, after{false};
  handler.prepare = [&](const std::string&, const std::vector<ClaimReference>&, Deadline, const claims::GivenUp& given_up) {
    before = given_up();
    gate.Pass();
    after = test::Eventually(given_up);
    return claims::PrepareAnswers();
  };
  Start(Options(std::move(handler)));
  const auto stub = Stub();
  grpc::ClientContext context;
  std::thread caller([&] {
    v1::NodePrepareResourcesRequest request;
    AddClaim(request, "one", "uid-1");
    v1::NodePrepareResourcesResponse response;
    EXPECT_EQ(stub->NodePrepareResources(&context, request, &response).error_code(), grpc::StatusCode::CANCELLED);
  });
  gate.AwaitWaiting(1);
  context.TryCancel();
  caller.join();
  gate.Open();
  server_->Shutdown(std::chrono::seconds(20));
  EXPECT_FALSE(before);
  EXPECT_TRUE(after);
}

TEST_F(DraServerTest, ShutdownLetsCallsInFlightEndAndRemovesTheSockets) {
  Gate gate;
  Handler handler = SimpleHandler();
  const auto inner = handler.prepare;
  handler.prepare = [&](const std::string& driver, const std::vector<ClaimReference>& references, Deadline deadline, const claims::GivenUp& given_up) {
    gate.Pass();
    return inner(driver, references, deadline, given_up);
  };
  Start(Options(std::move(handler)));
  const auto stub = Stub();
  grpc::Status status;
  v1::NodePrepareResourcesResponse response;
  std::thread caller([&] {
    v1::NodePrepareResourcesRequest request;
    AddClaim(request, "one", "uid-1");
    grpc::ClientContext context;
    status = stub->NodePrepareResources(&context, request, &response);
  });
  gate.AwaitWaiting(1);
  std::thread stopper([&] { server_->Shutdown(std::chrono::seconds(20)); });
  while (fs::exists(server_->service_socket())) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(fs::exists(server_->registration_socket()));
  gate.Open();
  stopper.join();
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.claims().at("uid-1").devices_size(), 1);
}

TEST_F(DraServerTest, SocketsAreForTheOwnerOnlyAndNoHiddenFileStays) {
  Start(Options(SimpleHandler()));
  for (const std::string& path : {server_->service_socket(), server_->registration_socket()}) {
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << path;
  }
  for (const auto& entry : fs::directory_iterator(root_ / "registry")) EXPECT_EQ(entry.path(), server_->registration_socket());
  server_->Shutdown(milliseconds(100));
  EXPECT_TRUE(fs::is_empty(root_ / "registry"));
}

TEST_F(DraServerTest, AStaleSocketIsReplacedButALiveOneAndAFileAreNot) {
  fs::create_directories(root_ / "plugins" / kDriver);
  const std::string path = (root_ / "plugins" / kDriver / "dra.sock").string();
  const int fd = BindSocket(path);
  ASSERT_EQ(listen(fd, 1), 0);
  const auto busy = DraServer::Start(Options(SimpleHandler()));
  EXPECT_EQ(busy.status().code(), absl::StatusCode::kAlreadyExists) << busy.status();
  EXPECT_FALSE(fs::exists(root_ / "registry" / (std::string(kDriver) + "-reg.sock")));
  close(fd);  // the file stays behind, as after a kill
  ASSERT_TRUE(fs::exists(path));
  Start(Options(SimpleHandler()));
  server_.reset();

  std::ofstream(path) << "precious";
  const auto refused = DraServer::Start(Options(SimpleHandler()));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
  EXPECT_EQ(fs::file_size(path), 8U);
}

TEST_F(DraServerTest, ASecondServerIsRefusedAndTheFirstStaysReachable) {
  Start(Options(SimpleHandler()));
  EXPECT_EQ(DraServer::Start(Options(SimpleHandler())).status().code(), absl::StatusCode::kAlreadyExists);
  v1::NodeUnprepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  v1::NodeUnprepareResourcesResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(Stub()->NodeUnprepareResources(&context, request, &response).ok());
}

TEST_F(DraServerTest, InstancesServeSideBySideAndTheOldOneTakesOnlyItsOwnSocketsAway) {
  Start(Options(SimpleHandler()));
  ServerOptions options = Options(SimpleHandler());
  options.instance = NewUuid();
  auto newer = DraServer::Start(std::move(options));
  ASSERT_TRUE(newer.ok()) << newer.status();
  server_.reset();
  EXPECT_TRUE(fs::exists((*newer)->service_socket()));
  EXPECT_TRUE(fs::exists((*newer)->registration_socket()));
}

TEST_F(DraServerTest, ASocketThatWasReplacedIsNotRemoved) {
  Start(Options(SimpleHandler()));
  const std::string path = server_->service_socket();
  fs::remove(path);
  std::ofstream(path) << "another's";
  server_.reset();
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(DraServerTest, ADirectoryNameWithSpacesAndPercentSignsWorks) {
  root_ /= "a b%20c";
  Start(Options(SimpleHandler()));
  v1::NodeUnprepareResourcesRequest request;
  AddClaim(request, "one", "uid-1");
  v1::NodeUnprepareResourcesResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(Stub()->NodeUnprepareResources(&context, request, &response).ok());
  server_.reset();
  root_ = root_.parent_path();
}

TEST_F(DraServerTest, WrongOptionsAreNamed) {
  ServerOptions relative = Options(SimpleHandler());
  relative.plugin_directory = "plugins";
  EXPECT_EQ(DraServer::Start(relative).status().code(), absl::StatusCode::kInvalidArgument);
  ServerOptions name = Options(SimpleHandler());
  name.driver = "Upper Case";
  EXPECT_EQ(DraServer::Start(name).status().code(), absl::StatusCode::kInvalidArgument);
  ServerOptions instance = Options(SimpleHandler());
  instance.instance = "../../etc";
  EXPECT_EQ(DraServer::Start(instance).status().code(), absl::StatusCode::kInvalidArgument);
  ServerOptions deep = Options(SimpleHandler());
  deep.plugin_directory = "/" + std::string(100, 'd');
  const absl::Status status = DraServer::Start(deep).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("107"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("101 bytes"));
}

TEST(SocketPathTest, LongNamesFallDownTheLadder) {
  const std::string uid = "01234567-89ab-4cde-8f01-23456789abcd";
  const std::string plugins = "/var/lib/kubelet/plugins", registry = "/var/lib/kubelet/plugins_registry";
  EXPECT_EQ(*ServiceSocketPath(plugins, kDriver, ""), plugins + "/nic.example.com/dra.sock");
  EXPECT_EQ(*ServiceSocketPath(plugins, kDriver, uid), plugins + "/nic.example.com/dra-" + uid + ".sock");
  EXPECT_EQ(*RegistrationSocketPath(registry, kDriver, ""), registry + "/nic.example.com-reg.sock");
  EXPECT_EQ(*RegistrationSocketPath(registry, kDriver, uid), registry + "/nic.example.com-" + uid + "-reg.sock");
  for (std::size_t length = 1; length <= 63; ++length) {
    const std::string driver(length, 'd');
    for (const std::string& instance : {std::string(), uid}) {
      const auto service = ServiceSocketPath(plugins, driver, instance);
      const auto registration = RegistrationSocketPath(registry, driver, instance);
      ASSERT_TRUE(service.ok()) << service.status();
      ASSERT_TRUE(registration.ok()) << registration.status();
      EXPECT_LE(service->size(), 107U);
      EXPECT_LE(registration->size(), 107U);
    }
  }
  // Under a long kubelet root the service socket leaves the driver's own directory; where even that is too long both lengths are named.
  const std::string root = "/var/snap/a-distribution/common/var/lib/kubelet-of-a-node";
  for (const std::string& instance : {std::string(), uid}) {
    const auto service = ServiceSocketPath(root + "/plugins", std::string(63, 'd'), instance);
    ASSERT_TRUE(service.ok()) << service.status();
    EXPECT_EQ(service->rfind('/'), (root + "/plugins").size());
  }
  EXPECT_NE(*ServiceSocketPath(root + "/plugins", std::string(63, 'd'), uid), *ServiceSocketPath(root + "/plugins", std::string(63, 'e'), uid));
  const std::string beyond = "/" + std::string(100, 'k');
  for (const auto& path : {ServiceSocketPath(beyond, kDriver, uid), RegistrationSocketPath(beyond, kDriver, uid)}) {
    EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(path.status().message()),
                testing::AllOf(testing::HasSubstr(" bytes, but a unix socket path holds 107"), testing::HasSubstr("the directory has 101 bytes")));
  }
  // Names that were cut stay different.
  EXPECT_NE(*RegistrationSocketPath(registry, std::string(62, 'd') + "a", uid), *RegistrationSocketPath(registry, std::string(62, 'd') + "b", uid));
}

TEST(BoundedExecutorTest, RunsWhatItAcceptedBeforeItEnds) {
  std::atomic<int> ran{0};
  int accepted = 0;
  {
    BoundedExecutor executor(2, 1000);
    for (int i = 0; i < 500; ++i) accepted += executor.TrySubmit([&ran] { ++ran; }) ? 1 : 0;
  }
  EXPECT_EQ(accepted, 500);
  EXPECT_EQ(ran.load(), 500);
}

}  // namespace
}  // namespace tranche::dra
