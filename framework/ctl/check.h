// check CONFIG and backend inspect FILE: what can be said of a file without a host. Each prints and returns the exit code.
#pragma once

#include <string>

#include "ctl/output.h"

namespace tranche::ctl {

// kFailure with every error and its line when the file would be refused.
int CheckConfiguration(const std::string& path, const std::string& backend_directory, Format format);
// The stages of the loader and what each found, up to those that run none of the library; with `load` all of them, in a child process that a
// faulty library may end. kFailure when it would be refused.
int InspectBackend(const std::string& path, bool load, Format format);

}  // namespace tranche::ctl
