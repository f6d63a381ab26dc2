// A host of one minor of the ABI, whole: opens a backend, negotiates, runs one share through it, and says what it saw. Built once against the released
// headers of 1.0 and once against the present ones. Prints "sweep=yes|no|- metric=yes|no|-" and exits 0, or says what went wrong.
//   abi_matrix_host BACKEND.so CONFIG RUNTIME_DIRECTORY
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include <tranche/backend.h>

namespace {

struct Seen {
  int devices = 0, shares = 0, good_results = 0;
  bool metric = false;
};
Seen seen;

tranche_str Text(const std::string& text) { return {text.data(), text.size()}; }
void Log(void*, uint32_t, tranche_str) {}
int64_t Now(void*) { return 1700000000000000000; }
void Verdict(void*, tranche_str) {}
void Changed(void*) {}
void Lost(void*, tranche_str) {}
tranche_code Fail(tranche_call*, tranche_code code, tranche_str message) {
  std::fprintf(stderr, "fail %d: %.*s\n", code, static_cast<int>(message.size), message.data);
  return code;
}
uint32_t Cancelled(tranche_call*) { return 0; }
void AddDevice(tranche_call*, tranche_str) { ++seen.devices; }
void AddShare(tranche_call*, tranche_str) { ++seen.shares; }
void AddResult(tranche_call*, tranche_str, tranche_code code, tranche_str message) {
  seen.good_results += code == TRANCHE_OK ? 1 : 0;
  if (code != TRANCHE_OK) std::fprintf(stderr, "result %d: %.*s\n", code, static_cast<int>(message.size), message.data);
}
#if TRANCHE_ABI_MINOR >= 1
void Metric(void*, tranche_str, int64_t) { seen.metric = true; }
#endif

int Wrong(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return Wrong("usage");
  tranche_host_api host{};
  host.head = {sizeof host, TRANCHE_ABI_MAJOR, TRANCHE_ABI_MINOR};
  host.log = &Log, host.now = &Now, host.report_health = &Verdict, host.devices_changed = &Changed, host.share_lost = &Lost;
  host.fail = &Fail, host.cancelled = &Cancelled, host.add_device = &AddDevice, host.add_share = &AddShare, host.add_result = &AddResult;
#if TRANCHE_ABI_MINOR >= 1
  host.record_metric = &Metric;
#endif
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Wrong(dlerror());
  const auto entry = reinterpret_cast<tranche_backend_entry>(dlsym(library, TRANCHE_BACKEND_ENTRY));
  const tranche_backend_api* table = entry == nullptr ? nullptr : entry(&host.head);
  if (table == nullptr) return Wrong("the backend declines");
  tranche_backend_api api{};
  std::memcpy(&api, table, std::min<std::size_t>(sizeof api, table->head.struct_size));

  const std::string envelope = std::string("{\"schemaVersion\":1,\"config\":") + argv[2] + ",\"runtimeDirectory\":\"" + argv[3] + "\"}";
  const std::string key = "\"key\":{\"claimUID\":\"u\",\"request\":\"r\",\"driver\":\"d\",\"pool\":\"p\",\"device\":\"x\",\"shareID\":\"s\"}";
  tranche_call* const call = reinterpret_cast<tranche_call*>(&seen);
  tranche_instance* instance = nullptr;
  if (api.create(&host, call, Text(envelope), &instance) != TRANCHE_OK || instance == nullptr) return Wrong("create");
  if (api.discover(instance, call) != TRANCHE_OK || seen.devices == 0) return Wrong("discover");
  const std::string physical = api.name == std::string("matrix_c_10") || api.name == std::string("matrix_c_11") ? "plain-0" : "gpu-0";
  const std::string list = "{\"schemaVersion\":1,\"shares\":[{" + key + ",\"physical\":\"" + physical +
                           "\",\"mode\":\"share\",\"consumed\":{\"memory\":{\"value\":1048576,\"text\":\"1Mi\"}},\"state\":\"\",\"configuration\":{}}]}";
  if (api.prepare(instance, call, Text(list)) != TRANCHE_OK || seen.good_results != 1 || seen.shares != 1) return Wrong("prepare");
  if (api.list_prepared(instance, call) != TRANCHE_OK || seen.shares != 2) return Wrong("list_prepared");
  const char *sweep = "-", *metric = "-";
#if TRANCHE_ABI_MINOR >= 1
  sweep = api.sweep == nullptr ? "no" : "yes";
  if (api.sweep != nullptr && api.sweep(instance, call) != TRANCHE_OK) return Wrong("sweep");
  metric = seen.metric ? "yes" : "no";
#endif
  if (api.unprepare(instance, call, Text("{\"schemaVersion\":1,\"shares\":[{" + key + ",\"state\":\"\"}]}")) != TRANCHE_OK || seen.good_results != 2)
    return Wrong("unprepare");
  api.destroy(instance);
  std::printf("sweep=%s metric=%s\n", sweep, metric);
  return 0;
}
