#include "runner/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tranche::runner {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the system call filter knows x86_64 and aarch64"
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;  // a sanitizer's shadow is larger than any limit
#else
constexpr bool kLimitMemory = true;
#endif

constexpr std::array<std::pair<const char*, int>, 18> kCapabilities = {{
    {"BPF", CAP_BPF},
    {"CHOWN", CAP_CHOWN},
    {"DAC_OVERRIDE", CAP_DAC_OVERRIDE},
    {"DAC_READ_SEARCH", CAP_DAC_READ_SEARCH},
    {"FOWNER", CAP_FOWNER},
    {"IPC_LOCK", CAP_IPC_LOCK},
    {"KILL", CAP_KILL},
    {"MKNOD", CAP_MKNOD},
    {"NET_ADMIN", CAP_NET_ADMIN},
    {"NET_RAW", CAP_NET_RAW},
    {"PERFMON", CAP_PERFMON},
    {"SYSLOG", CAP_SYSLOG},
    {"SYS_ADMIN", CAP_SYS_ADMIN},
    {"SYS_CHROOT", CAP_SYS_CHROOT},
    {"SYS_NICE", CAP_SYS_NICE},
    {"SYS_PTRACE", CAP_SYS_PTRACE},
    {"SYS_RAWIO", CAP_SYS_RAWIO},
    {"SYS_RESOURCE", CAP_SYS_RESOURCE},
}};

// Denied unless the manifest asks for it by this name. Several numbers may share a name.
constexpr std::array kDenied = {
    std::pair<const char*, long>{"mount", __NR_mount},
    std::pair<const char*, long>{"mount", __NR_umount2},
    std::pair<const char*, long>{"mount", __NR_pivot_root},
    std::pair<const char*, long>{"mount", __NR_move_mount},
    std::pair<const char*, long>{"mount", __NR_open_tree},
    std::pair<const char*, long>{"mount", __NR_fsopen},
    std::pair<const char*, long>{"mount", __NR_fsconfig},
    std::pair<const char*, long>{"mount", __NR_fsmount},
    std::pair<const char*, long>{"mount", __NR_fspick},
    std::pair<const char*, long>{"mount", __NR_mount_setattr},
    std::pair<const char*, long>{"chroot", __NR_chroot},
    std::pair<const char*, long>{"setns", __NR_setns},
    std::pair<const char*, long>{"unshare", __NR_unshare},
    std::pair<const char*, long>{"ptrace", __NR_ptrace},
    std::pair<const char*, long>{"ptrace", __NR_process_vm_readv},
    std::pair<const char*, long>{"ptrace", __NR_process_vm_writev},
    std::pair<const char*, long>{"ptrace", __NR_kcmp},
    std::pair<const char*, long>{"ptrace", __NR_pidfd_getfd},
    std::pair<const char*, long>{"bpf", __NR_bpf},
    std::pair<const char*, long>{"perf_event_open", __NR_perf_event_open},
    std::pair<const char*, long>{"execve", __NR_execve},
    std::pair<const char*, long>{"execve", __NR_execveat},
    std::pair<const char*, long>{"io_uring", __NR_io_uring_setup},
    std::pair<const char*, long>{"userfaultfd", __NR_userfaultfd},
    std::pair<const char*, long>{"keyctl", __NR_keyctl},
    std::pair<const char*, long>{"keyctl", __NR_add_key},
    std::pair<const char*, long>{"keyctl", __NR_request_key},
    std::pair<const char*, long>{"module", __NR_init_module},
    std::pair<const char*, long>{"module", __NR_finit_module},
    std::pair<const char*, long>{"module", __NR_delete_module},
    std::pair<const char*, long>{"kexec", __NR_kexec_load},
    std::pair<const char*, long>{"kexec", __NR_kexec_file_load},
    std::pair<const char*, long>{"reboot", __NR_reboot},
    std::pair<const char*, long>{"swap", __NR_swapon},
    std::pair<const char*, long>{"swap", __NR_swapoff},
    std::pair<const char*, long>{"acct", __NR_acct},
    std::pair<const char*, long>{"quotactl", __NR_quotactl},
    std::pair<const char*, long>{"clock_settime", __NR_settimeofday},
    std::pair<const char*, long>{"clock_settime", __NR_clock_settime},
    std::pair<const char*, long>{"clock_settime", __NR_clock_adjtime},
    std::pair<const char*, long>{"clock_settime", __NR_adjtimex},
    std::pair<const char*, long>{"hostname", __NR_sethostname},
    std::pair<const char*, long>{"hostname", __NR_setdomainname},
    std::pair<const char*, long>{"open_by_handle_at", __NR_open_by_handle_at},
    std::pair<const char*, long>{"fork", __NR_clone3},  // answered ENOSYS, so that glibc makes threads with clone
#if defined(__x86_64__)
    std::pair<const char*, long>{"fork", __NR_fork},
    std::pair<const char*, long>{"fork", __NR_vfork},
    std::pair<const char*, long>{"iopl", __NR_iopl},
    std::pair<const char*, long>{"iopl", __NR_ioperm},
    std::pair<const char*, long>{"modify_ldt", __NR_modify_ldt},
#endif
    std::pair<const char*, long>{"signals", __NR_tkill},
    std::pair<const char*, long>{"signals", __NR_rt_sigqueueinfo},
    std::pair<const char*, long>{"signals", __NR_rt_tgsigqueueinfo},
    std::pair<const char*, long>{"signals", __NR_pidfd_send_signal},
};

std::string Failure(const std::string& what) { return what + ": " + std::strerror(errno); }

bool Contains(const std::vector<std::string>& list, const std::string& name) { return std::find(list.begin(), list.end(), name) != list.end(); }

// Never raises what was inherited.
std::string Limit(__rlimit_resource resource, std::uint64_t value, const char* what) {
  if (value == 0) return "";
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return Failure(std::string("read the limit of ") + what);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(resource, &limit) == 0 ? "" : Failure(std::string("limit ") + what);
}

std::string KeepCapabilities(const std::vector<std::string>& names) {
  std::array<std::uint32_t, 2> keep{};
  for (const auto& [name, bit] : kCapabilities) {
    if (Contains(names, name)) keep[static_cast<std::size_t>(bit) / 32] |= 1u << (static_cast<unsigned>(bit) % 32);
  }
  for (int bit = 0; bit <= CAP_LAST_CAP; ++bit) {
    const bool kept = (keep[static_cast<std::size_t>(bit) / 32] >> (static_cast<unsigned>(bit) % 32) & 1u) != 0;
    if (!kept) ::prctl(PR_CAPBSET_DROP, bit, 0, 0, 0);  // needs SETPCAP; without new privileges and exec the bounding set is of no use anyway
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> held{};
  if (::syscall(SYS_capget, &header, held.data()) != 0) return Failure("read capabilities");
  for (std::size_t half = 0; half < held.size(); ++half) {
    held[half].permitted &= keep[half];
    held[half].effective = held[half].permitted;
    held[half].inheritable = 0;
  }
  return ::syscall(SYS_capset, &header, held.data()) == 0 ? "" : Failure("drop capabilities");
}

class Filter {
 public:
  void Load(std::size_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)); }
  void Return(std::uint32_t action) { Add(BPF_RET | BPF_K, action); }
  // Skips `skip` instructions unless the accumulator is `value`.
  void UnlessEqual(std::uint32_t value, std::uint8_t skip) { program_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)); }
  void Jump(std::uint16_t code, std::uint32_t value, std::uint8_t if_true, std::uint8_t if_false) {
    program_.push_back(BPF_JUMP(code, value, if_true, if_false));
  }
  void ReturnIfEqual(std::uint32_t value, std::uint32_t action) {
    UnlessEqual(value, 1);
    Return(action);
  }
  std::vector<sock_filter>& program() { return program_; }

 private:
  void Add(unsigned code, std::uint32_t value) { program_.push_back(BPF_STMT(static_cast<std::uint16_t>(code), value)); }
  std::vector<sock_filter> program_;
};

constexpr std::uint32_t kDeny = SECCOMP_RET_ERRNO | EPERM;

// Signals may go to this process only.
void DenySignalsToOthers(Filter& filter, std::uint32_t own) {
  for (const long number : {__NR_kill, __NR_tgkill}) {
    filter.UnlessEqual(static_cast<std::uint32_t>(number), 4);
    filter.Load(offsetof(seccomp_data, args[0]));
    filter.UnlessEqual(own, 1);
    filter.Return(SECCOMP_RET_ALLOW);
    filter.Return(kDeny);
  }
}

// A new process, not a thread.
void DenyProcesses(Filter& filter) {
  filter.UnlessEqual(static_cast<std::uint32_t>(__NR_clone), 4);
  filter.Load(offsetof(seccomp_data, args[0]));
  filter.Jump(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
  filter.Return(SECCOMP_RET_ALLOW);
  filter.Return(kDeny);
}

std::string FilterSystemCalls(const std::vector<std::string>& allowed) {
  Filter filter;
  filter.Load(offsetof(seccomp_data, arch));
  filter.UnlessEqual(kArchitecture, 1);
  filter.Jump(BPF_JMP | BPF_JA, 1, 0, 0);
  filter.Return(kDeny);
  filter.Load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  filter.Jump(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1);  // the x32 numbers would go around the list
  filter.Return(kDeny);
#endif
  for (const auto& [name, number] : kDenied) {
    if (Contains(allowed, name)) continue;
    filter.ReturnIfEqual(static_cast<std::uint32_t>(number), number == __NR_clone3 ? (SECCOMP_RET_ERRNO | ENOSYS) : kDeny);
  }
  if (!Contains(allowed, "fork")) DenyProcesses(filter);
  if (!Contains(allowed, "signals")) {
    filter.Load(offsetof(seccomp_data, nr));
    DenySignalsToOthers(filter, static_cast<std::uint32_t>(::getpid()));
  }
  filter.Return(SECCOMP_RET_ALLOW);
  sock_fprog program{static_cast<unsigned short>(filter.program().size()), filter.program().data()};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? "" : Failure("filter system calls");
}

std::uint64_t DataBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long long data = 0;
  if (std::fscanf(file, "%*u %*u %*u %*u %*u %llu", &data) != 1) data = 0;
  std::fclose(file);
  return data * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

bool IsCapability(const std::string& name) {
  return std::any_of(kCapabilities.begin(), kCapabilities.end(), [&](const auto& known) { return known.first == name; });
}

bool IsDeniedSystemCall(const std::string& name) { return Contains(DeniedSystemCalls(), name); }

const std::vector<std::string>& DeniedSystemCalls() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, number] : kDenied) {
      if (!Contains(all, name)) all.emplace_back(name);
    }
    return all;
  }();
  return names;
}

std::string EnterSandbox(const Start& start) {
  if (std::string why = Limit(RLIMIT_NOFILE, start.open_files, "open files"); !why.empty()) return why;
  if (std::string why = Limit(RLIMIT_DATA, kLimitMemory ? start.memory_bytes : 0, "memory"); !why.empty()) return why;
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);  // a crash must not fill the disk, and may hold an operator's configuration
  if (std::string why = KeepCapabilities(start.capabilities); !why.empty()) return why;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Failure("give up new privileges");
  return FilterSystemCalls(start.system_calls);
}

bool NearlyExhausted(Look look) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const int lowest = ::fcntl(0, F_DUPFD_CLOEXEC, 0);  // the lowest free number tells how many are open
  if (lowest >= 0) ::close(lowest);
  if (lowest < 0 || static_cast<rlim_t>(lowest) >= files.rlim_cur / 10 * 9) return true;
  if (look == Look::kDescriptors || !kLimitMemory) return false;
  rlimit data{};
  ::getrlimit(RLIMIT_DATA, &data);
  return data.rlim_cur != RLIM_INFINITY && DataBytes() >= data.rlim_cur / 10 * 9;
}

}  // namespace tranche::runner
