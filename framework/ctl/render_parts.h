// Pieces of render; internal to it. render_node.cc makes what runs, render_policies.cc what guards.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "config/config.h"
#include "ctl/render.h"

namespace tranche::ctl {

inline constexpr std::string_view kNodeName = "tranche-node";  // DaemonSet, ServiceAccount, ClusterRole and its binding
inline constexpr std::string_view kConfigMapName = "tranche-host";
inline constexpr int kGranularStatusMinor = 36;  // resourceclaims/driver is checked from here on

struct RenderInput {
  const config::HostConfiguration& configuration;
  std::string_view text;
  const RenderOptions& options;
  int kubernetes_minor;
};

// metadata with the common labels; no namespace for "".
boost::json::object Metadata(std::string_view name, std::string_view namespace_name);
boost::json::array Texts(const std::vector<std::string>& texts);
std::vector<std::string> DriverNames(const config::HostConfiguration& configuration);

boost::json::object RenderNamespace(const RenderInput& input);
boost::json::array RenderRbac(const RenderInput& input);
boost::json::object RenderConfigMap(const RenderInput& input);
boost::json::object RenderDaemonSet(const RenderInput& input);
boost::json::array RenderClasses(const RenderInput& input);
boost::json::array RenderPolicies(const RenderInput& input);

// What the backends of a configuration are known to need on a node.
struct Privileges {
  bool host_network = false;
  std::vector<std::string> capabilities;  // sorted
  std::vector<std::string> unknown;       // libraries that nothing is known of
};
Privileges PrivilegesOf(const RenderInput& input);

// A hook program of the image and where containers' runtimes find it on the host.
struct HookFile {
  std::string source, destination;
};
std::vector<HookFile> HooksOf(const config::HostConfiguration& configuration);

// Text as a CEL string literal, and lists of them.
std::string CelText(std::string_view text);
std::string CelList(const std::vector<std::string>& texts);
// A CEL condition on request.namespace: one of the globs matches. What no namespace can be named is left out.
std::string CelNamespaces(const std::vector<std::string>& globs);

}  // namespace tranche::ctl
