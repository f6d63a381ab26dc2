// The hardware, as this backend sees it. Replace hardware.cc with calls of your vendor library: what is behind these functions must outlive the
// process, as limits in a device do. Here a directory of files stands for the device's memory. Callers hold the lock of lock.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fake_accelerator {

struct Board {
  std::string serial;
  std::int64_t memory_bytes = 0;
};

// One slice of a board's memory that the hardware keeps apart for one user.
struct Slice {
  std::string tag;  // who it belongs to, at most 4 KiB: the hardware stores it with the slice
  std::string serial;
  std::int64_t memory_bytes = 0;
  bool exclusive = false;  // the whole board
};

class Hardware {
 public:
  Hardware(int boards, std::int64_t memory_bytes, std::string directory);

  std::vector<Board> Boards() const;
  // Of every board, also of those that are not configured any more. Throws DATA_LOSS when one cannot be read: nobody knows then what is free.
  std::vector<Slice> Slices() const;
  // Makes the slice, or changes the one with this tag. Returns what the hardware has now. Throws RESOURCE_EXHAUSTED when it does not fit.
  Slice Set(const Slice& slice) const;
  // Absent is fine.
  void Remove(const std::string& serial, const std::string& tag) const;

 private:
  std::string PathOf(const std::string& serial, const std::string& tag) const;
  const int boards_;
  const std::int64_t memory_bytes_;
  const std::string directory_;
};

}  // namespace fake_accelerator
