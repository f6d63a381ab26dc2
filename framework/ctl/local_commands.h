// tranchectl local: what the API server, scheduler, kubelet and container runtime do, on a local directory. Each prints and returns the exit code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "ctl/output.h"
#include "ctl/target.h"

namespace tranche::ctl {

struct ClaimName {
  std::string namespace_name, name;
};
// "NAMESPACE/NAME".
absl::StatusOr<ClaimName> ParseClaimName(std::string_view text);

// `files`: manifests; "-" is standard input.
int LocalApply(const Target& target, Format format, const std::vector<std::string>& files);
// The others take NAMESPACE/NAME, several in a row; a failure does not stop the rest.
int LocalAllocate(const Target& target, Format format, const std::vector<std::string>& claims);
int LocalPrepare(const Target& target, Format format, const std::vector<std::string>& claims);
int LocalUnprepare(const Target& target, Format format, const std::vector<std::string>& claims);
int LocalDelete(const Target& target, Format format, const std::vector<std::string>& claims);
// `netns`: a name under /run/netns, a path, or a process id.
int LocalAttach(const Target& target, Format format, const std::string& claim, const std::string& netns);
// The claims of the directory and how far each has come.
int LocalList(const Target& target, Format format);

}  // namespace tranche::ctl
