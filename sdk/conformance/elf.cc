#include "conformance/elf.h"

#include <elf.h>

#include <cstring>

namespace tranche::conform {
namespace {

// Reads within bounds; what lies outside the file reads as nothing.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}
  template <class T>
  std::optional<T> At(std::uint64_t offset) const {
    if (offset > file_.size() || file_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  std::string TextAt(std::uint64_t offset) const {
    if (offset >= file_.size()) return "";
    const std::string_view rest = file_.substr(offset);
    return std::string(rest.substr(0, rest.find('\0')));
  }

 private:
  std::string_view file_;
};

void ReadSymbol(const Reader& reader, const Elf64_Sym& symbol, std::uint64_t strings, ElfFacts& facts) {
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  if (binding == STB_LOCAL || symbol.st_name == 0) return;
  std::string name = reader.TextAt(strings + symbol.st_name);
  if (symbol.st_shndx == SHN_UNDEF) {
    facts.undefined.push_back(std::move(name));
    return;
  }
  if (ELF64_ST_VISIBILITY(symbol.st_other) == STV_HIDDEN || symbol.st_shndx == SHN_ABS) return;
  if (binding == STB_GNU_UNIQUE) facts.unique.push_back(name);
  facts.exports.push_back(std::move(name));
}

void ReadDynamic(const Reader& reader, const Elf64_Shdr& section, std::uint64_t strings, ElfFacts& facts) {
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
    const auto entry = reader.At<Elf64_Dyn>(section.sh_offset + at);
    if (!entry.has_value() || entry->d_tag == DT_NULL) return;
    if (entry->d_tag == DT_NEEDED) facts.needed.push_back(reader.TextAt(strings + entry->d_un.d_val));
    if (entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH) facts.run_paths.push_back(reader.TextAt(strings + entry->d_un.d_val));
  }
}

}  // namespace

ElfAnswer ReadElf(std::string_view file) {
  const Reader reader(file);
  const auto header = reader.At<Elf64_Ehdr>(0);
  if (!header.has_value() || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {std::nullopt, "is no ELF file"};
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return {std::nullopt, "is no 64-bit little-endian ELF file"};
  if (header->e_type != ET_DYN) return {std::nullopt, "is no shared object"};
  ElfFacts facts;
  facts.machine = header->e_machine;
  bool symbols = false;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = reader.At<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section.has_value()) return {std::nullopt, "is truncated: its section table lies outside the file"};
    if (section->sh_type != SHT_DYNSYM && section->sh_type != SHT_DYNAMIC) continue;
    const auto strings = reader.At<Elf64_Shdr>(header->e_shoff + std::uint64_t{section->sh_link} * sizeof(Elf64_Shdr));
    if (!strings.has_value() || section->sh_offset > file.size() || section->sh_size > file.size() - section->sh_offset) {
      return {std::nullopt, "is truncated: its dynamic tables lie outside the file"};
    }
    if (section->sh_type == SHT_DYNAMIC) {
      ReadDynamic(reader, *section, strings->sh_offset, facts);
      continue;
    }
    symbols = true;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
      ReadSymbol(reader, *reader.At<Elf64_Sym>(section->sh_offset + at), strings->sh_offset, facts);
    }
  }
  if (!symbols) return {std::nullopt, "has no dynamic symbol table"};
  return {std::move(facts), ""};
}

std::string_view MachineName(std::uint16_t machine) {
  if (machine == EM_X86_64) return "x86_64";
  if (machine == EM_AARCH64) return "aarch64";
  return "";
}

}  // namespace tranche::conform
