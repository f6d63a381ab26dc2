// What guards: DeviceClasses and the ValidatingAdmissionPolicies for slices, namespaces of a class, parameters of a claim, and admin
// access.
//
// Every policy fails closed: it is evaluated inside the API server, so nothing can be unreachable, and an expression only fails on an
// object that was made to break it. Costs grow with the requests of one claim (at most 32, with 8 alternatives each), not with the number
// of classes: what depends on classes is a map that is computed once an object (variables are evaluated once, and only when used).
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "base/text.h"
#include "ctl/render_parts.h"

namespace tranche::ctl {
namespace {

namespace json = boost::json;

constexpr char kGroup[] = "resource.k8s.io";
constexpr char kPolicyApi[] = "admissionregistration.k8s.io/v1";

using Variables = std::vector<std::pair<std::string_view, std::string>>;

struct Check {
  std::string expression, message, message_expression;  // one of the two messages
};

struct Policy {
  std::string_view name;
  std::vector<std::string> resources, operations;
  Variables variables;
  std::vector<Check> checks;
};

json::array Encode(const Policy& policy) {
  json::array variables, checks;
  for (const auto& [name, expression] : policy.variables) variables.push_back(json::object{{"name", name}, {"expression", expression}});
  for (const Check& check : policy.checks) {
    json::object encoded{{"expression", check.expression}, {"reason", "Forbidden"}};
    if (!check.message.empty()) encoded["message"] = check.message;
    if (!check.message_expression.empty()) encoded["messageExpression"] = check.message_expression;
    checks.push_back(std::move(encoded));
  }
  // Only v1 is named: the API server converts requests of other versions before it asks (matchPolicy Equivalent).
  const json::object rule{
      {"apiGroups", json::array{kGroup}}, {"apiVersions", json::array{"v1"}}, {"operations", Texts(policy.operations)}, {"resources", Texts(policy.resources)}};
  return {json::object{{"apiVersion", kPolicyApi},
                       {"kind", "ValidatingAdmissionPolicy"},
                       {"metadata", Metadata(policy.name, "")},
                       {"spec", json::object{{"failurePolicy", "Fail"},
                                             {"matchConstraints", json::object{{"matchPolicy", "Equivalent"}, {"resourceRules", json::array{rule}}}},
                                             {"variables", std::move(variables)},
                                             {"validations", std::move(checks)}}}},
          json::object{{"apiVersion", kPolicyApi},
                       {"kind", "ValidatingAdmissionPolicyBinding"},
                       {"metadata", Metadata(policy.name, "")},
                       {"spec", json::object{{"policyName", policy.name}, {"validationActions", json::array{"Deny"}}}}}};
}

// {'a': x, 'b': y}, an entry a line.
std::string CelMap(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string map;
  for (const auto& [key, value] : entries) Append(map, map.empty() ? "{\n  " : ",\n  ", CelText(key), ": ", value);
  return map.empty() ? "{}" : map + "\n}";
}

// Requests of a claim or of a template's claim. Untyped, because the two kinds nest differently.
Variables ClaimVariables() {
  return {{"spec", "dyn(object).spec.?spec.orValue(dyn(object).spec)"}, {"requests", "variables.spec.?devices.?requests.orValue([])"}};
}

Policy ClaimPolicy(std::string_view name) {
  // The spec of a claim never changes; an update may have to remove a finalizer from a claim that was made under other rules.
  return {name, {"resourceclaims", "resourceclaimtemplates"}, {"CREATE"}, ClaimVariables(), {}};
}

void ForEachClass(const config::HostConfiguration& configuration,
                  const std::function<void(const config::DriverConfiguration&, const config::ClassConfiguration&)>& visit) {
  for (const config::DriverConfiguration& driver : configuration.drivers) {
    for (const config::ClassConfiguration& device_class : driver.classes) visit(driver, device_class);
  }
}

Policy SlicePolicy(const RenderInput& input) {
  const std::string account = Cat("system:serviceaccount:", input.options.namespace_name, ":", kNodeName);
  Policy policy{"tranche-slices", {"resourceslices"}, {"CREATE", "UPDATE", "DELETE"}, {}, {}};
  policy.variables = {
      {"slice", "request.operation == 'DELETE' ? oldObject : object"},
      {"ours", Cat("variables.slice.spec.driver in ", CelList(DriverNames(input.configuration)))},
      {"byHost", Cat("request.userInfo.username == ", CelText(account))},
      {"tokenNodes", "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'].orValue([])"},
      {"sliceNode", "variables.slice.spec.?nodeName.orValue('')"},
      {"byControlPlane",
       "request.userInfo.username in [\n"
       "  'system:kube-controller-manager',\n"
       "  'system:serviceaccount:kube-system:generic-garbage-collector',\n"
       "  'system:serviceaccount:kube-system:namespace-controller',\n"
       "  'system:serviceaccount:kube-system:storage-version-migrator-controller'\n"
       "]"},
      {"byKubelet", "request.userInfo.username == 'system:node:' + variables.sliceNode"},
      {"byAdministrator", "authorizer.group('resource.k8s.io').resource('deviceclasses').check('create').allowed()"},
      {"sameSpec", "request.operation == 'UPDATE' && object.spec == oldObject.spec"},
  };
  policy.checks = {
      {"!variables.byHost || variables.ours", "the node host writes slices of its own drivers only", ""},
      {"!variables.byHost || (variables.tokenNodes.size() == 1 && variables.sliceNode != '' && variables.tokenNodes[0] == "
       "variables.sliceNode)",
       "the node host writes slices of its own node only, with the token of its pod", ""},
      {"!variables.ours || variables.byHost ||\n"
       "(request.operation == 'DELETE' && (variables.byKubelet || variables.byControlPlane || variables.byAdministrator)) ||\n"
       "(variables.sameSpec && (variables.byControlPlane || variables.byAdministrator))",
       "", Cat("'slices of driver ' + variables.slice.spec.driver + ' are written only by ' + ", CelText(account))},
  };
  return policy;
}

Policy NamespacePolicy(const RenderInput& input) {
  std::vector<std::pair<std::string, std::string>> permitted;
  ForEachClass(input.configuration, [&](const auto&, const config::ClassConfiguration& device_class) {
    permitted.emplace_back(device_class.name, CelNamespaces(device_class.namespaces));
  });
  Policy policy = ClaimPolicy("tranche-class-namespaces");
  policy.variables.emplace_back("permitted", CelMap(permitted));
  policy.variables.emplace_back("refused",
                                "variables.requests.filter(r,\n"
                                "  has(r.exactly) && !variables.permitted[?r.exactly.deviceClassName].orValue(true)\n"
                                ").map(r, string(r.exactly.deviceClassName))");
  policy.variables.emplace_back("refusedAlternatives",
                                "variables.requests.filter(r,\n"
                                "  r.?firstAvailable.orValue([]).exists(s, !variables.permitted[?s.deviceClassName].orValue(true))\n"
                                ").map(r, string(r.name))");
  policy.checks = {
      {"variables.refused.size() == 0", "",
       "'namespace ' + request.namespace + ' may not use device class ' + variables.refused.join(', ') + "
       "'; ask the cluster operator to add it to namespaces.allow of the class'"},
      {"variables.refusedAlternatives.size() == 0", "",
       "'namespace ' + request.namespace + ' may not use a device class of firstAvailable in request ' + "
       "variables.refusedAlternatives.join(', ') + "
       "'; ask the cluster operator to add it to namespaces.allow of the class'"},
  };
  return policy;
}

// "vnic-shared: mtu; gpu: none", bounded: for people.
std::string AllowedParameters(const RenderInput& input) {
  constexpr std::size_t kMaxBytes = 1000;
  std::string text;
  ForEachClass(input.configuration, [&](const auto&, const config::ClassConfiguration& device_class) {
    if (text.size() > kMaxBytes) return;
    Append(text, text.empty() ? "" : "; ", device_class.name, ":");
    if (device_class.claim_parameters.empty()) text += " none";
    for (const std::string& name : device_class.claim_parameters) Append(text, " ", json::serialize(json::string(name)));
  });
  return text.size() > kMaxBytes ? "see claimParameters of the class in the host configuration" : text;
}

// A class's parameters are for its own driver, so a driver's entry lists its classes only. `reaches`: whether configuration c is for the
// request.
std::string ParametersAllowed(std::string_view device_class, std::string_view reaches) {
  const std::string allowed = Cat("variables.allowed[c.opaque.driver][", device_class, "]");
  return Cat("!(", device_class, " in variables.allowed[c.opaque.driver]) || !(", reaches, ") ||\n    (c.opaque.parameters.size() <= ", allowed,
             ".size() && c.opaque.parameters.all(p, p in ", allowed, "))");
}

Policy ParameterPolicy(const RenderInput& input) {
  std::vector<std::pair<std::string, std::string>> drivers;
  for (const config::DriverConfiguration& driver : input.configuration.drivers) {
    std::string classes;
    for (const config::ClassConfiguration& device_class : driver.classes) {
      Append(classes, classes.empty() ? "" : ", ", CelText(device_class.name), ": ", CelList(device_class.claim_parameters));
    }
    drivers.emplace_back(driver.name, Cat("{", classes, "}"));
  }
  Policy policy = ClaimPolicy("tranche-claim-parameters");
  policy.variables.emplace_back("allowed", CelMap(drivers));
  policy.variables.emplace_back("configurations",
                                "variables.spec.?devices.?config.orValue([]).filter(c, has(c.opaque) && c.opaque.driver in variables.allowed)");
  const std::string message =
      Cat("the configuration of the claim sets a parameter that its device class does not leave to claims; it may set ", AllowedParameters(input));
  policy.checks = {
      {Cat("variables.configurations.all(c, variables.requests.all(r, !has(r.exactly) ||\n    ",
           ParametersAllowed("r.exactly.deviceClassName", "c.?requests.orValue([]).size() == 0 || r.name in c.requests"), "))"),
       message, ""},
      {Cat("variables.configurations.all(c, variables.requests.all(r, r.?firstAvailable.orValue([]).all(s,\n    ",
           ParametersAllowed("s.deviceClassName", "c.?requests.orValue([]).size() == 0 || r.name in c.requests || r.name + '/' + s.name in c.requests"), ")))"),
       message, ""},
  };
  return policy;
}

Policy AdminPolicy(const RenderInput& input) {
  std::vector<std::string> all, shared;
  ForEachClass(input.configuration, [&](const config::DriverConfiguration& driver, const config::ClassConfiguration& device_class) {
    all.push_back(device_class.name);
    for (const config::OfferConfiguration& offer : driver.offers) {
      if (offer.name == device_class.offer && offer.mode == Mode::kShare) shared.push_back(device_class.name);
    }
  });
  Policy policy = ClaimPolicy("tranche-admin-access");
  policy.variables.emplace_back("adminClasses", "variables.requests.filter(r, r.?exactly.?adminAccess.orValue(false)).map(r, r.exactly.deviceClassName)");
  policy.variables.emplace_back("namespaceLabelled", "namespaceObject.metadata.?labels[?'resource.kubernetes.io/admin-access'].orValue('') == 'true'");
  policy.checks = {
      {Cat("variables.adminClasses.all(n, !(n in ", CelList(shared), "))"),
       "a share holds capacity and admin access is counted nowhere: ask for the device class without adminAccess", ""},
      {Cat("variables.namespaceLabelled || variables.adminClasses.all(n, !(n in ", CelList(all), "))"),
       "adminAccess needs a namespace with the label resource.kubernetes.io/admin-access: \"true\"", ""},
  };
  return policy;
}

std::string Selector(const config::DriverConfiguration& driver, const config::ClassConfiguration& device_class) {
  // An attribute that a device lacks would be an error, which stops the scheduling of the pod, so its presence is asked first.
  const std::string attributes = Cat("device.attributes[", CelText(driver.name), "]");
  std::string selector =
      Cat("device.driver == ", CelText(driver.name), " &&\n'offer' in ", attributes, " && ", attributes, ".offer == ", CelText(device_class.offer));
  if (device_class.minimum_enforcement == Enforcement::kNone) return selector;
  std::vector<std::string> levels;
  for (const Enforcement level : {Enforcement::kSoft, Enforcement::kStrong, Enforcement::kHard}) {
    if (level >= device_class.minimum_enforcement) levels.emplace_back(EnforcementName(level));
  }
  return Cat(selector, " &&\n'enforcement' in ", attributes, " && ", attributes, ".enforcement in ", CelList(levels));
}

json::object EncodeClass(const config::DriverConfiguration& driver, const config::ClassConfiguration& device_class) {
  json::object metadata = Metadata(device_class.name, "");
  metadata["annotations"] = json::object{{"tranche.dev/policy-version", config::SnapshotPolicy(driver, device_class).version}};
  json::object spec{{"selectors", json::array{json::object{{"cel", json::object{{"expression", Selector(driver, device_class)}}}}}}};
  boost::system::error_code error;
  const json::value parameters = json::parse(device_class.parameters, error);
  if (!error && parameters.is_object() && !parameters.get_object().empty()) {
    spec["config"] = json::array{json::object{{"opaque", json::object{{"driver", driver.name}, {"parameters", parameters}}}}};
  }
  return {{"apiVersion", "resource.k8s.io/v1"}, {"kind", "DeviceClass"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
}

}  // namespace

json::array RenderClasses(const RenderInput& input) {
  json::array classes;
  ForEachClass(input.configuration, [&](const auto& driver, const auto& device_class) { classes.push_back(EncodeClass(driver, device_class)); });
  return classes;
}

json::array RenderPolicies(const RenderInput& input) {
  json::array policies;
  for (const Policy& policy : {SlicePolicy(input), NamespacePolicy(input), ParameterPolicy(input), AdminPolicy(input)}) {
    for (json::value& object : Encode(policy)) policies.push_back(std::move(object));
  }
  return policies;
}

std::string CelText(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      literal += escape.data();
    } else {
      literal += c;
    }
  }
  return literal + "'";
}

std::string CelList(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) Append(list, list.empty() ? "" : ", ", CelText(text));
  return Cat("[", list, "]");
}

std::string CelNamespaces(const std::vector<std::string>& globs) {
  std::vector<std::string> names;
  std::string pattern;
  for (const std::string& glob : globs) {
    if (glob == "*") return "true";
    const auto possible = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '*'; };
    if (glob.empty() || !std::all_of(glob.begin(), glob.end(), possible)) continue;
    if (glob.find('*') == std::string::npos) {
      names.push_back(glob);
      continue;
    }
    std::string expression;
    for (const char c : glob) expression += c == '*' ? std::string(".*") : std::string(1, c);
    Append(pattern, pattern.empty() ? "" : "|", expression);
  }
  const std::string listed = names.empty() ? "" : Cat("request.namespace in ", CelList(names));
  const std::string matched = pattern.empty() ? "" : Cat("request.namespace.matches(", CelText(Cat("^(?:", pattern, ")$")), ")");
  if (listed.empty() && matched.empty()) return "false";
  if (listed.empty() || matched.empty()) return listed + matched;
  return Cat(listed, " || ", matched);
}

}  // namespace tranche::ctl
