// install SOURCE=DESTINATION...: copies hook programs of the image to where the node's runtime finds them. Each replaces its predecessor in
// one step, so that a container that starts meanwhile runs the old or the new one; what is the same already stays untouched.
#pragma once

#include <string>
#include <vector>

#include "ctl/output.h"

namespace tranche::ctl {

int InstallFiles(const std::vector<std::string>& pairs, Format format);

}  // namespace tranche::ctl
