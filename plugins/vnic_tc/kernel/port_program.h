// The program at a share's port (clsact ingress of its host end): drops what does not carry the share's MAC and IPv4 address,
// marks the rest with the share's class. Written as instructions, so that neither clang nor libbpf is needed.
//
// Dropped: VLAN-tagged frames, another source MAC, another IPv4 source, ARP whose sender MAC or IP is another, every other ethertype (IPv6
// included), frames too short to tell. The mark is skb->priority = class handle, which HTB honours before any filter and a tenant cannot
// set: a veth resets it to 0 on the way.
#pragma once

#include <cstdint>
#include <vector>

#include <linux/bpf.h>

#include "plugins/vnic_tc/kernel/address.h"
#include "plugins/vnic_tc/kernel/result.h"

namespace vnic {

std::vector<bpf_insn> PortProgram(const Mac& mac, std::uint32_t address, std::uint32_t class_handle);
// The program's file descriptor; the caller closes it.
Result<int> LoadPortProgram(const Mac& mac, std::uint32_t address, std::uint32_t class_handle);

}  // namespace vnic
