// The container-runtime player: does with a prepared claim what a runtime with CDI does when it creates a container, as far as local mode needs it:
// resolves the CDI device ids and runs their createRuntime hooks for a network namespace. Device nodes and mounts are not made; the environment is
// returned. Needs the right to enter the namespace. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "local/directory.h"
#include "local/kubelet.h"
#include "model/share.h"

namespace tranche::local {

struct Attachment {
  std::vector<std::string> cdi_device_ids;
  std::vector<std::string> hooks;        // paths of those that ran, in order
  std::vector<std::string> environment;  // what the container would get
};

// The edits of each id, from the specs in `cdi_directory`. NotFound names the id.
absl::StatusOr<std::vector<ContainerEdits>> ResolveCdiDevices(const std::string& cdi_directory, const std::vector<std::string>& ids);

class Runtime {
 public:
  explicit Runtime(Directory directory) : directory_(std::move(directory)) {}

  // `netns`: the path of a network namespace ("/run/netns/pod-a", "/proc/42/ns/net") or a process id in decimal. A holder process in the namespace stands
  // for the container while the hooks run. FailedPrecondition with the hook's own words when a hook fails; later hooks then do not run.
  absl::StatusOr<Attachment> Attach(const std::string& namespace_name, const std::string& claim, const std::string& netns) const;

 private:
  const Directory directory_;
};

}  // namespace tranche::local
