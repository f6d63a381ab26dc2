// A backend for boards whose memory can be given whole or in slices. Read it from top to bottom: that is the order in which the host calls it. The
// contract of each method is in <tranche/backend.h>; the rules that `tranche-conform` checks are in docs/backend-rules.md.
#include <exception>
#include <string>
#include <vector>

#include <tranche/backend.hpp>

#include "hardware.h"
#include "lock.h"

namespace fake_accelerator {
namespace {

namespace sdk = tranche::sdk;
namespace json = boost::json;

class Backend {
 public:
  // The manifest's: tranche_add_backend() defines both.
  static constexpr const char* kName = TRANCHE_BACKEND_NAME;
  static constexpr const char* kVersion = TRANCHE_BACKEND_VERSION;

  // `config` is the operator's and valid against config.schema.json. `runtime_directory` is this backend's on this node, for lock files: hosts that
  // overlap share it. A real backend needs no more of it; this one keeps its imaginary hardware there.
  Backend(sdk::Host host, const json::object& config, const std::string& runtime_directory)
      : host_(host),
        lock_file_(runtime_directory + "/lock"),
        hardware_(static_cast<int>(config.at("boards").as_int64()), config.at("memoryMiB").as_int64() << 20, runtime_directory + "/hardware") {}

  // What the node has. The identity decides whether two discoveries mean the same device; the name only addresses it.
  std::vector<sdk::Device> Discover(sdk::Call&) {
    std::vector<sdk::Device> devices;
    for (const Board& board : hardware_.Boards()) {
      sdk::Device device;
      device.name = NameOf(board.serial);
      device.identity["serial"] = board.serial;
      device.modes = {"whole", "share"};
      device.attributes["model"] = std::string("Fake Accelerator");
      // "strong": the hardware itself refuses what goes beyond a slice. Say "none" where nothing does: the host then never offers shares of it.
      sdk::Capacity& memory = device.capacities["memory"];
      memory.value = board.memory_bytes;
      memory.unit = "bytes";
      memory.shareable = true;
      memory.enforcement = "strong";
      device.metadata = {"model"};
      devices.push_back(std::move(device));
    }
    return devices;
  }

  // Applies one share, reads it back, and says what is really in force. The same key again: bring it to what is asked, and say so again.
  sdk::Share PrepareOne(sdk::Call& call, const sdk::PrepareRequest& request) {
    Slice wanted;
    wanted.tag = TagOf(request.key);
    wanted.serial = SerialOf(request.physical);
    wanted.exclusive = request.mode == "whole";
    wanted.memory_bytes = wanted.exclusive ? BoardOf(wanted.serial).memory_bytes : MemoryOf(request);
    const Lock lock(lock_file_, call);  // what is free must stay free until it is taken
    return Describe(request.key, hardware_.Set(wanted), wanted.memory_bytes);
  }

  // An unknown key is success: it was released before. `share.state` is what PrepareOne returned, the board: it may have left the configuration since.
  // Without it, as when the host's record was damaged, the hardware is searched.
  void UnprepareOne(sdk::Call& call, const sdk::ShareRef& share) {
    const std::string tag = TagOf(share.key);
    const Lock lock(lock_file_, call);
    if (!share.state.empty()) return hardware_.Remove(share.state, tag);
    for (const Slice& slice : hardware_.Slices()) {
      if (slice.tag == tag) hardware_.Remove(slice.serial, tag);
    }
  }

  // What the hardware has now, read from it: after a crash the host compares this with its store.
  std::vector<sdk::Share> ListPrepared(sdk::Call& call) {
    std::vector<sdk::Share> shares;
    const Lock lock(lock_file_, call);
    for (const Slice& slice : hardware_.Slices()) shares.push_back(Describe(KeyOf(slice), slice, slice.memory_bytes));
    return shares;
  }

  // The limit in force, asked from the hardware.
  sdk::Share Verify(sdk::Call& call, const sdk::ShareRef& share) {
    const std::string tag = TagOf(share.key);
    const Lock lock(lock_file_, call);
    for (const Slice& slice : hardware_.Slices()) {
      if (slice.tag == tag) return Describe(share.key, slice, slice.memory_bytes);
    }
    throw sdk::Error(TRANCHE_NOT_FOUND, "no slice is set for claim " + share.key.claim_uid);
  }

  // Optional: one verdict per device. Report from a thread of your own as well, when the hardware tells you.
  void CheckHealth(sdk::Call&) {
    for (const Board& board : hardware_.Boards()) {
      sdk::Health health;
      health.device = NameOf(board.serial);
      health.identity["serial"] = board.serial;
      health.source = "poll";
      health.sequence = ++sequence_;
      health.observed_at = host_.Now();
      health.verdict = "healthy";
      host_.ReportHealth(health);
    }
  }

 private:
  static std::string TagOf(const sdk::Key& key) { return json::serialize(sdk::ToJson(key)); }
  // A slice with our mark and no key of ours is an error, not a gap: the host would repair by a list with gaps.
  static sdk::Key KeyOf(const Slice& slice) {
    try {
      return sdk::KeyFrom(json::parse(slice.tag));
    } catch (const std::exception& error) { throw sdk::Error(TRANCHE_DATA_LOSS, "the tag of a slice of " + slice.serial + " cannot be read: " + error.what()); }
  }
  static std::string NameOf(const std::string& serial) { return "board-" + serial.substr(serial.rfind('-') + 1); }

  std::string SerialOf(const std::string& name) const {
    for (const Board& board : hardware_.Boards()) {
      if (NameOf(board.serial) == name) return board.serial;
    }
    throw sdk::Error(TRANCHE_NOT_FOUND, "there is no device " + name + "; it was removed since the claim was allocated");
  }

  Board BoardOf(const std::string& serial) const {
    for (const Board& board : hardware_.Boards()) {
      if (board.serial == serial) return board;
    }
    throw sdk::Error(TRANCHE_NOT_FOUND, "board " + serial + " was removed");
  }

  // What the claim gets of a shared board. A claim for a whole one names no amounts.
  static std::int64_t MemoryOf(const sdk::PrepareRequest& request) {
    const auto found = request.consumed.find("memory");
    if (found == request.consumed.end()) throw sdk::Error(TRANCHE_INVALID_ARGUMENT, "the share names no memory");
    return found->second.value;
  }

  sdk::Share Describe(const sdk::Key& key, const Slice& slice, std::int64_t requested) const {
    sdk::Share share;
    share.key = key;
    sdk::Limit& memory = share.limits.emplace_back();
    memory.capacity = "memory";
    memory.requested = requested;
    memory.in_force = slice.memory_bytes;
    memory.enforcement = "strong";
    memory.verified_at = host_.Now();
    memory.mechanism = "slice of " + slice.serial;
    share.usage.emplace_back().capacity = "memory";  // used: 0, as this hardware counts nothing
    share.state = slice.serial;
    // What the container gets. A real device adds share.edits.device_nodes; the operator's allowEdits decides what is let through.
    share.edits.env = {"FAKE_ACCELERATOR_SERIAL=" + slice.serial, "FAKE_ACCELERATOR_MEMORY=" + std::to_string(slice.memory_bytes)};
    return share;
  }

  const sdk::Host host_;
  const std::string lock_file_;
  const Hardware hardware_;
  std::uint64_t sequence_ = 0;
};

}  // namespace
}  // namespace fake_accelerator

using FakeAcceleratorBackend = fake_accelerator::Backend;
TRANCHE_BACKEND(FakeAcceleratorBackend)
