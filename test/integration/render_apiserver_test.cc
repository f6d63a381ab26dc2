// What `tranchectl render` prints, applied to a real API server: the server takes every object and enforces the policies. Users are tried
// by impersonation, with what a pod-bound token says of its node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "support/api_server.h"
#include "support/process.h"

namespace tranche::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace json = boost::json;

constexpr char kHost[] = R"(apiVersion: tranche.dev/v1alpha1
kind: HostConfiguration
backends:
- name: uplink
  library: vnic_tc
  isolation: in-process
  config:
    parents: [{interface: eth1, bandwidth: 1G, subnet: 10.99.0.0/24}]
    attachHook: /var/lib/kubelet/plugins/vnic.tranche.dev/bin/vnic-attach
  allowEdits: {hooks: [/var/lib/kubelet/plugins/vnic.tranche.dev/bin/]}
drivers:
- name: vnic.tranche.dev
  offers:
  - {name: shared, backend: uplink, mode: share}
  - {name: whole, backend: uplink, mode: whole}
  classes:
  - name: vnic-shared
    offer: shared
    namespaces: {allow: ["team-*", exact]}
    minimumEnforcement: hard
    parameters: {direction: both}
    claimParameters: [mtu, "it's \"odd\""]
  - {name: vnic-soft, offer: shared, minimumEnforcement: soft}
  - {name: vnic-whole, offer: whole}
- name: idle.tranche.dev
)";

constexpr char kPlural[] = "/apis/resource.k8s.io/v1";

std::string PathOf(const json::value& object) {
  static const std::map<std::string, std::string> kPlurals = {{"Namespace", "namespaces"},
                                                              {"ServiceAccount", "serviceaccounts"},
                                                              {"ClusterRole", "clusterroles"},
                                                              {"ClusterRoleBinding", "clusterrolebindings"},
                                                              {"ConfigMap", "configmaps"},
                                                              {"DaemonSet", "daemonsets"},
                                                              {"DeviceClass", "deviceclasses"},
                                                              {"ValidatingAdmissionPolicy", "validatingadmissionpolicies"},
                                                              {"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"}};
  const std::string version = object.at("apiVersion").as_string().c_str();
  const json::object& metadata = object.at("metadata").as_object();
  std::string path = version.find('/') == std::string::npos ? "/api/" + version : "/apis/" + version;
  if (const json::value* namespace_name = metadata.if_contains("namespace")) path += std::string("/namespaces/") + namespace_name->as_string().c_str();
  return path + "/" + kPlurals.at(object.at("kind").as_string().c_str()) + "/" + metadata.at("name").as_string().c_str();
}

json::array Rendered(const std::string& configuration, const std::vector<std::string>& options = {}) {
  TemporaryDirectory directory;
  const std::string file = directory.path() + "/host.yaml";
  std::ofstream(file) << configuration;
  std::vector<std::string> command = {Binary("tranchectl"), "render", "--config", file, "-o", "json"};
  command.insert(command.end(), options.begin(), options.end());
  const RunResult result = RunProgram(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  return result.exit_code == 0 ? json::parse(result.output).at("items").as_array() : json::array();
}

json::object Slice(const std::string& name, const std::string& driver, const std::string& node) {
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceSlice"},
          {"metadata", json::object{{"name", name}}},
          {"spec", json::object{{"driver", driver},
                                {"nodeName", node},
                                {"pool", json::object{{"name", node}, {"generation", 1}, {"resourceSliceCount", 1}}},
                                {"devices", json::array{json::object{{"name", "eth1-shared"}}}}}}};
}

json::object Exact(const std::string& device_class) { return {{"name", "nic"}, {"exactly", json::object{{"deviceClassName", device_class}}}}; }

json::object Alternatives(const std::vector<std::string>& classes) {
  json::array alternatives;
  for (const std::string& name : classes) {
    alternatives.push_back(json::object{{"name", "a" + std::to_string(alternatives.size())}, {"deviceClassName", name}});
  }
  return {{"name", "nic"}, {"firstAvailable", alternatives}};
}

json::object Parameters(json::object parameters, json::array requests = {}, const std::string& driver = "vnic.tranche.dev") {
  return {{"requests", std::move(requests)}, {"opaque", json::object{{"driver", driver}, {"parameters", std::move(parameters)}}}};
}

json::object Devices(json::array requests, json::array configuration = {}) { return {{"requests", std::move(requests)}, {"config", std::move(configuration)}}; }

// One server of each version for all cases: each of them uses names of its own.
class RenderOnApiServer : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string missing = ApiServer::Missing(GetParam()); !missing.empty()) {
      std::cerr << "NOT TESTED: " << missing << "\n";
      GTEST_SKIP() << "NOT TESTED: " << missing;
    }
    const bool first = !servers_.contains(GetParam());
    if (first) servers_[GetParam()] = ApiServer::Start({}, GetParam());
    server_ = servers_[GetParam()].get();
    ASSERT_NE(server_, nullptr) << "the API server did not start";
    if (first) Install();
  }
  static void TearDownTestSuite() { servers_.clear(); }

  void Install() {
    for (const json::value& object : RenderedHere()) {
      const Answer answer = Apply(object);
      EXPECT_EQ(answer.code, 201) << PathOf(object) << "\n" << answer.body;
    }
    for (const char* name : {"team-a", "exact", "outsider", "kube-system-like"}) CreateNamespace(name, false);
    CreateNamespace("team-admin", true);
    GrantClaims();
    ASSERT_TRUE(PoliciesAreInForce());
  }
  static json::array RenderedHere() { return Rendered(kHost, {"--kubernetes", GetParam()}); }

  static Answer Apply(const json::value& object) {
    return server_->Request("PATCH", PathOf(object) + "?fieldManager=test&force=true", json::serialize(object), {}, "application/apply-patch+yaml");
  }

  static void CreateNamespace(const std::string& name, bool admin) {
    json::object labels;
    if (admin) labels["resource.kubernetes.io/admin-access"] = "true";
    const json::object body{{"metadata", json::object{{"name", name}, {"labels", labels}}}};
    const Answer answer = server_->Request("POST", "/api/v1/namespaces", json::serialize(body));
    EXPECT_EQ(answer.code, 201) << answer.body;
  }

  // A tenant who may create claims and templates in every namespace, and another driver that may write every slice.
  static void GrantClaims() {
    const auto grant = [](const std::string& name, const json::array& resources, const Impersonation& user) {
      const json::object role{{"apiVersion", "rbac.authorization.k8s.io/v1"},
                              {"kind", "ClusterRole"},
                              {"metadata", json::object{{"name", name}}},
                              {"rules", json::array{json::object{{"apiGroups", json::array{"resource.k8s.io"}},
                                                                 {"resources", resources},
                                                                 {"verbs", json::array{"get", "create", "update", "delete"}}}}}};
      const json::object binding{{"apiVersion", "rbac.authorization.k8s.io/v1"},
                                 {"kind", "ClusterRoleBinding"},
                                 {"metadata", json::object{{"name", name}}},
                                 {"subjects", json::array{json::object{{"kind", "User"}, {"name", user.user}}}},
                                 {"roleRef", json::object{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", name}}}};
      for (const json::object& object : {role, binding}) EXPECT_EQ(Apply(object).code, 201);
    };
    grant("tenant", {"resourceclaims", "resourceclaimtemplates"}, Tenant());
    grant("other-driver", {"resourceslices"}, OtherDriver());
  }

  // The API server loads policies with a delay.
  static bool PoliciesAreInForce() {
    return Eventually(
        [] {
          return Claim("outsider", Devices({Exact("vnic-shared")}), "?dryRun=All").code == 403 &&
                 Claim("team-a", Devices({Exact("vnic-shared")}, {Parameters({{"x", 1}})}), "?dryRun=All").code == 403 &&
                 Claim("team-admin", Devices({WithAdmin("vnic-shared")}), "?dryRun=All").code == 403 &&
                 server_->Request("POST", std::string(kPlural) + "/resourceslices?dryRun=All", json::serialize(Slice("probe", "vnic.tranche.dev", "node-1")),
                                  OtherDriver())
                         .code == 403;
        },
        std::chrono::seconds(30));
  }

  static Impersonation Tenant() { return {"tenant", {"system:authenticated"}, {}}; }
  static Impersonation OtherDriver() { return ServiceAccountUser("gpu", "driver", "node-1"); }
  static Impersonation Host(const std::string& node) { return ServiceAccountUser("tranche-system", "tranche-node", node); }
  static Impersonation Kubelet(const std::string& node) { return {"system:node:" + node, {"system:nodes", "system:authenticated"}, {}}; }

  static json::object WithAdmin(const std::string& device_class) {
    json::object request = Exact(device_class);
    request["exactly"].as_object()["adminAccess"] = true;
    return request;
  }

  static Answer Claim(const std::string& namespace_name, const json::object& devices, const std::string& query = "") {
    const json::object claim{{"apiVersion", "resource.k8s.io/v1"},
                             {"kind", "ResourceClaim"},
                             {"metadata", json::object{{"generateName", "c-"}}},
                             {"spec", json::object{{"devices", devices}}}};
    return server_->Request("POST", std::string(kPlural) + "/namespaces/" + namespace_name + "/resourceclaims" + query, json::serialize(claim), Tenant());
  }
  static Answer Template(const std::string& namespace_name, const json::object& devices) {
    const json::object claim{{"apiVersion", "resource.k8s.io/v1"},
                             {"kind", "ResourceClaimTemplate"},
                             {"metadata", json::object{{"generateName", "t-"}}},
                             {"spec", json::object{{"spec", json::object{{"devices", devices}}}}}};
    return server_->Request("POST", std::string(kPlural) + "/namespaces/" + namespace_name + "/resourceclaimtemplates", json::serialize(claim), Tenant());
  }
  // Claim and template alike.
  static void ExpectBoth(int code, const std::string& text, const std::string& namespace_name, const json::object& devices) {
    for (const Answer& answer : {Claim(namespace_name, devices), Template(namespace_name, devices)}) {
      EXPECT_EQ(answer.code, code) << answer.body;
      EXPECT_THAT(answer.body, HasSubstr(text));
    }
  }

  static Answer CreateSlice(const json::object& slice, const Impersonation& user) {
    return server_->Request("POST", std::string(kPlural) + "/resourceslices", json::serialize(slice), user);
  }
  static Answer OnSlice(const std::string& method, const std::string& name, const Impersonation& user, const json::value& body = nullptr) {
    return server_->Request(method, std::string(kPlural) + "/resourceslices/" + name, body.is_null() ? "" : json::serialize(body), user);
  }
  static json::object ReadSlice(const std::string& name) { return json::parse(OnSlice("GET", name, {}).body).as_object(); }

  static void ExpectRefused(const Answer& answer, const std::string& text) {
    EXPECT_EQ(answer.code, 403) << answer.body;
    EXPECT_THAT(answer.body, AllOf(HasSubstr("ValidatingAdmissionPolicy"), HasSubstr(text)));
  }

  static inline std::map<std::string, std::unique_ptr<ApiServer>> servers_;
  static inline ApiServer* server_ = nullptr;  // of the case that runs
};

TEST_P(RenderOnApiServer, TakesEveryObjectAndFindsNoMistakeInAnyExpression) {
  for (const json::value& object : RenderedHere()) {
    // Applying again changes nothing: what the server stored is what was rendered.
    const Answer before = server_->Request("GET", PathOf(object)), after = Apply(object);
    ASSERT_EQ(before.code, 200) << before.body;
    ASSERT_EQ(after.code, 200) << after.body;
    EXPECT_EQ(json::parse(before.body).at("metadata").at("resourceVersion"), json::parse(after.body).at("metadata").at("resourceVersion")) << PathOf(object);
  }
}

TEST_P(RenderOnApiServer, TakesConfigurationsWithoutDriversClassesOrNamespaces) {
  for (const std::string& text : {std::string("apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\n"),
                                  std::string("apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\ndrivers: [{name: a.tranche.dev}]\n")}) {
    for (const json::value& object : Rendered(text, {"policies", "rbac"})) {
      const Answer answer =
          server_->Request("PATCH", PathOf(object) + "?fieldManager=test&force=true&dryRun=All", json::serialize(object), {}, "application/apply-patch+yaml");
      EXPECT_EQ(answer.code, 200) << PathOf(object) << "\n" << answer.body;
    }
  }
}

TEST_P(RenderOnApiServer, HostWritesSlicesOfItsOwnNodeAndDriversOnly) {
  EXPECT_EQ(CreateSlice(Slice("own", "vnic.tranche.dev", "node-1"), Host("node-1")).code, 201);
  ExpectRefused(CreateSlice(Slice("foreign-node", "vnic.tranche.dev", "node-2"), Host("node-1")), "own node only");
  ExpectRefused(CreateSlice(Slice("unbound", "vnic.tranche.dev", "node-1"), Host("")), "own node only");
  ExpectRefused(CreateSlice(Slice("foreign-driver", "gpu.example.com", "node-1"), Host("node-1")), "own drivers only");
  json::object everywhere = Slice("everywhere", "vnic.tranche.dev", "node-1");
  everywhere["spec"].as_object().erase("nodeName");
  everywhere["spec"].as_object()["allNodes"] = true;
  ExpectRefused(CreateSlice(everywhere, Host("node-1")), "own node only");

  json::object changed = ReadSlice("own");
  changed["spec"].as_object()["pool"].as_object()["generation"] = 2;
  ExpectRefused(OnSlice("PUT", "own", Host("node-2"), changed), "own node only");
  EXPECT_EQ(OnSlice("PUT", "own", Host("node-1"), changed).code, 200);
  ExpectRefused(OnSlice("DELETE", "own", Host("node-2")), "own node only");
  EXPECT_EQ(OnSlice("DELETE", "own", Host("node-1")).code, 200);

  EXPECT_EQ(CreateSlice(Slice("gpu", "gpu.example.com", "node-1"), OtherDriver()).code, 201) << "other drivers go on as before";
  ExpectRefused(OnSlice("DELETE", "gpu", Host("node-1")), "own drivers only");
}

TEST_P(RenderOnApiServer, NobodyElseWritesOurSlices) {
  ExpectRefused(CreateSlice(Slice("forged", "vnic.tranche.dev", "node-1"), OtherDriver()), "written only by");
  ExpectRefused(CreateSlice(Slice("forged", "idle.tranche.dev", "node-1"), OtherDriver()), "written only by");
  ExpectRefused(CreateSlice(Slice("forged", "vnic.tranche.dev", "node-1"), {}), "written only by");
  ASSERT_EQ(CreateSlice(Slice("ours", "vnic.tranche.dev", "node-1"), Host("node-1")).code, 201);
  json::object changed = ReadSlice("ours");
  changed["spec"].as_object()["pool"].as_object()["generation"] = 2;
  ExpectRefused(OnSlice("PUT", "ours", OtherDriver(), changed), "written only by");
  ExpectRefused(OnSlice("PUT", "ours", {}, changed), "written only by");
  ExpectRefused(OnSlice("DELETE", "ours", OtherDriver()), "written only by");

  json::object labelled = ReadSlice("ours");
  labelled["metadata"].as_object()["labels"] = json::object{{"seen", "yes"}};
  ExpectRefused(OnSlice("PUT", "ours", OtherDriver(), labelled), "written only by");
  EXPECT_EQ(OnSlice("PUT", "ours", {}, labelled).code, 200) << "an administrator may label, the specification is the same";
  EXPECT_EQ(OnSlice("DELETE", "ours", {}).code, 200) << "an administrator may delete; the host makes it again";
}

TEST_P(RenderOnApiServer, KubeletAndGarbageCollectorStillDelete) {
  const Impersonation collector = ServiceAccountUser("kube-system", "generic-garbage-collector");
  for (const auto& [name, user] : std::map<std::string, Impersonation>{{"by-kubelet", Kubelet("node-1")}, {"by-collector", collector}}) {
    ASSERT_EQ(CreateSlice(Slice(name, "vnic.tranche.dev", "node-1"), Host("node-1")).code, 201);
    const Answer answer = OnSlice("DELETE", name, user);
    EXPECT_EQ(answer.code, 200) << name << "\n" << answer.body;
  }
  // As a kubelet does when it starts: all slices of its node at once.
  ASSERT_EQ(CreateSlice(Slice("collection", "vnic.tranche.dev", "node-3"), Host("node-3")).code, 201);
  const Answer all = server_->Request("DELETE", std::string(kPlural) + "/resourceslices?fieldSelector=spec.nodeName%3Dnode-3", "", Kubelet("node-3"));
  EXPECT_EQ(all.code, 200) << all.body;
  EXPECT_EQ(OnSlice("GET", "collection", {}).code, 404);
}

TEST_P(RenderOnApiServer, ClassesAreForTheirNamespaces) {
  for (const char* name : {"team-a", "exact"}) ExpectBoth(201, "", name, Devices({Exact("vnic-shared")}));
  for (const char* name : {"outsider", "kube-system-like"}) {
    ExpectBoth(403, std::string("namespace ") + name + " may not use device class vnic-shared", name, Devices({Exact("vnic-shared")}));
  }
  ExpectBoth(201, "", "outsider", Devices({Exact("vnic-whole")}));
  ExpectBoth(201, "", "outsider", Devices({Exact("gpu.example.com")}));
  ExpectBoth(403, "firstAvailable", "outsider", Devices({Alternatives({"vnic-whole", "vnic-shared"})}));
  ExpectBoth(201, "", "team-a", Devices({Alternatives({"vnic-whole", "vnic-shared"})}));
  ExpectBoth(201, "", "outsider", Devices({Alternatives({"vnic-whole", "gpu.example.com"})}));
}

TEST_P(RenderOnApiServer, OlderVersionsOfTheApiAreNoWayAround) {
  const json::object claim{
      {"metadata", json::object{{"generateName", "c-"}}},
      {"spec", json::object{{"devices", json::object{{"requests", json::array{json::object{{"name", "nic"}, {"deviceClassName", "vnic-shared"}}}}}}}}};
  const std::string path = "/apis/resource.k8s.io/v1beta1/namespaces/";
  EXPECT_EQ(server_->Request("POST", path + "team-a/resourceclaims", json::serialize(claim), Tenant()).code, 201);
  ExpectRefused(server_->Request("POST", path + "outsider/resourceclaims", json::serialize(claim), Tenant()), "may not use device class vnic-shared");
}

TEST_P(RenderOnApiServer, ClaimsSetOnlyWhatTheirClassLeavesToThem) {
  const auto exact = [](json::array configuration) { return Devices({Exact("vnic-shared")}, std::move(configuration)); };
  ExpectBoth(201, "", "team-a", exact({Parameters({{"mtu", 1400}})}));
  ExpectBoth(201, "", "team-a", exact({Parameters({{"mtu", 1400}, {"it's \"odd\"", "x"}}, {"nic"})}));
  ExpectBoth(201, "", "team-a", exact({Parameters({})}));
  ExpectBoth(201, "", "team-a", exact({Parameters({{"anything", 1}}, {}, "gpu.example.com")}));
  for (const json::object& parameters : {json::object{{"direction", "both"}}, json::object{{"mtu", 1}, {"direction", "both"}},
                                         json::object{{"mtu", 1}, {"MTU", 1}}, json::object{{"", 1}}, json::object{{"mtu", 1}, {"a", 1}, {"b", 1}}}) {
    ExpectBoth(403, "does not leave to claims", "team-a", exact({Parameters(parameters)}));
    ExpectBoth(403, "does not leave to claims", "team-a", exact({Parameters({{"mtu", 1}}), Parameters(parameters, {"nic"})}));
  }
  ExpectBoth(403, "does not leave to claims", "team-a", Devices({Exact("vnic-whole")}, {Parameters({{"mtu", 1}})}));

  const json::object either = Alternatives({"vnic-shared", "vnic-whole"});
  ExpectBoth(201, "", "team-a", Devices({either}, {Parameters({{"mtu", 1}}, {"nic/a0"})}));
  ExpectBoth(403, "does not leave to claims", "team-a", Devices({either}, {Parameters({{"mtu", 1}}, {"nic/a1"})}));
  ExpectBoth(403, "does not leave to claims", "team-a", Devices({either}, {Parameters({{"mtu", 1}}, {"nic"})}));
  ExpectBoth(403, "does not leave to claims", "team-a", Devices({either}, {Parameters({{"mtu", 1}})}));
}

TEST_P(RenderOnApiServer, LargestHonestClaimStaysWithinTheBudgetAndAHostileOneIsRefused) {
  json::array requests, configuration, hostile;
  for (int i = 0; i < 32; ++i) {
    json::object request = Alternatives({"vnic-shared", "vnic-whole", "vnic-soft", "a", "b", "c", "d", "e"});
    request["name"] = "r" + std::to_string(i);
    requests.push_back(request);
    const std::string first = "r" + std::to_string(i) + "/a0";
    configuration.push_back(Parameters({{"mtu", 1400}}, {json::string(first)}));
    json::object many;
    for (int key = 0; key < 400; ++key) many["p" + std::to_string(key)] = key;
    hostile.push_back(Parameters(many));
  }
  const Answer honest = Claim("team-a", Devices(requests, configuration));
  EXPECT_EQ(honest.code, 201) << honest.body;
  const Answer refused = Claim("team-a", Devices(requests, hostile));
  EXPECT_GE(refused.code, 400) << "what costs too much is refused";
  EXPECT_LT(refused.code, 500) << refused.body;
}

TEST_P(RenderOnApiServer, AdminAccessNeedsALabelledNamespaceAndIsNotForShares) {
  for (const Answer& answer : {Claim("team-a", Devices({WithAdmin("vnic-whole")})), Template("team-a", Devices({WithAdmin("vnic-whole")}))}) {
    EXPECT_GE(answer.code, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("resource.kubernetes.io/admin-access"));
  }
  ExpectBoth(201, "", "team-admin", Devices({WithAdmin("vnic-whole")}));
  ExpectBoth(403, "without adminAccess", "team-admin", Devices({WithAdmin("vnic-shared")}));
}

TEST_P(RenderOnApiServer, HostMayDoWhatItDoesAndNothingElse) {
  const auto may = [](const std::string& group, const std::string& resource, const std::string& subresource, const std::string& verb, const std::string& name) {
    const Impersonation host = Host("node-1");
    json::array groups;
    for (const std::string& member : host.groups) groups.emplace_back(member);
    const json::object review{
        {"apiVersion", "authorization.k8s.io/v1"},
        {"kind", "SubjectAccessReview"},
        {"spec",
         json::object{
             {"user", host.user},
             {"groups", groups},
             {"resourceAttributes",
              json::object{{"group", group}, {"resource", resource}, {"subresource", subresource}, {"verb", verb}, {"name", name}, {"namespace", "team-a"}}}}}};
    const Answer answer = server_->Request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", json::serialize(review));
    EXPECT_EQ(answer.code, 201) << answer.body;
    return json::parse(answer.body).at("status").at("allowed").as_bool();
  };
  const std::string dra = "resource.k8s.io";
  for (const char* verb : {"get", "list", "watch", "create", "update", "patch", "delete"}) EXPECT_TRUE(may(dra, "resourceslices", "", verb, ""));
  EXPECT_TRUE(may(dra, "resourceclaims", "", "get", "c"));
  EXPECT_TRUE(may(dra, "resourceclaims", "status", "update", "c"));
  EXPECT_TRUE(may(dra, "resourceclaims", "driver", "associated-node:patch", "vnic.tranche.dev"));
  EXPECT_TRUE(may("", "nodes", "", "get", "node-1"));
  EXPECT_TRUE(may("", "events", "", "create", ""));
  EXPECT_TRUE(may("events.k8s.io", "events", "", "patch", ""));

  EXPECT_FALSE(may(dra, "resourceclaims", "driver", "associated-node:patch", "gpu.example.com"));
  EXPECT_FALSE(may(dra, "resourceclaims", "driver", "arbitrary-node:patch", "vnic.tranche.dev"));
  EXPECT_FALSE(may(dra, "resourceclaims", "binding", "update", ""));
  EXPECT_FALSE(may(dra, "resourceclaims", "", "list", ""));
  EXPECT_FALSE(may(dra, "resourceclaims", "", "delete", "c"));
  EXPECT_FALSE(may(dra, "deviceclasses", "", "get", ""));
  EXPECT_FALSE(may(dra, "resourceslices", "", "deletecollection", ""));
  EXPECT_FALSE(may("", "pods", "", "get", "p"));
  EXPECT_FALSE(may("", "secrets", "", "get", "s"));
  EXPECT_FALSE(may("", "configmaps", "", "get", "c"));
  EXPECT_FALSE(may("", "nodes", "", "patch", "node-1"));
}

INSTANTIATE_TEST_SUITE_P(Kubernetes, RenderOnApiServer, ::testing::Values("1.37", "1.36"), [](const auto& version) { return "V1_" + version.param.substr(2); });

}  // namespace
}  // namespace tranche::test
