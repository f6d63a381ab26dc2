// Kubeconfigs: any text is read or refused with a message that names the file; what is read can be used as headers and URLs.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kube/kubeconfig.h"

namespace {
bool Clean(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tranche::kube::AccessSource> source = tranche::kube::ParseKubeconfig(text, "dir/file", "");
  if (!source.ok()) {
    if (!absl::IsInvalidArgument(source.status()) || source.status().message().find("dir/file:") != 0) std::abort();
    return 0;
  }
  const tranche::kube::Access& access = source->access;
  if (access.server.find("://") == std::string::npos || access.server.ends_with('/')) std::abort();
  if (!Clean(access.server) || !Clean(access.bearer_token) || !Clean(access.username) || !Clean(access.password) || !Clean(access.proxy_url)) std::abort();
  for (const auto& [name, value] : access.headers) {
    if (!Clean(name) || !Clean(value) || name.find(':') != std::string::npos) std::abort();
  }
  return 0;
}
