// Kubeconfig files: one context of one file. `exec` plugins and auth providers would run programs as this process and are refused, as is anything
// else that would silently change whose rights are used.
#pragma once

#include <string_view>

#include <absl/status/statusor.h>

#include "kube/access.h"

namespace tranche::kube {

// `file` is used in messages and as the base of relative paths; nothing is read. Empty context: current-context.
// InvalidArgument: "FILE:LINE: field: what; remedy". Secrets never appear in messages.
absl::StatusOr<AccessSource> ParseKubeconfig(std::string_view text, std::string_view file, std::string_view context);

}  // namespace tranche::kube
