// backend new NAME DIR: the SDK's template under another name. Prints and returns the exit code.
#pragma once

#include <string>
#include <string_view>

#include "ctl/output.h"

namespace tranche::ctl {

// sdk/template/, built in; the generated list ends with an empty path.
struct TemplateFile {
  std::string_view path, text;
};
extern const TemplateFile kTemplateFiles[];

// `directory` is made, or must be empty. Nothing is left when a file cannot be written.
int NewBackend(const std::string& name, const std::string& directory, Format format);

}  // namespace tranche::ctl
