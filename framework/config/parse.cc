// YAML tree → HostConfiguration. Each Read function reports what is wrong with its own part; crosscheck.cc compares the parts.
#include <algorithm>
#include <cctype>

#include "base/ids.h"
#include "base/text.h"
#include "config/config.h"
#include "config/parts.h"

namespace tranche::config {
namespace {

constexpr std::string_view kApiVersion = "tranche.dev/v1alpha1";
constexpr std::string_view kKind = "HostConfiguration";
constexpr std::size_t kMaxBackendConfigBytes = 256 << 10;
constexpr std::size_t kMaxParametersBytes = 10 << 10;  // opaque parameters of resource.k8s.io

void ExpectText(const Place& at, std::string_view wanted) {
  const std::string text = at.Text(Cat("write ", wanted));
  if (!text.empty() && text != wanted) at.Fail(Cat("\"", text, "\" is not supported"), Cat("write ", wanted));
}

std::string ReadLabel(const Place& at, std::string_view example) {
  const std::string remedy = Cat("use up to 63 of a-z, 0-9 and '-', such as ", example);
  std::string name = at.Text(remedy);
  if (!name.empty() && !IsDnsLabel(name)) at.Fail(Cat("\"", name, "\" is not a DNS label"), remedy);
  return name;
}

std::string ReadDriverName(const Place& at) {
  const std::string_view remedy = "use a DNS name of at most 63 characters that starts with a letter, such as vnic.tranche.dev";
  std::string name = at.Text(remedy);
  // It becomes the vendor of CDI names, which must start with a letter.
  const bool starts_with_letter = !name.empty() && name[0] >= 'a' && name[0] <= 'z';
  if (!name.empty() && (!IsDnsSubdomain(name) || name.size() > 63 || !starts_with_letter)) {
    at.Fail(Cat("\"", name, "\" cannot be the name of a driver"), remedy);
  }
  return name;
}

std::string ReadLibrary(const Place& at) {
  const std::string_view remedy = "name the library without directory and .so, such as vnic_tc";
  std::string name = at.Text(remedy);
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  if (!plain) at.Fail(Cat("\"", name, "\" is not the name of a library in the backend directory"), remedy);
  return name;
}

Isolation ReadIsolation(const Place& at) {
  if (!at.present()) return Isolation::kProcess;
  const std::string text = at.Text("write process or in-process");
  if (text == "in-process") return Isolation::kInProcess;
  if (!text.empty() && text != "process") at.Fail(Cat("\"", text, "\" is not an isolation"), "write process or in-process");
  return Isolation::kProcess;
}

std::vector<std::string> ReadPathPrefixes(const Place& at) {
  for (const Place& item : at.Items()) {
    const std::string path = item.present() && item.node()->kind == YamlNode::Kind::kScalar ? item.node()->text : "/";
    const bool climbs = Cat(path, "/").find("/../") != std::string::npos;
    if (!path.starts_with('/') || climbs) item.Fail(Cat("\"", path, "\" is not an absolute path"), "start it with / and leave '..' out");
  }
  return at.present() && at.node()->kind == YamlNode::Kind::kSequence ? at.Texts() : std::vector<std::string>{};
}

AllowEdits ReadAllowEdits(const Place& at) {
  AllowEdits allow;
  if (!at.present()) return allow;
  at.ExpectKeys({"deviceNodes", "mounts", "hooks", "env", "netDevices"});
  allow.device_nodes = ReadPathPrefixes(at["deviceNodes"]);
  allow.mounts = ReadPathPrefixes(at["mounts"]);
  allow.hooks = ReadPathPrefixes(at["hooks"]);
  allow.env = at["env"].Texts();
  allow.net_devices = at["netDevices"].Flag().value_or(false);
  return allow;
}

BackendConfiguration ReadBackend(const Place& at) {
  BackendConfiguration backend;
  backend.line = at.line();
  at.ExpectKeys({"name", "library", "isolation", "config", "allowEdits"});
  backend.name = ReadLabel(at["name"], "uplink");
  backend.library = ReadLibrary(at["library"]);
  backend.isolation = ReadIsolation(at["isolation"]);
  backend.config = at["config"].JsonObject(kMaxBackendConfigBytes);
  backend.allow_edits = ReadAllowEdits(at["allowEdits"]);
  return backend;
}

Mode ReadMode(const Place& at) {
  const std::string text = at.Text("write whole, partition or share");
  const absl::StatusOr<Mode> mode = ParseMode(text);
  if (mode.ok()) return *mode;
  if (!text.empty()) at.Fail(Cat("\"", text, "\" is not a mode"), Suggest(text, {"whole", "partition", "share"}));
  return Mode::kShare;  // allows every other key, so that one mistake is one error
}

Enforcement ReadEnforcement(const Place& at) {
  if (!at.present()) return Enforcement::kNone;
  const std::string text = at.Text("write none, soft, strong or hard");
  const absl::StatusOr<Enforcement> level = ParseEnforcement(text);
  if (level.ok()) return *level;
  if (!text.empty()) at.Fail(Cat("\"", text, "\" is not an enforcement level"), Suggest(text, {"none", "soft", "strong", "hard"}));
  return Enforcement::kNone;
}

std::map<std::string, CapacityConfiguration> ReadCapacities(const Place& at, Mode mode) {
  std::map<std::string, CapacityConfiguration> capacities;
  for (const auto& [name, member] : at.Members()) {
    if (!IsQualifiedName(name)) member.Fail(Cat("\"", name, "\" is not the name of a capacity"), "use a name that the backend publishes, such as bandwidth");
    CapacityConfiguration capacity = ReadCapacity(member);
    if (capacity.policy.has_value() && mode != Mode::kShare) {
      member.Fail(Cat("a request policy needs mode: share, this offer is ", ModeName(mode)),
                  "remove default, min, max, step and validValues, or set mode: share");
    }
    capacities.emplace(name, std::move(capacity));
  }
  return capacities;
}

OfferConfiguration ReadOffer(const Place& at) {
  OfferConfiguration offer;
  offer.line = at.line();
  at.ExpectKeys({"name", "backend", "mode", "capacity"});
  offer.name = ReadLabel(at["name"], "shared");
  offer.backend = at["backend"].Text("name one of backends");
  offer.mode = ReadMode(at["mode"]);
  offer.capacity = ReadCapacities(at["capacity"], offer.mode);
  return offer;
}

std::vector<std::string> ReadNamespaces(const Place& at) {
  if (!at.present()) return {"*"};
  at.ExpectKeys({"allow"});
  const Place allow = at["allow"];
  if (!allow.present()) {
    allow.Fail("is missing", "list the namespaces, such as allow: [\"team-*\"]; \"*\" allows all");
    return {};
  }
  for (const Place& item : allow.Items()) {
    const std::string glob = item.present() ? item.node()->text : "*";
    if (glob.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-*") != std::string::npos) {
      item.Fail(Cat("\"", glob, "\" matches no namespace"), "use a-z, 0-9, '-' and '*'");
    }
  }
  if (allow.node()->kind != YamlNode::Kind::kSequence) return {};
  std::vector<std::string> globs = allow.Texts();
  if (globs.empty()) allow.Fail("allows no namespace", "list at least one, or remove the class");
  return globs;
}

ClassConfiguration ReadClass(const Place& at) {
  ClassConfiguration device_class;
  device_class.line = at.line();
  at.ExpectKeys({"name", "offer", "namespaces", "minimumEnforcement", "parameters", "claimParameters"});
  const std::string_view remedy = "use a DNS name such as vnic-shared; it names the DeviceClass";
  device_class.name = at["name"].Text(remedy);
  if (!device_class.name.empty() && !IsDnsSubdomain(device_class.name)) at["name"].Fail(Cat("\"", device_class.name, "\" is not a DNS name"), remedy);
  device_class.offer = at["offer"].Text("name one of this driver's offers");
  device_class.namespaces = ReadNamespaces(at["namespaces"]);
  device_class.minimum_enforcement = ReadEnforcement(at["minimumEnforcement"]);
  device_class.parameters = at["parameters"].JsonObject(kMaxParametersBytes);
  device_class.claim_parameters = at["claimParameters"].Texts();
  return device_class;
}

DriverConfiguration ReadDriver(const Place& at) {
  DriverConfiguration driver;
  driver.line = at.line();
  at.ExpectKeys({"name", "offers", "classes"});
  driver.name = ReadDriverName(at["name"]);
  for (const Place& item : at["offers"].Items()) driver.offers.push_back(ReadOffer(item));
  for (const Place& item : at["classes"].Items()) driver.classes.push_back(ReadClass(item));
  return driver;
}

HostConfiguration ReadHost(const Place& at) {
  HostConfiguration configuration;
  at.ExpectKeys({"apiVersion", "kind", "backends", "drivers"});
  ExpectText(at["apiVersion"], kApiVersion);
  ExpectText(at["kind"], kKind);
  for (const Place& item : at["backends"].Items()) configuration.backends.push_back(ReadBackend(item));
  for (const Place& item : at["drivers"].Items()) configuration.drivers.push_back(ReadDriver(item));
  return configuration;
}

}  // namespace

ParseOutcome ParseConfigurationDetailed(std::string_view yaml) {
  YamlOutcome document = ParseYaml(yaml);
  if (!document.errors.empty()) return {std::nullopt, std::move(document.errors)};
  std::vector<ParseError> errors;
  const Place root(&document.root, document.root.line, "", &errors);
  CheckDuplicateKeys(root);
  HostConfiguration configuration = ReadHost(root);
  CheckAcross(configuration, root);
  std::stable_sort(errors.begin(), errors.end(), [](const ParseError& a, const ParseError& b) { return a.line < b.line; });
  if (!errors.empty()) return {std::nullopt, std::move(errors)};
  return {std::move(configuration), {}};
}

}  // namespace tranche::config
