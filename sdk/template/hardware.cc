#include "hardware.h"

#include <filesystem>
#include <fstream>

#include <tranche/backend.hpp>

namespace fake_accelerator {
namespace {

namespace fs = std::filesystem;
namespace sdk = tranche::sdk;

constexpr char kSuffix[] = ".slice";  // the mark by which this backend knows its own

Slice Read(const fs::path& path) {
  Slice slice;
  std::ifstream file(path);
  if (file >> slice.serial >> slice.memory_bytes >> slice.exclusive && std::getline(file >> std::ws, slice.tag)) return slice;
  throw sdk::Error(TRANCHE_DATA_LOSS, "the slice in " + path.string() + " cannot be read; find out who has it, then remove it");
}

}  // namespace

Hardware::Hardware(int boards, std::int64_t memory_bytes, std::string directory)
    : boards_(boards), memory_bytes_(memory_bytes), directory_(std::move(directory)) {
  fs::create_directories(directory_);
}

std::vector<Board> Hardware::Boards() const {
  std::vector<Board> boards;
  for (int i = 0; i < boards_; ++i) boards.push_back({"FAKE-" + std::to_string(i), memory_bytes_});
  return boards;
}

// FNV-1a: a file name from any text.
std::string Hardware::PathOf(const std::string& serial, const std::string& tag) const {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : serial + " " + tag) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return directory_ + "/" + std::to_string(hash) + kSuffix;
}

std::vector<Slice> Hardware::Slices() const {
  std::vector<Slice> slices;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.path().extension() == kSuffix) slices.push_back(Read(entry.path()));
  }
  return slices;
}

Slice Hardware::Set(const Slice& slice) const {
  std::int64_t free = memory_bytes_;
  for (const Slice& other : Slices()) {
    if (other.serial != slice.serial || other.tag == slice.tag) continue;
    if (other.exclusive || slice.exclusive) throw sdk::Error(TRANCHE_RESOURCE_EXHAUSTED, "board " + slice.serial + " is in use");
    free -= other.memory_bytes;
  }
  // The host tries again: another share may end.
  if (slice.memory_bytes > free) throw sdk::Error(TRANCHE_RESOURCE_EXHAUSTED, "board " + slice.serial + " has " + std::to_string(free) + " bytes left");
  // Whole or not at all: a crash never leaves half a slice.
  const std::string path = PathOf(slice.serial, slice.tag), part = path + ".part";
  std::ofstream file(part);
  file << slice.serial << " " << slice.memory_bytes << " " << slice.exclusive << " " << slice.tag << "\n";
  file.close();
  if (!file) throw sdk::Error(TRANCHE_UNAVAILABLE, part + " cannot be written");
  fs::rename(part, path);
  return Read(path);
}

void Hardware::Remove(const std::string& serial, const std::string& tag) const { fs::remove(PathOf(serial, tag)); }

}  // namespace fake_accelerator
