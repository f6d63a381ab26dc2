#include "plugins/vnic_tc/kernel/port_program.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vnic {
namespace {

// The frame is copied to the stack at fp-62: then the IPv4 header (offset 14) and the source address (26) are 4-aligned, the source MAC
// (6) is 8-aligned, as the verifier wants.
constexpr int kFrame = -62;
constexpr int kIpv4Bytes = 34, kArpBytes = 42;
constexpr std::uint8_t kContext = BPF_REG_6;

class Assembler {
 public:
  void Emit(int code, int destination, int source, int offset, std::int32_t immediate) {
    bpf_insn instruction{};
    instruction.code = static_cast<std::uint8_t>(code);
    instruction.dst_reg = static_cast<std::uint8_t>(destination) & 0xfU;
    instruction.src_reg = static_cast<std::uint8_t>(source) & 0xfU;
    instruction.off = static_cast<std::int16_t>(offset);
    instruction.imm = immediate;
    program_.push_back(instruction);
  }
  void Copy(int destination, int source) { Emit(BPF_ALU64 | BPF_MOV | BPF_X, destination, source, 0, 0); }
  // 32 bits, the upper half becomes zero.
  void Set(int destination, std::uint32_t value) { Emit(BPF_ALU | BPF_MOV | BPF_K, destination, 0, 0, static_cast<std::int32_t>(value)); }
  void Load(int size, int destination, int source, int offset) { Emit(BPF_LDX | BPF_MEM | size, destination, source, offset, 0); }
  void Store(int size, int destination, int source, int offset) { Emit(BPF_STX | BPF_MEM | size, destination, source, offset, 0); }

  // Drops unless the frame has `expected` at `offset` (a value as it lies in memory).
  void Require(int size, int offset, std::uint32_t expected) {
    Load(size, BPF_REG_2, BPF_REG_10, kFrame + offset);
    Set(BPF_REG_3, expected);
    JumpToDrop(BPF_JMP | BPF_JNE | BPF_X, BPF_REG_2, BPF_REG_3);
  }
  // Copies the first `bytes` of the frame to the stack; drops a shorter one.
  void LoadFrame(int bytes) {
    Copy(BPF_REG_1, kContext);
    Set(BPF_REG_2, 0);
    Copy(BPF_REG_3, BPF_REG_10);
    Emit(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_3, 0, 0, kFrame);
    Set(BPF_REG_4, static_cast<std::uint32_t>(bytes));
    Emit(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_load_bytes);
    Set(BPF_REG_3, 0);
    JumpToDrop(BPF_JMP | BPF_JNE | BPF_X, BPF_REG_0, BPF_REG_3);
  }
  void JumpToDrop(int code, int left, int right) {
    drops_.push_back(program_.size());
    Emit(code, left, right, 0, 0);
  }
  // A forward jump whose target Land sets.
  std::size_t Jump(int code, int left, int right) {
    Emit(code, left, right, 0, 0);
    return program_.size() - 1;
  }
  void Land(std::size_t jump) { program_[jump].off = static_cast<std::int16_t>(program_.size() - jump - 1); }
  void Return(std::uint32_t action) {
    Set(BPF_REG_0, action);
    Emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  }
  std::vector<bpf_insn> Finish() {
    for (std::size_t jump : drops_) Land(jump);
    Return(TC_ACT_SHOT);
    return std::move(program_);
  }

 private:
  std::vector<bpf_insn> program_;
  std::vector<std::size_t> drops_;
};

template <typename T>
T InMemory(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

std::vector<bpf_insn> PortProgram(const Mac& mac, std::uint32_t address, std::uint32_t class_handle) {
  const auto mac_head = InMemory<std::uint32_t>(mac.data());
  const auto mac_tail = InMemory<std::uint16_t>(mac.data() + 4);
  const std::uint32_t network_address = htonl(address);
  const std::uint8_t* ip = reinterpret_cast<const std::uint8_t*>(&network_address);

  Assembler code;
  code.Copy(kContext, BPF_REG_1);
  code.Load(BPF_W, BPF_REG_2, kContext, offsetof(__sk_buff, vlan_present));
  code.Set(BPF_REG_3, 0);
  code.JumpToDrop(BPF_JMP | BPF_JNE | BPF_X, BPF_REG_2, BPF_REG_3);
  code.LoadFrame(kIpv4Bytes);
  code.Require(BPF_W, 6, mac_head);
  code.Require(BPF_H, 10, mac_tail);
  code.Load(BPF_H, BPF_REG_2, BPF_REG_10, kFrame + 12);
  code.Set(BPF_REG_3, htons(ETH_P_ARP));
  const std::size_t to_arp = code.Jump(BPF_JMP | BPF_JEQ | BPF_X, BPF_REG_2, BPF_REG_3);
  code.Require(BPF_H, 12, htons(ETH_P_IP));
  code.Require(BPF_W, 26, network_address);
  const std::size_t to_pass = code.Jump(BPF_JMP | BPF_JA, 0, 0);

  code.Land(to_arp);
  code.LoadFrame(kArpBytes);
  code.Require(BPF_H, 14, htons(ARPHRD_ETHER));
  code.Require(BPF_H, 16, htons(ETH_P_IP));
  code.Require(BPF_H, 18, htons(0x0604));  // lengths of a MAC and an IPv4 address: fixes where the senders lie
  code.Require(BPF_W, 22, mac_head);
  code.Require(BPF_H, 26, mac_tail);
  code.Require(BPF_H, 28, InMemory<std::uint16_t>(ip));
  code.Require(BPF_H, 30, InMemory<std::uint16_t>(ip + 2));

  code.Land(to_pass);
  code.Set(BPF_REG_2, class_handle);
  code.Store(BPF_W, kContext, BPF_REG_2, offsetof(__sk_buff, priority));
  code.Return(TC_ACT_OK);
  return code.Finish();
}

Result<int> LoadPortProgram(const Mac& mac, std::uint32_t address, std::uint32_t class_handle) {
  const std::vector<bpf_insn> program = PortProgram(mac, address, class_handle);
  static constexpr char kLicense[] = "Apache-2.0";  // none of the helpers used asks for a GPL program
  union bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  attributes.insn_cnt = static_cast<std::uint32_t>(program.size());
  attributes.insns = reinterpret_cast<std::uint64_t>(program.data());
  attributes.license = reinterpret_cast<std::uint64_t>(kLicense);
  std::memcpy(attributes.prog_name, "tranche_port", sizeof "tranche_port");
  const long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof attributes);
  if (fd >= 0) return static_cast<int>(fd);
  const std::int32_t code = errno == EPERM ? TRANCHE_PERMISSION_DENIED : TRANCHE_INTERNAL;
  return Failure{code, std::string("load the port program: ") + std::strerror(errno) + "; the backend needs bpf(2) (CAP_BPF and CAP_NET_ADMIN)", errno};
}

}  // namespace vnic
