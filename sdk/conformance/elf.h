// What a shared object's dynamic section says, read from the file without opening it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tranche::conform {

struct ElfFacts {
  std::uint16_t machine = 0;                 // EM_…
  std::vector<std::string> exports, unique;  // defined global or weak symbols; those with STB_GNU_UNIQUE
  std::vector<std::string> undefined;
  std::vector<std::string> needed, run_paths;
};

// A 64-bit little-endian shared object whose tables lie inside the file, or the reason why it is not one.
struct ElfAnswer {
  std::optional<ElfFacts> facts;
  std::string why;
};
ElfAnswer ReadElf(std::string_view file);

std::string_view MachineName(std::uint16_t machine);  // as uname -m says it; "" for an unknown one

}  // namespace tranche::conform
