#include "hardware.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace fake_accelerator {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".slice";

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

// FNV-1a: a file name from any tag.
std::string Hardware::PathOf(const std::string& tag) const {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : tag) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return directory_ + "/" + std::to_string(hash) + kSuffix;
}

std::vector<Slice> Hardware::Slices() const {
  std::vector<Slice> slices;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.path().extension() != kSuffix) continue;
    Slice slice;
    std::ifstream file(entry.path());
    if (file >> slice.serial >> slice.memory_bytes >> slice.exclusive && std::getline(file >> std::ws, slice.tag)) slices.push_back(slice);
  }
  return slices;
}

Slice Hardware::Set(const Slice& slice) const {
  std::int64_t free = memory_bytes_;
  for (const Slice& other : Slices()) {
    if (other.serial != slice.serial || other.tag == slice.tag) continue;
    if (other.exclusive || slice.exclusive) throw std::runtime_error("board " + slice.serial + " is in use");
    free -= other.memory_bytes;
  }
  if (slice.memory_bytes > free) throw std::runtime_error("board " + slice.serial + " has " + std::to_string(free) + " bytes left");
  // Whole or not at all: another process never sees half a slice.
  const std::string path = PathOf(slice.tag), part = path + "." + std::to_string(::getpid());
  std::ofstream(part) << slice.serial << " " << slice.memory_bytes << " " << slice.exclusive << " " << slice.tag << "\n";
  fs::rename(part, path);
  for (const Slice& now : Slices()) {
    if (now.tag == slice.tag) return now;
  }
  throw std::runtime_error("board " + slice.serial + " did not keep the slice");
}

void Hardware::Remove(const std::string& tag) const { fs::remove(PathOf(tag)); }

}  // namespace fake_accelerator
