// Libraries that break one rule each; the build defines BROKEN_NAME and one BROKEN_… macro per library.
#include <cstring>
#include <stdexcept>

#include <tranche/backend.h>

namespace {

[[maybe_unused]] int instance;
const tranche_host_api* services;

tranche_str Text(const char* text) { return {text, std::strlen(text)}; }

tranche_code Create(const tranche_host_api* host, tranche_call*, tranche_str, [[maybe_unused]] tranche_instance** out) {
  services = host;
#if defined(BROKEN_THROWS_IN_CREATE)
  throw std::runtime_error("create throws");
#elif !defined(BROKEN_NO_INSTANCE)
  *out = reinterpret_cast<tranche_instance*>(&instance);
#endif
  return TRANCHE_OK;
}
void Destroy(tranche_instance*) {}
tranche_code Discover(tranche_instance*, tranche_call* call) {
  services->add_device(call, Text("{\"schemaVersion\": 1, \"name\": 7}"));
  services->add_device(call, Text("not JSON"));
  services->add_device(call, Text("{\"schemaVersion\": 99, \"name\": \"x\", \"identity\": {\"uuid\": \"x\"}, \"modes\": [\"whole\"]}"));
#if defined(BROKEN_NULL_STRING)
  services->add_device(call, {nullptr, 10});
#endif
  return TRANCHE_OK;
}
tranche_code Prepare(tranche_instance*, tranche_call* call, tranche_str list) {
#if defined(BROKEN_THROWS_IN_PREPARE)
  throw 7;
#elif defined(BROKEN_CODE)
  return -12345;
#elif defined(BROKEN_FLOOD)
  for (int i = 0; i < 100; ++i) services->add_share(call, list);
  static char big[100 * 1024];
  services->add_share(call, {big, sizeof big});
#elif !defined(BROKEN_SILENT)
  services->add_share(call, Text("[1, 2"));
  services->add_share(call, list);  // an echo of the request is no share
  services->add_result(call, Text("{}"), TRANCHE_OK, Text(""));
  services->add_result(call, Text("\"key\""), 99, Text("\xff\xfe"));
#endif
  static_cast<void>(call);
  static_cast<void>(list);
  return TRANCHE_OK;
}
tranche_code Unprepare(tranche_instance*, tranche_call* call, tranche_str) { return services->fail(call, TRANCHE_UNAVAILABLE, Text("device \xff gone\n")); }
tranche_code ListPrepared(tranche_instance*, tranche_call* call) {
  services->add_share(call, Text("{}"));
  return TRANCHE_OK;
}

const tranche_backend_api kTable = {
    {
#if defined(BROKEN_SHORT_TABLE)
        64,
#else
        static_cast<uint32_t>(sizeof(tranche_backend_api)),
#endif
#if defined(BROKEN_MAJOR)
        2,
#else
        TRANCHE_ABI_MAJOR,
#endif
        TRANCHE_ABI_MINOR},
#if defined(BROKEN_MAGIC)
    0x12345678u,
#else
    TRANCHE_BACKEND_MAGIC,
#endif
#if defined(BROKEN_FLAGS)
    0x80000000u,
#else
    0,
#endif
#if defined(BROKEN_TABLE_NAME)
    "somebody_else",
#else
    BROKEN_NAME,
#endif
    "1.0.0",
    &Create,
    &Destroy,
    &Discover,
#if defined(BROKEN_NULL_FUNCTION)
    nullptr,
#else
    &Prepare,
#endif
    &Unprepare,
    &ListPrepared,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

#if defined(BROKEN_NO_SYMBOL)
extern "C" TRANCHE_EXPORT int somebody_elses_entry(void) { return kTable.magic == 0; }
#elif defined(BROKEN_OTHER_MAJOR)
extern "C" TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v2(const tranche_head*) { return &kTable; }
#else
extern "C" TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head*) {
#if defined(BROKEN_DECLINES)
  return kTable.magic == 0 ? &kTable : nullptr;
#elif defined(BROKEN_THROWS_IN_ENTRY)
  throw std::runtime_error("entry throws");
#else
  return &kTable;
#endif
}
#endif
