#include "runner/library.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include <dlfcn.h>

#include <boost/dll/shared_library.hpp>

namespace tranche::runner {
namespace {

constexpr std::uint32_t kMaxTableBytes = 64 * 1024;
constexpr std::size_t kMaxNameBytes = 63;
constexpr std::size_t kMaxVersionBytes = 64;
constexpr std::uint32_t kMustKnowFlags = 0xffff0000u;

std::string BoundedText(const char* text, std::size_t limit) { return std::string(text, ::strnlen(text, limit)); }

std::string Hex(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x", value);
  return text.data();
}

std::string MissingMember(const tranche_backend_api& table) {
  const std::array<std::pair<bool, const char*>, 8> required = {{{table.name != nullptr, "name"},
                                                                 {table.version != nullptr, "version"},
                                                                 {table.create != nullptr, "create"},
                                                                 {table.destroy != nullptr, "destroy"},
                                                                 {table.discover != nullptr, "discover"},
                                                                 {table.prepare != nullptr, "prepare"},
                                                                 {table.unprepare != nullptr, "unprepare"},
                                                                 {table.list_prepared != nullptr, "list_prepared"}}};
  for (const auto& [present, name] : required) {
    if (!present) return name;
  }
  return "";
}

// What is wrong with the head; only head and magic may be read before the size is known to be good.
std::string WrongHead(const tranche_backend_api* table) {
  if (table == nullptr) return "the table is null";
  if (reinterpret_cast<std::uintptr_t>(table) % alignof(tranche_backend_api) != 0) return "the table is not aligned";
  if (table->magic != TRANCHE_BACKEND_MAGIC) return "wrong magic: this is not a backend table";
  const tranche_head head = table->head;
  if (head.major != TRANCHE_ABI_MAJOR) {
    return "table of ABI major " + std::to_string(head.major) + ", this entry returns " + std::to_string(TRANCHE_ABI_MAJOR);
  }
  constexpr std::uint32_t kSmallest = offsetof(tranche_backend_api, self_test) + sizeof(void*);  // all of 1.0
  if (head.struct_size < kSmallest || head.struct_size > kMaxTableBytes || head.struct_size % 8 != 0) {
    return "table of " + std::to_string(head.struct_size) + " bytes; it must be a multiple of 8 from " + std::to_string(kSmallest) + " to " +
           std::to_string(kMaxTableBytes);
  }
  return "";
}

struct Entry {
  std::string problem;
  tranche_backend_entry function = nullptr;
};

Entry OpenEntry(const std::string& path) {
  boost::dll::fs::error_code error;
  boost::dll::shared_library library;
  const auto mode = static_cast<boost::dll::load_mode::type>(static_cast<unsigned int>(boost::dll::load_mode::rtld_now) |
                                                             static_cast<unsigned int>(boost::dll::load_mode::rtld_local) | RTLD_NODELETE);
  try {
    library.load(boost::dll::fs::path(path), mode, error);
    if (error) {
      const char* detail = ::dlerror();  // Boost.DLL's own code says nothing
      return {std::string("cannot be opened: ") + (detail == nullptr ? "unknown reason" : detail), nullptr};
    }
    return {"", &library.get<const tranche_backend_api*(const tranche_head*)>(TRANCHE_BACKEND_ENTRY)};
  } catch (const std::exception& exception) { return {std::string("cannot be opened: ") + exception.what(), nullptr}; } catch (...) {
    return {"cannot be opened: an exception of unknown type", nullptr};
  }
}

}  // namespace

Table NormaliseTable(const tranche_backend_api* table, std::string_view expected_name) {
  Table normalised;
  normalised.problem = WrongHead(table);
  if (!normalised.problem.empty()) return normalised;
  tranche_backend_api copy{};
  std::memcpy(&copy, table, std::min<std::size_t>(sizeof copy, table->head.struct_size));
  if (const std::string missing = MissingMember(copy); !missing.empty()) {
    normalised.problem = "required member " + missing + " is null";
  } else if (const std::string name = BoundedText(copy.name, kMaxNameBytes + 1); name != expected_name) {
    normalised.problem = "the table is of backend " + name + ", the manifest says " + std::string(expected_name);
  } else if (const std::uint32_t unknown = copy.flags & kMustKnowFlags; unknown != 0) {
    normalised.problem = "needs flags that this host does not know: " + Hex(unknown) + "; a newer host is needed";
  }
  if (!normalised.problem.empty()) return normalised;
  copy.head.struct_size = sizeof copy;
  normalised.api = copy;
  return normalised;
}

OpenedLibrary OpenLibrary(const std::string& path, std::string_view name) {
  OpenedLibrary opened;
  const auto refuse = [&](const char* stage, std::string why) {
    opened.stage = stage;
    opened.problem = std::move(why);
    return opened;
  };
  Entry entry = OpenEntry(path);
  if (entry.function == nullptr) return refuse("dlopen", std::move(entry.problem));
  const tranche_head host{static_cast<std::uint32_t>(sizeof(tranche_host_api)), TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  const tranche_backend_api* table = nullptr;
  try {
    table = entry.function(&host);
  } catch (...) { return refuse("entry", std::string(TRANCHE_BACKEND_ENTRY) + " threw an exception"); }
  if (table == nullptr) {
    return refuse("entry", "declines this host (ABI " + std::to_string(TRANCHE_ABI_MAJOR) + "." + std::to_string(TRANCHE_ABI_MINOR) +
                               "); a newer host or an older library is needed");
  }
  Table normalised = NormaliseTable(table, name);
  if (!normalised.problem.empty()) return refuse("table", std::move(normalised.problem));
  opened.version = BoundedText(normalised.api.version, kMaxVersionBytes);
  opened.abi_minor = table->head.minor;
  opened.table_bytes = table->head.struct_size;
  opened.api = normalised.api;
  return opened;
}

}  // namespace tranche::runner
