// A private network for kernel tests: the calling process moves into a new network namespace that has an uplink `up0` with a peer behind it
// in a namespace of its own. Everything vanishes with the processes.
#pragma once

#include <string>

#include "support/process.h"

namespace tranche::test {

// True once per process: enters the namespace (needs root). False where that is not possible: skip loudly.
bool EnterPrivateNetwork();
// The process's namespace gets up0 ↔ eth0 in a peer namespace (address 10.99.0.1/24). Call after EnterPrivateNetwork.
bool MakeUplink();

// What there is of ours in the kernel: interfaces of shares and bridges, traffic-control classes on up0, as text to compare and print.
struct KernelState {
  int share_links = 0;   // host ends (vs…)
  int parked_links = 0;  // pod ends still here (vp…)
  int classes = 0;       // HTB classes of shares on up0 (neither the parent nor the default class)
  int bridges = 0;
  std::string text;
};
KernelState ReadKernelState();

}  // namespace tranche::test
