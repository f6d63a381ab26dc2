// The table in front of Good: faults of the ABI itself, one per library. What C++ would not let a backend do wrong is done by hand here.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "good.h"

extern "C" const char tranche_fault_name[];  // the manifest's name

namespace faulty {
namespace {

using Thunks = sdk::detail::Thunks<Good>;

const tranche_host_api* services = nullptr;  // the last host's
std::vector<int> opened;                     // descriptors, closed by destroy
std::mutex opened_mutex;
tranche_str kept_input = {nullptr, 0};
volatile int* nowhere = nullptr;
char garbage[8];  // an instance that is none

tranche_str Text(std::string_view text) { return {text.data(), text.size()}; }

[[gnu::constructor]] void AtLoad() {
  if (Is("load_crashes")) *nowhere = 1;
  if (Is("load_prints")) std::puts("hello");
  if (Is("load_thread")) std::thread([] { ::pause(); }).detach();
  if (Is("load_descriptor")) static_cast<void>(::open("/dev/null", O_RDONLY));
}

// Does what is wrong in the middle of a call.
void Misbehave(tranche_call* call) {
  if (Is("segv")) *nowhere = 1;
  if (Is("abort")) std::abort();
  if (Is("exit")) std::exit(3);
  if (Is("throws")) throw 7;
  if (Is("spins")) {
    for (std::atomic<int> i = 0;; ++i) {}
  }
  if (Is("sleeps")) ::sleep(60);
  if (Is("prints")) std::puts("a line of the backend");
  if (Is("prints_error")) std::fputs("a line of the backend\n", stderr);
  static std::atomic<bool> once = false;
  const bool first = !once.exchange(true);
  if (Is("thread_left") && first) std::thread([] { ::pause(); }).detach();
  if (Is("descriptor_left") && first) static_cast<void>(::open("/dev/null", O_RDONLY));
  if (Is("descriptor_leak")) {
    const std::lock_guard lock(opened_mutex);
    opened.push_back(::open("/dev/null", O_RDONLY));
  }
  if (Is("setenv")) ::setenv("FAULTY", "1", 1);
  if (Is("chdir") && ::chdir("/usr") != 0) std::abort();
  if (Is("signal")) ::signal(SIGTERM, SIG_IGN);
  if (Is("forks") && ::fork() == 0) {
    ::pause();
    ::_exit(0);
  }
  if (Is("allocates") && first) {
    constexpr std::size_t kSize = 520ul << 20;
    void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED) ::munmap(memory, kSize);
  }
  if (Is("grows")) std::memset(std::malloc(4 << 20), 1, 4 << 20);
  if (Is("other_thread")) std::thread([call] { services->add_share(call, Text("{}")); }).join();
  if (Is("wrong_sink")) services->add_device(call, Text("{}"));
  if (Is("not_utf8")) services->add_share(call, Text("{\"a\": \"\xff\xfe\"}"));
  if (Is("null_string")) services->add_share(call, {nullptr, 10});
  if (Is("not_json")) services->add_share(call, Text("[1, 2"));
  if (Is("other_schema_version")) services->add_share(call, Text("{\"schemaVersion\": 9, \"key\": {}}"));
  if (Is("huge_answer")) {
    static const std::string huge(100ul << 20, ' ');
    services->add_share(call, Text(huge));
  }
  if (Is("flood")) {
    static const std::string piece =
        R"({"schemaVersion": 1, "key": {"claimUID": "u", "request": "r", "driver": "d", "pool": "p", "device": "x"}, "padding": ")" +
        std::string(60 * 1024, ' ') + "\"}";
    for (int i = 0; i < 40; ++i) services->add_share(call, Text(piece));
  }
}

tranche_code Create(const tranche_host_api* host, tranche_call* call, tranche_str config, tranche_instance** out) {
  services = host;
  if (Is("no_instance")) return TRANCHE_OK;
  if (Is("accepts_garbage") && json::string_view(config.data, config.size).find("}}") == json::string_view::npos) {
    *out = reinterpret_cast<tranche_instance*>(garbage);
    return TRANCHE_OK;
  }
  if (Is("create_throws")) throw std::runtime_error("create throws");
  if (Is("failed_create_leaks") && std::string_view(config.data, config.size).find("}}") == std::string_view::npos)
    static_cast<void>(::open("/dev/null", O_RDONLY));
  return Thunks::Create(host, call, config, out);
}

void Destroy(tranche_instance* instance) {
  if (instance != reinterpret_cast<tranche_instance*>(garbage)) Thunks::Destroy(instance);
  for (const int fd : std::exchange(opened, {})) ::close(fd);
  if (Is("calls_after_destroy")) {
    std::thread([host = services] {
      ::usleep(100000);
      host->log(host->host, TRANCHE_LOG_INFO, Text("still here"));
    }).detach();
    ::usleep(1000);
  }
}

tranche_code Discover(tranche_instance* instance, tranche_call* call) {
  if (Is("bad_device")) services->add_device(call, Text("{\"schemaVersion\": 1, \"name\": 7}"));
  return Thunks::Discover(instance, call);
}

tranche_code Prepare(tranche_instance* instance, tranche_call* call, tranche_str list) {
  Misbehave(call);
  if (Is("strange_code")) return -12345;
  if (Is("no_reason")) return TRANCHE_UNAVAILABLE;
  if (Is("reads_to_nul")) {
    const volatile char* end = list.data;
    while (*end != 0) ++end;
  }
  if (Is("keeps_input")) {
    if (kept_input.data != nullptr && kept_input.data[0] == 'x') return TRANCHE_INTERNAL;
    kept_input = list;
  }
  if (Is("strict_members") && std::string_view(list.data, list.size).find("xAddedLater") != std::string_view::npos) {
    return services->fail(call, TRANCHE_INVALID_ARGUMENT, Text("unknown member xAddedLater"));
  }
  if (Is("races")) {
    static std::atomic<int> inside = 0;
    const bool alone = ++inside == 1;
    ::usleep(20000);
    --inside;
    if (!alone) return services->fail(call, TRANCHE_INTERNAL, Text("two calls at once"));
  }
  return Thunks::Prepare(instance, call, list);
}

tranche_backend_api MakeTable() {
  tranche_backend_api table = Thunks::kTable;
  table.name = tranche_fault_name;
  table.create = &Create;
  table.destroy = &Destroy;
  table.discover = &Discover;
  table.prepare = &Prepare;
  if (Is("no_verify")) table.verify = nullptr;
  if (Is("version_text")) table.version = "the newest";
  if (Is("version_other")) table.version = "2.0.0";
  if (Is("unaligned_size")) table.head.struct_size = sizeof table + 4;
  if (Is("short_table")) table.head.struct_size = 64;
  if (Is("wrong_magic")) table.magic = 1;
  if (Is("next_major")) table.head.major = 2;
  if (Is("null_member")) table.unprepare = nullptr;
  if (Is("other_name")) table.name = "somebody_else";
  if (Is("unknown_flag")) table.flags |= 0x80000000u;
  return table;
}

}  // namespace
}  // namespace faulty

extern "C" TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head* host) {
  static const tranche_backend_api tables[2] = {faulty::MakeTable(), faulty::MakeTable()};
  static int calls = 0;
  if (faulty::Is("declines")) return nullptr;
  if (faulty::Is("entry_throws")) throw 1;
  if (faulty::Is("entry_crashes")) *faulty::nowhere = 1;
  if (!faulty::Is("accepts_any_host") && (host->major != TRANCHE_ABI_MAJOR || host->struct_size < offsetof(tranche_host_api, add_result) + sizeof(void*)))
    return nullptr;
  return &tables[faulty::Is("table_moves") ? calls++ % 2 : 0];
}
