// What `tranchectl render` prints, read again as a YAML reader of the cluster does.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "base/files.h"
#include "base/ids.h"
#include "config/config.h"
#include "ctl/install.h"
#include "ctl/render.h"
#include "ctl/render_parts.h"
#include "ctl/yaml_writer.h"

namespace tranche::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
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
- name: fake
  library: null_backend
drivers:
- name: vnic.tranche.dev
  offers:
  - {name: shared, backend: uplink, mode: share}
  - {name: whole, backend: uplink, mode: whole}
  classes:
  - name: vnic-shared
    offer: shared
    namespaces: {allow: ["team-*", default]}
    minimumEnforcement: strong
    parameters: {direction: both}
    claimParameters: [mtu, interfaceName]
  - {name: vnic-whole, offer: whole}
- name: fake.tranche.dev
  offers:
  - {name: all, backend: fake, mode: whole}
  classes:
  - {name: fake-nobody, offer: all, namespaces: {allow: [nobody]}}
)";

config::HostConfiguration Parse(const std::string& text) {
  absl::StatusOr<config::HostConfiguration> parsed = config::ParseConfiguration(text, "host.yaml");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : config::HostConfiguration{};
}

// The documents by "Kind/name", through YAML text.
std::map<std::string, YAML::Node> Documents(const config::HostConfiguration& configuration, const std::string& text, const RenderOptions& options = {}) {
  const absl::StatusOr<json::array> objects = RenderObjects(configuration, text, options);
  EXPECT_TRUE(objects.ok()) << objects.status();
  std::map<std::string, YAML::Node> documents;
  if (!objects.ok()) return documents;
  for (const YAML::Node& node : YAML::LoadAll(RenderYaml(*objects))) {
    documents[node["kind"].as<std::string>() + "/" + node["metadata"]["name"].as<std::string>()] = node;
  }
  EXPECT_EQ(documents.size(), objects->size()) << "two objects of one kind have one name";
  return documents;
}
std::map<std::string, YAML::Node> Documents(const std::string& text, const RenderOptions& options = {}) { return Documents(Parse(text), text, options); }

std::vector<std::string> Strings(const YAML::Node& node) { return node.IsDefined() ? node.as<std::vector<std::string>>() : std::vector<std::string>(); }

std::string Variable(const YAML::Node& policy, const std::string& name) {
  for (const YAML::Node& variable : policy["spec"]["variables"]) {
    if (variable["name"].as<std::string>() == name) return variable["expression"].as<std::string>();
  }
  return "";
}

std::string Selector(const YAML::Node& device_class) { return device_class["spec"]["selectors"][0]["cel"]["expression"].as<std::string>(); }

bool HasName(const YAML::Node& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const YAML::Node& item) { return item["name"].as<std::string>() == name; });
}

YAML::Node PodOf(std::map<std::string, YAML::Node>& documents) { return documents["DaemonSet/tranche-node"]["spec"]["template"]["spec"]; }

TEST(Render, GivesEveryObjectOnceInAnOrderThatCanBeApplied) {
  const absl::StatusOr<json::array> objects = RenderObjects(Parse(kHost), kHost, {});
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::vector<std::string> kinds;
  for (const json::value& object : *objects) kinds.emplace_back(object.at("kind").as_string().c_str());
  EXPECT_THAT(kinds, ElementsAre("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "ValidatingAdmissionPolicy",
                                 "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
                                 "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy",
                                 "ValidatingAdmissionPolicyBinding", "DeviceClass", "DeviceClass", "DeviceClass", "DaemonSet"));
}

TEST(Render, GrantsExactlyWhatTheHostUses) {
  auto documents = Documents(kHost);
  std::set<std::string> granted;
  for (const YAML::Node& rule : documents["ClusterRole/tranche-node"]["rules"]) {
    std::string names;
    for (const std::string& name : Strings(rule["resourceNames"])) names += "[" + name + "]";
    for (const std::string& group : Strings(rule["apiGroups"])) {
      for (const std::string& resource : Strings(rule["resources"])) {
        for (const std::string& verb : Strings(rule["verbs"])) granted.insert(group + " " + resource + names + " " + verb);
      }
    }
  }
  std::set<std::string> expected = {
      "resource.k8s.io resourceclaims get",
      "resource.k8s.io resourceclaims/status update",
      "resource.k8s.io resourceclaims/status patch",
      "resource.k8s.io resourceclaims/driver[vnic.tranche.dev][fake.tranche.dev] associated-node:update",
      "resource.k8s.io resourceclaims/driver[vnic.tranche.dev][fake.tranche.dev] associated-node:patch",
      " nodes get",
      " events create",
      " events patch",
      "events.k8s.io events create",
      "events.k8s.io events patch",
  };
  for (const char* verb : {"get", "list", "watch", "create", "update", "patch", "delete"})
    expected.insert(std::string("resource.k8s.io resourceslices ") + verb);
  EXPECT_EQ(granted, expected);
  const YAML::Node binding = documents["ClusterRoleBinding/tranche-node"];
  EXPECT_EQ(binding["roleRef"]["name"].as<std::string>(), "tranche-node");
  EXPECT_EQ(binding["subjects"].size(), 1U);
  EXPECT_EQ(binding["subjects"][0]["namespace"].as<std::string>(), "tranche-system");
}

TEST(Render, NoDriverMeansNoRuleForEveryDriver) {
  const std::string text = "apiVersion: tranche.dev/v1alpha1\nkind: HostConfiguration\n";
  auto documents = Documents(text);
  for (const YAML::Node& rule : documents["ClusterRole/tranche-node"]["rules"]) {
    EXPECT_THAT(Strings(rule["resources"]), Not(testing::Contains("resourceclaims/driver")));
  }
  EXPECT_THAT(Variable(documents["ValidatingAdmissionPolicy/tranche-slices"], "ours"), HasSubstr("in []"));
}

TEST(Render, OlderServersDoNotGetPermissionsTheyDoNotKnow) {
  for (const auto& [version, rules] : std::map<std::string, int>{{"1.34", 0}, {"v1.35.7", 0}, {"1.36", 1}, {"v1.37.2", 1}}) {
    RenderOptions options;
    options.kubernetes = version;
    auto documents = Documents(kHost, options);
    int count = 0;
    for (const YAML::Node& rule : documents["ClusterRole/tranche-node"]["rules"]) count += rule["resourceNames"].IsDefined() ? 1 : 0;
    EXPECT_EQ(count, rules) << version;
    EXPECT_EQ(RenderNotes(Parse(kHost), options).size(), rules == 0 ? 1U : 0U) << version << ": shares need a feature gate";
  }
}

TEST(Render, ConfigMapHoldsTheFileToTheByte) {
  for (const std::string& text :
       {std::string(kHost), std::string(kHost) + "# a comment with ' and \" and \\ and ünïcödé\n", std::string("# no end\n") + kHost + "#",
        std::string(kHost) + "\n\n", "# tab\there\r\n" + std::string(kHost), std::string("   # indented\n") + kHost}) {
    auto documents = Documents(Parse(kHost), text);
    EXPECT_EQ(documents["ConfigMap/tranche-host"]["data"]["host.yaml"].as<std::string>(), text);
  }
}

TEST(Render, DaemonSetUpdatesWithoutAGapAndFindsItsNodeAndItself) {
  auto documents = Documents(kHost);
  const YAML::Node spec = documents["DaemonSet/tranche-node"]["spec"];
  EXPECT_EQ(spec["updateStrategy"]["rollingUpdate"]["maxSurge"].as<int>(), 1);
  EXPECT_EQ(spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"].as<int>(), 0);
  const YAML::Node pod = PodOf(documents);
  EXPECT_EQ(pod["serviceAccountName"].as<std::string>(), "tranche-node");
  EXPECT_EQ(pod["priorityClassName"].as<std::string>(), "system-node-critical");
  const YAML::Node container = pod["containers"][0];
  std::map<std::string, std::string> fields;
  for (const YAML::Node& variable : container["env"]) {
    if (variable["valueFrom"]) fields[variable["name"].as<std::string>()] = variable["valueFrom"]["fieldRef"]["fieldPath"].as<std::string>();
  }
  EXPECT_EQ(fields, (std::map<std::string, std::string>{{"NODE_NAME", "spec.nodeName"}, {"POD_UID", "metadata.uid"}}));
  const std::vector<std::string> command = Strings(container["command"]);
  const auto option = [&](const std::string& name) {
    const auto found = std::find(command.begin(), command.end(), name);
    return found == command.end() || found + 1 == command.end() ? std::string("absent") : *(found + 1);
  };
  EXPECT_EQ(option("--node-name"), "$(NODE_NAME)");
  EXPECT_EQ(option("--instance"), "$(POD_UID)");
  EXPECT_EQ(option("--config"), "/etc/tranche/host.yaml");
}

TEST(Render, HostPathsAreMountedWhereTheyAre) {
  RenderOptions options;
  options.kubelet_root = "/data/kubelet";
  auto documents = Documents(kHost, options);
  const YAML::Node pod = PodOf(documents);
  std::map<std::string, std::string> paths;
  for (const YAML::Node& volume : pod["volumes"]) {
    if (volume["hostPath"]) paths[volume["name"].as<std::string>()] = volume["hostPath"]["path"].as<std::string>();
  }
  EXPECT_EQ(paths.at("plugins"), "/data/kubelet/plugins");
  EXPECT_EQ(paths.at("registration"), "/data/kubelet/plugins_registry");
  EXPECT_EQ(paths.at("cdi"), "/var/run/cdi");
  for (const YAML::Node& container : {pod["containers"][0], pod["initContainers"][0]}) {
    for (const YAML::Node& mount : container["volumeMounts"]) {
      const auto path = paths.find(mount["name"].as<std::string>());
      if (path == paths.end()) continue;
      EXPECT_EQ(mount["mountPath"].as<std::string>(), path->second);
    }
  }
  // The hook lies outside this kubelet's plugins directory, so it has a volume of its own.
  EXPECT_EQ(paths.at("hooks-0"), "/var/lib/kubelet/plugins/vnic.tranche.dev/bin");
  EXPECT_TRUE(HasName(pod["initContainers"][0]["volumeMounts"], "hooks-0"));
}

TEST(Render, PrivilegesAreThoseOfTheBackends) {
  auto documents = Documents(kHost);
  YAML::Node pod = PodOf(documents);
  YAML::Node security = pod["containers"][0]["securityContext"];
  EXPECT_TRUE(pod["hostNetwork"].as<bool>());
  EXPECT_FALSE(pod["hostPID"].IsDefined());
  EXPECT_FALSE(security["privileged"].IsDefined());
  EXPECT_THAT(Strings(security["capabilities"]["drop"]), ElementsAre("ALL"));
  EXPECT_THAT(Strings(security["capabilities"]["add"]), ElementsAre("BPF", "NET_ADMIN"));
  EXPECT_THAT(Strings(pod["initContainers"][0]["command"]),
              ElementsAre("tranchectl", "install", "/usr/bin/vnic-attach=/var/lib/kubelet/plugins/vnic.tranche.dev/bin/vnic-attach"));

  config::HostConfiguration plain = Parse(kHost);
  plain.backends.erase(plain.backends.begin());
  documents = Documents(plain, kHost);
  pod = PodOf(documents);
  EXPECT_FALSE(pod["hostNetwork"].IsDefined());
  EXPECT_FALSE(pod["initContainers"].IsDefined());
  EXPECT_FALSE(pod["containers"][0]["securityContext"]["capabilities"]["add"].IsDefined());

  plain.backends[0].library = "acme";
  EXPECT_THAT(RenderNotes(plain, {}), ElementsAre(HasSubstr("acme")));
  RenderOptions options;
  options.privileged = true;
  EXPECT_THAT(RenderNotes(plain, options), IsEmpty());
  documents = Documents(plain, kHost, options);
  EXPECT_TRUE(PodOf(documents)["containers"][0]["securityContext"]["privileged"].as<bool>());
}

TEST(Render, ClassesSelectTheirOfferAndEnforcementAndCarryTheirParameters) {
  auto documents = Documents(kHost);
  const YAML::Node shared = documents["DeviceClass/vnic-shared"];
  const std::string attributes = "device.attributes['vnic.tranche.dev']";
  EXPECT_EQ(Selector(shared), "device.driver == 'vnic.tranche.dev' &&\n'offer' in " + attributes + " && " + attributes +
                                  ".offer == 'shared' &&\n'enforcement' in " + attributes + " && " + attributes + ".enforcement in ['strong', 'hard']");
  EXPECT_EQ(shared["spec"]["config"][0]["opaque"]["driver"].as<std::string>(), "vnic.tranche.dev");
  EXPECT_EQ(shared["spec"]["config"][0]["opaque"]["parameters"]["direction"].as<std::string>(), "both");
  const config::HostConfiguration configuration = Parse(kHost);
  EXPECT_EQ(shared["metadata"]["annotations"]["tranche.dev/policy-version"].as<std::string>(),
            config::SnapshotPolicy(configuration.drivers[0], configuration.drivers[0].classes[0]).version);
  const YAML::Node whole = documents["DeviceClass/vnic-whole"];
  EXPECT_THAT(Selector(whole), Not(HasSubstr("enforcement")));
  EXPECT_FALSE(whole["spec"]["config"].IsDefined());
}

TEST(Render, PoliciesFailClosedAndDeny) {
  auto documents = Documents(kHost);
  int policies = 0;
  for (const auto& [name, document] : documents) {
    if (!name.starts_with("ValidatingAdmissionPolicy/")) continue;
    ++policies;
    EXPECT_EQ(document["spec"]["failurePolicy"].as<std::string>(), "Fail") << name;
    const std::string plain = name.substr(name.find('/') + 1);
    const YAML::Node binding = documents["ValidatingAdmissionPolicyBinding/" + plain];
    EXPECT_EQ(binding["spec"]["policyName"].as<std::string>(), plain);
    EXPECT_THAT(Strings(binding["spec"]["validationActions"]), ElementsAre("Deny"));
    const YAML::Node rule = document["spec"]["matchConstraints"]["resourceRules"][0];
    if (plain == "tranche-slices") {
      EXPECT_THAT(Strings(rule["operations"]), UnorderedElementsAre("CREATE", "UPDATE", "DELETE"));
      EXPECT_THAT(Variable(document, "byHost"), HasSubstr("'system:serviceaccount:tranche-system:tranche-node'"));
    } else {
      EXPECT_THAT(Strings(rule["resources"]), UnorderedElementsAre("resourceclaims", "resourceclaimtemplates"));
      EXPECT_THAT(Strings(rule["operations"]), ElementsAre("CREATE"));
    }
  }
  EXPECT_EQ(policies, 4);
  const YAML::Node namespaces = documents["ValidatingAdmissionPolicy/tranche-class-namespaces"];
  EXPECT_EQ(Variable(namespaces, "permitted"),
            "{\n  'vnic-shared': request.namespace in ['default'] || request.namespace.matches('^(?:team-.*)$'),\n  'vnic-whole': true,\n  "
            "'fake-nobody': request.namespace in ['nobody']\n}");
  EXPECT_EQ(Variable(documents["ValidatingAdmissionPolicy/tranche-claim-parameters"], "allowed"),
            "{\n  'vnic.tranche.dev': {'vnic-shared': ['mtu', 'interfaceName'], 'vnic-whole': []},\n  'fake.tranche.dev': {'fake-nobody': "
            "[]}\n}");
}

TEST(Render, NamespaceOfTheHostReachesEveryPlaceThatNamesIt) {
  RenderOptions options;
  options.namespace_name = "devices";
  auto documents = Documents(kHost, options);
  EXPECT_TRUE(documents.contains("Namespace/devices"));
  for (const char* name : {"ServiceAccount/tranche-node", "ConfigMap/tranche-host", "DaemonSet/tranche-node"}) {
    EXPECT_EQ(documents[name]["metadata"]["namespace"].as<std::string>(), "devices") << name;
  }
  EXPECT_EQ(documents["ClusterRoleBinding/tranche-node"]["subjects"][0]["namespace"].as<std::string>(), "devices");
  EXPECT_THAT(Variable(documents["ValidatingAdmissionPolicy/tranche-slices"], "byHost"), HasSubstr("'system:serviceaccount:devices:tranche-node'"));
}

TEST(Render, PartsAreChosenByName) {
  RenderOptions options;
  options.parts = {"classes", "namespace"};
  auto documents = Documents(kHost, options);
  std::vector<std::string> names;
  for (const auto& [name, document] : documents) names.push_back(name);
  EXPECT_THAT(names, UnorderedElementsAre("Namespace/tranche-system", "DeviceClass/vnic-shared", "DeviceClass/vnic-whole", "DeviceClass/fake-nobody"));
}

// Names that want to leave their quotes, in YAML and in CEL.
TEST(Render, HostileNamesStayNames) {
  config::HostConfiguration configuration = Parse(kHost);
  config::ClassConfiguration& device_class = configuration.drivers[0].classes[0];
  const std::string hostile = "x'] || true\n} // \\ \" : # {{ \u2028 \x7f \x01";
  device_class.claim_parameters = {hostile, "yes", "1e3", "", "- a", "&x", "*x", "!!int 3"};
  device_class.namespaces = {"a' || true || 'b", "team-*", "no.dots*", "(?i).*", "", "plain"};
  device_class.name = "on";
  auto documents = Documents(configuration, kHost);
  ASSERT_TRUE(documents.contains("DeviceClass/on"));
  const std::string allowed = Variable(documents["ValidatingAdmissionPolicy/tranche-claim-parameters"], "allowed");
  EXPECT_THAT(allowed, HasSubstr("'x\\'] || true\\u000a} // \\\\ \" : # {{ \u2028 \\u007f \\u0001', 'yes', '1e3', ''"));
  EXPECT_THAT(Variable(documents["ValidatingAdmissionPolicy/tranche-class-namespaces"], "permitted"),
              HasSubstr("'on': request.namespace in ['plain'] || request.namespace.matches('^(?:team-.*)$'),"));
  const std::string message = documents["ValidatingAdmissionPolicy/tranche-claim-parameters"]["spec"]["validations"][0]["message"].as<std::string>();
  EXPECT_THAT(message, Not(HasSubstr("\n"))) << "the API server refuses a message of several lines";
}

template <typename Value>
RenderOptions With(Value RenderOptions::*member, std::type_identity_t<Value> value) {
  RenderOptions options;
  options.*member = std::move(value);
  return options;
}

TEST(Render, WrongOptionsAreRefusedWithTheOption) {
  const auto refusal = [](const RenderOptions& options, const std::string& text = kHost) {
    const absl::StatusOr<json::array> objects = RenderObjects(Parse(kHost), text, options);
    return objects.ok() ? std::string("accepted") : std::string(objects.status().message());
  };
  EXPECT_THAT(refusal(With(&RenderOptions::namespace_name, "a/b")), HasSubstr("--namespace"));
  EXPECT_THAT(refusal(With(&RenderOptions::image, "a b")), HasSubstr("--image"));
  EXPECT_THAT(refusal(With(&RenderOptions::image, "")), HasSubstr("--image"));
  EXPECT_THAT(refusal(With(&RenderOptions::kubernetes, "1.33")), HasSubstr("1.34"));
  EXPECT_THAT(refusal(With(&RenderOptions::kubernetes, "2.0")), HasSubstr("--kubernetes"));
  EXPECT_THAT(refusal(With(&RenderOptions::kubernetes, "1.37rc")), HasSubstr("--kubernetes"));
  EXPECT_THAT(refusal(With(&RenderOptions::kubelet_root, "var")), HasSubstr("--kubelet-root"));
  EXPECT_THAT(refusal(With(&RenderOptions::kubelet_root, "/")), HasSubstr("--kubelet-root"));
  EXPECT_THAT(refusal(With(&RenderOptions::capabilities, {"CAP_SYS_ADMIN"})), HasSubstr("--capability"));
  EXPECT_THAT(refusal(With(&RenderOptions::parts, {"policy"})), HasSubstr("policies"));
  EXPECT_THAT(refusal(RenderOptions{}, "\xff\xfe"), HasSubstr("UTF-8"));
}

TEST(Render, PolicyThatCouldExhaustItsBudgetIsRefused) {
  config::HostConfiguration configuration = Parse(kHost);
  std::vector<std::string>& namespaces = configuration.drivers[0].classes[0].namespaces;
  for (int i = 0; i < 20000; ++i) namespaces.push_back("namespace-" + std::to_string(i));
  const absl::StatusOr<json::array> objects = RenderObjects(configuration, kHost, {});
  ASSERT_FALSE(objects.ok());
  EXPECT_THAT(std::string(objects.status().message()), HasSubstr("globs"));
}

// deploy/manifests is the output of the command that its README names.
TEST(Render, DeployedManifestsAreWhatRenderPrints) {
  const std::string root = std::string(TRANCHE_SOURCE_DIRECTORY) + "/deploy/";
  const auto read = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string text = read(root + "examples/host.yaml");
  const absl::StatusOr<json::array> objects = RenderObjects(Parse(text), text, {});
  ASSERT_TRUE(objects.ok()) << objects.status();
  EXPECT_EQ(read(root + "manifests/tranche.yaml"), RenderYaml(*objects)) << "make it again: tranchectl render --config deploy/examples/host.yaml";
}

TEST(Install, ReplacesInOneStepAndLeavesAloneWhatIsTheSame) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("tranche-install-" + NewUuid());
  std::filesystem::create_directory(directory);
  const std::string source = directory / "hook", destination = directory / "plugins/driver/bin/hook";
  const auto write = [](const std::string& path, const std::string& text) { std::ofstream(path) << text; };
  const auto read = [](const std::string& path) { return ReadFile(path, 1000).value_or("absent"); };
  const auto inode = [&] {
    struct stat status {};
    return ::stat(destination.c_str(), &status) == 0 ? status.st_ino : 0;
  };
  write(source, "one");
  EXPECT_EQ(InstallFiles({source + "=" + destination}, Format::kTable), kSuccess);
  EXPECT_EQ(read(destination), "one");
  EXPECT_NE(std::filesystem::status(destination).permissions() & std::filesystem::perms::others_exec, std::filesystem::perms::none);
  const auto first = inode();
  EXPECT_EQ(InstallFiles({source + "=" + destination}, Format::kTable), kSuccess);
  EXPECT_EQ(inode(), first) << "an equal file was written again";
  std::ifstream running(destination);
  write(source, "two");
  EXPECT_EQ(InstallFiles({source + "=" + destination}, Format::kTable), kSuccess);
  EXPECT_EQ(read(destination), "two");
  std::string old;
  running >> old;
  EXPECT_EQ(old, "one") << "a program that runs was overwritten";
  for (const std::string& wrong :
       {std::string("hook"), "=" + destination, source + "=", source + "=relative", source + "=/", directory.string() + "/absent=" + destination}) {
    EXPECT_EQ(InstallFiles({wrong}, Format::kTable), kFailure) << wrong;
  }
  EXPECT_EQ(read(destination), "two");
  std::filesystem::remove_all(directory);
}

TEST(YamlWriter, GivesEveryTextBackAsText) {
  json::array texts;
  for (const char* text :
       {"",     " ",     "a",     "yes",     "No",     "NULL",    "~",      "1",    "1.5",      "1e3",       "0x1f",       "2026-11-30", "12:30",
        "a: b", "a:",    "# a",   "a # b",   "- a",    "-",       "--",     "---",  "...",      "[a]",       "{a}",        "&a",         "*a",
        "!a",   "%a",    "@a",    "`a`",     "'a'",    "\"a\"",   "|",      ">",    "?",        "? a",       "a\nb",       "a\nb\n",     "a\n\n",
        "\na",  " a\nb", "a \nb", "a\n b\n", "a\n\nb", "a\tb\nc", "a\r\nb", "\\",   "ü",        "\u2028",    "\u0085",     "\ufeff",     "\xF0\x9F\x98\x80",
        "\x01", "\x7f",  "true",  ".inf",    "=",      "<<",      "$(A)",   "/x/y", "--config", "a\n---\nb", "a\n# c\nb\n"}) {
    texts.emplace_back(text);
  }
  json::object object{{"texts", texts}, {"empty", json::object()}, {"none", json::array()}, {"yes", 1}, {"a: b", true}};
  object["nested"] = json::array{json::object{{"k", json::array{json::object{{"x", nullptr}}}}}, json::array{json::array{"a"}, "b"}};
  const std::string yaml = WriteYaml(object);
  const YAML::Node node = YAML::Load(yaml);
  ASSERT_EQ(node["texts"].size(), texts.size()) << yaml;
  for (std::size_t i = 0; i < texts.size(); ++i) { EXPECT_EQ(node["texts"][i].as<std::string>(), texts[i].as_string().c_str()) << yaml; }
  EXPECT_TRUE(node["empty"].IsMap());
  EXPECT_TRUE(node["none"].IsSequence());
  EXPECT_EQ(node["yes"].as<int>(), 1);
  EXPECT_TRUE(node["a: b"].as<bool>());
  EXPECT_TRUE(node["nested"][0]["k"][0]["x"].IsNull());
  EXPECT_EQ(node["nested"][1][0][0].as<std::string>(), "a");
  EXPECT_EQ(node["nested"][1][1].as<std::string>(), "b");
}

}  // namespace
}  // namespace tranche::ctl
