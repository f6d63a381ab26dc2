// The demo's private network: a node with one uplink, a peer behind it, and pods, each a network namespace whose name starts with a prefix
// that only this run uses. Set up with `ip`; destroyed with everything in it.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proof/proof.h"

namespace tranche::demo {

inline constexpr char kUplink[] = "up0";
inline constexpr char kPeerAddress[] = "10.99.0.1";
inline constexpr char kSubnet[] = "10.99.0.0/24";

class PrivateNetwork {
 public:
  // Nothing is made yet.
  PrivateNetwork(const std::string& prefix, std::size_t pods);
  ~PrivateNetwork() { Destroy(); }
  PrivateNetwork(const PrivateNetwork&) = delete;
  PrivateNetwork& operator=(const PrivateNetwork&) = delete;

  absl::Status Create() const;
  void Destroy() const;  // repeatable, from any thread

  const std::string& node() const { return node_; }
  const std::string& peer() const { return peer_; }
  const std::vector<std::string>& pods() const { return pods_; }
  proof::Peer ProofPeer() const { return {peer_, kPeerAddress}; }

 private:
  std::string node_, peer_;
  std::vector<std::string> pods_;
};

// The same uplink with a plain bridge and no shares: what the set-up carries, and what neighbours do to each other, without shaping.
class PlainBridge {
 public:
  explicit PlainBridge(const PrivateNetwork& network) : network_(network) {}
  ~PlainBridge() { Remove(); }
  PlainBridge(const PlainBridge&) = delete;
  PlainBridge& operator=(const PlainBridge&) = delete;

  absl::Status Create() const;
  // One FIFO of this rate for everything that leaves by the uplink.
  absl::Status AddFifo(std::int64_t bits_per_second) const;
  void Remove() const;
  // Pods as shares without limits of their own; `limits` says what they will get (the flood is sized by it).
  proof::Network ProofNetwork(const std::vector<std::int64_t>& limits) const;

 private:
  const PrivateNetwork& network_;
};

// Runs one program; an error carries what it wrote.
absl::StatusOr<std::string> Tool(const std::vector<std::string>& arguments);
// Names of the interfaces of a namespace, without "lo".
absl::StatusOr<std::vector<std::string>> Interfaces(const std::string& network_namespace);

}  // namespace tranche::demo
