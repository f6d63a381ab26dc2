// render: the Kubernetes objects of one host configuration, so that classes, policies and permissions in the cluster say what the file
// says.
//
//   tranchectl render --config host.yaml | kubectl apply --server-side -f -
//
// Parts: namespace, rbac, config, daemonset, classes, policies. docs/deploy.md explains them. Pure but for RenderConfiguration; equal
// input, equal output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/json/fwd.hpp>

#include "config/config.h"
#include "ctl/output.h"

namespace tranche::ctl {

struct RenderOptions {
  std::string file;  // host configuration
  std::string namespace_name = "tranche-system";
  std::string image = "tranche.dev/tranched:dev";
  std::string kubernetes = "1.37";  // "1.37", "v1.37.2"; at least 1.34
  std::string kubelet_root = "/var/lib/kubelet";
  std::vector<std::string> capabilities;          // Linux capabilities besides those that the backends are known to need
  bool host_network = false, privileged = false;  // more than the backends are known to need
  std::vector<std::string> parts;                 // empty: all
};

inline constexpr std::string_view kRenderParts[] = {"namespace", "rbac", "config", "daemonset", "classes", "policies"};

// Every object, in the order in which they are to be created. `text` is the configuration as it is in the file. InvalidArgument names the
// option.
absl::StatusOr<boost::json::array> RenderObjects(const config::HostConfiguration& configuration, std::string_view text, const RenderOptions& options);
std::vector<std::string> RenderNotes(const config::HostConfiguration& configuration, const RenderOptions& options);
std::string RenderYaml(const boost::json::array& objects);

// The command: prints YAML, or one List as JSON; notes and errors to standard error. Exit code.
int RenderConfiguration(const RenderOptions& options, Format format);

}  // namespace tranche::ctl
