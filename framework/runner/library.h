// The first time that code of a vendor's library runs: opened, its entry called, its table checked and brought into this host's own shape. The
// same steps in the host (isolation: in-process) and in tranche-runner.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tranche/backend.h>

namespace tranche::runner {

struct Table {
  std::string problem;        // "" when `api` may be called
  tranche_backend_api api{};  // what the library does not have is null
};
// Magic, major, size, required members, name, flags. Reads no more than the table says it has.
Table NormaliseTable(const tranche_backend_api* table, std::string_view expected_name);

struct OpenedLibrary {
  std::string stage, problem;   // "dlopen" | "entry" | "table" and why; both "" when it may be used
  std::string version;          // what the library says of itself
  std::uint16_t abi_minor = 0;  // the library's own
  std::uint32_t table_bytes = 0;
  tranche_backend_api api{};
};
// RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE: a library is never unloaded. Does not throw.
OpenedLibrary OpenLibrary(const std::string& path, std::string_view name);

}  // namespace tranche::runner
