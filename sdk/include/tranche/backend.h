/* SPDX-License-Identifier: Apache-2.0
 *
 * The Tranche backend ABI, major version 1. This header is the specification.
 *
 * A backend is one shared object that exports one symbol, TRANCHE_BACKEND_ENTRY ("tranche_backend_v1"), which returns a table of
 * functions. The host passes its own table of services. Both tables start with tranche_head and only ever grow at the end;
 * a new major version is a new symbol and a new header.
 *
 * Conventions that hold for everything below
 *  1. C11 and C++11. Fixed-width integers only, no padding, no enums or bool in tables.
 *  2. Strings are tranche_str: UTF-8, a length, no terminating NUL needed. Every input is BORROWED FOR THE CALL: copy what you keep.
 *  3. Nothing owned crosses. Results are pushed into the host's sinks, which copy; errors go through fail(), which copies.
 *  4. Structured values are JSON objects with "schemaVersion": 1; the schema files are in sdk/schema/. Amounts are 64-bit integers
 *     in base units (bytes, bits per second) with the Kubernetes text beside. Unknown keys are ignored within a schema version.
 *  5. Return codes are the canonical gRPC/Abseil numbers (TRANCHE_OK = 0). A code that is not listed is taken as INTERNAL.
 *  6. Threads: create and destroy never overlap another call on the same instance. Calls on one instance are serialised by the
 *     host unless flags has TRANCHE_FLAG_CONCURRENT. Instances are independent and may be called in parallel. A tranche_call is
 *     valid on the calling thread until the call returns. Host services that take `host` are thread-safe at any time between create's
 *     entry and destroy's return. Join your threads before destroy returns.
 *  7. A call carries a deadline: poll cancelled(call) at least once a second and return TRANCHE_DEADLINE_EXCEEDED when it is non-zero.
 *  8. A backend does not fork, exit, abort, throw through these functions, change environment, directory, locale or signal handling, or write to
 *     standard output or standard error.
 *  9. A backend keeps no durable store. `state` (opaque, at most 4 KiB) is stored by the host with each share and handed back; a backend must
 *     also be able to rebuild from what the kernel or hardware says (list_prepared).
 */
#ifndef TRANCHE_BACKEND_H
#define TRANCHE_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRANCHE_ABI_MAJOR 1
#define TRANCHE_ABI_MINOR 1 /* newest minor that this header knows; docs/abi-changelog.md */

/* The lowest minor you need; later members disappear below it. */
#ifndef TRANCHE_TARGET_MINOR
#define TRANCHE_TARGET_MINOR TRANCHE_ABI_MINOR
#endif

#define TRANCHE_BACKEND_ENTRY "tranche_backend_v1"
#define TRANCHE_BACKEND_MAGIC 0x31455254u /* "TRE1" */

#if defined(__GNUC__)
#define TRANCHE_EXPORT __attribute__((visibility("default")))
#else
#define TRANCHE_EXPORT
#endif

/* Canonical codes. */
typedef int32_t tranche_code;
#define TRANCHE_OK 0
#define TRANCHE_CANCELLED 1
#define TRANCHE_UNKNOWN 2
#define TRANCHE_INVALID_ARGUMENT 3  /* permanent: the request or configuration is wrong */
#define TRANCHE_DEADLINE_EXCEEDED 4 /* retryable */
#define TRANCHE_NOT_FOUND 5
#define TRANCHE_ALREADY_EXISTS 6
#define TRANCHE_PERMISSION_DENIED 7
#define TRANCHE_RESOURCE_EXHAUSTED 8  /* retryable: does not fit now */
#define TRANCHE_FAILED_PRECONDITION 9 /* permanent until somebody changes something */
#define TRANCHE_ABORTED 10            /* retryable */
#define TRANCHE_OUT_OF_RANGE 11
#define TRANCHE_UNIMPLEMENTED 12
#define TRANCHE_INTERNAL 13
#define TRANCHE_UNAVAILABLE 14 /* retryable */
#define TRANCHE_DATA_LOSS 15
#define TRANCHE_UNAUTHENTICATED 16

/* Log levels for log(). */
#define TRANCHE_LOG_DEBUG 0u
#define TRANCHE_LOG_INFO 1u
#define TRANCHE_LOG_WARNING 2u
#define TRANCHE_LOG_ERROR 3u

/* tranche_backend_api.flags */
#define TRANCHE_FLAG_CONCURRENT 0x1u /* calls on one instance may overlap */

typedef struct tranche_str {
  const char* data;
  uint64_t size;
} tranche_str;

/* Frozen for ever: the first member of both tables. */
typedef struct tranche_head {
  uint32_t struct_size; /* sizeof of the whole table as the writer compiled it */
  uint16_t major;
  uint16_t minor;
} tranche_head;

typedef struct tranche_call tranche_call;         /* the host's; one per call */
typedef struct tranche_instance tranche_instance; /* the backend's; one per configured backend */

/* Services of the host. */
typedef struct tranche_host_api {
  tranche_head head;
  void* host; /* pass back unchanged as the first argument where one is asked for */

  /* Since 1.0. Writes one line into the host's log. Any thread. */
  void (*log)(void* host, uint32_t level, tranche_str message);
  /* Since 1.0. Wall clock, nanoseconds since 1970-01-01T00:00:00Z. Any thread. */
  int64_t (*now)(void* host);
  /* Since 1.0. Reports one verdict (sdk/schema/health.schema.json). Any thread; order by (source, sequence). */
  void (*report_health)(void* host, tranche_str health_json);
  /* Since 1.0. What discover would say has changed; the host calls discover soon. Any thread. */
  void (*devices_changed)(void* host);
  /* Since 1.0. Something that was applied for this key (sdk/schema/key.schema.json) vanished outside unprepare: the host
   * compares and calls prepare again with the stored state. Any thread. */
  void (*share_lost)(void* host, tranche_str key_json);

  /* Since 1.0. Records why the call fails and returns `code`, so that `return host->fail(call, code, text);` reads well. The message
   * says what, which object, why, and what to do. The last call wins. */
  tranche_code (*fail)(tranche_call* call, tranche_code code, tranche_str message);
  /* Since 1.0. Non-zero once the deadline has passed or nobody waits any more. */
  uint32_t (*cancelled)(tranche_call* call);
  /* Since 1.0. Sink of discover: one physical device (sdk/schema/device.schema.json), at most 64 KiB. */
  void (*add_device)(tranche_call* call, tranche_str device_json);
  /* Since 1.0. Sink of prepare, list_prepared and verify: what is applied for one key (sdk/schema/share.schema.json). */
  void (*add_share)(tranche_call* call, tranche_str share_json);
  /* Since 1.0. Outcome for one key of prepare or unprepare. A key without add_result counts as INTERNAL. For prepare, TRANCHE_OK
   * needs an add_share for the same key in the same call. */
  void (*add_result)(tranche_call* call, tranche_str key_json, tranche_code code, tranche_str message);
#if TRANCHE_TARGET_MINOR >= 1
  /* Since 1.1. Sets one number that operators can watch: counters and gauges that only the backend knows. `name` is [a-z][a-z0-9_]{0,63} with its
   * unit last (xid_errors_total, board_temperature_celsius); the host keeps the last value of at most 64 names per instance. Any thread. A backend that
   * also runs on 1.0 compares host->head.struct_size first. */
  void (*record_metric)(void* host, tranche_str name, int64_t value);
#endif
} tranche_host_api;

/* Functions of the backend. */
typedef struct tranche_backend_api {
  tranche_head head;
  uint32_t magic;      /* TRANCHE_BACKEND_MAGIC */
  uint32_t flags;      /* TRANCHE_FLAG_*; unknown bits in the high half are refused, in the low half ignored */
  const char* name;    /* NUL-terminated, [a-z0-9_]{1,63}, equal to the manifest's */
  const char* version; /* NUL-terminated semantic version of the backend */

  /* Required, since 1.0. Makes one instance. `config_json` is {"schemaVersion": 1, "config": {…}, "runtimeDirectory": "/…"}: `config` is the
   * operator's, already checked against the manifest's schema; `runtimeDirectory` exists, is private to this backend's name and shared by
   * overlapping hosts (lock files go there). On TRANCHE_OK *out is non-null and borrowed from the backend until destroy. On failure
   * nothing is left behind and the host serves without this backend, retrying with back-off. */
  tranche_code (*create)(const tranche_host_api* host, tranche_call* call, tranche_str config_json, tranche_instance** out);
  /* Required, since 1.0. Frees the instance and joins its threads. Prepared shares stay in force. */
  void (*destroy)(tranche_instance* instance);
  /* Required, since 1.0. Pushes every physical device with add_device. A failure leaves what the host knew before, as unknown. */
  tranche_code (*discover)(tranche_instance* instance, tranche_call* call);
  /* Required, since 1.0. `list_json` is {"schemaVersion": 1, "shares": [{key, physical, mode, consumed, state, configuration, policyVersion, claim}]}
   * (sdk/schema/prepare.schema.json); `consumed` is empty unless mode is "share". Applies each, reads it back, then add_share and add_result per key. Idempotent by key: a key that is
   * applied already is brought to what is asked and reported again. One key's failure does not fail the others and leaves nothing of
   * it behind. The code returned is for the call as a whole (TRANCHE_OK when every key has its own result). */
  tranche_code (*prepare)(tranche_instance* instance, tranche_call* call, tranche_str list_json);
  /* Required, since 1.0. `list_json` is {"schemaVersion": 1, "shares": [{key, state}]} (sdk/schema/unprepare.schema.json). Idempotent; an unknown
   * key is TRANCHE_OK. Must work when the configuration has changed since prepare. */
  tranche_code (*unprepare)(tranche_instance* instance, tranche_call* call, tranche_str list_json);
  /* Required, since 1.0. Pushes with add_share what the kernel or hardware has now for every key, orphans of ours included. */
  tranche_code (*list_prepared)(tranche_instance* instance, tranche_call* call);
  /* Required where a capacity is enforced, since 1.0. `key_json` is {"schemaVersion": 1, "key": {…}, "state": "…"}. Pushes one add_share with limits in force,
   * usage, drops. NOT_FOUND when nothing is applied for the key. */
  tranche_code (*verify)(tranche_instance* instance, tranche_call* call, tranche_str key_json);
  /* Optional, since 1.0. Reports one verdict per device with report_health. */
  tranche_code (*check_health)(tranche_instance* instance, tranche_call* call);
  /* Optional, since 1.0. Probes a device (by its name) before it returns to service. */
  tranche_code (*recover)(tranche_instance* instance, tranche_call* call, tranche_str device);
  /* Optional, since 1.0. Drain: lets go of vendor handles without losing prepared shares. */
  tranche_code (*release_handles)(tranche_instance* instance, tranche_call* call);
  /* Optional, since 1.0. For the conformance kit and preflight. */
  tranche_code (*self_test)(tranche_instance* instance, tranche_call* call);
#if TRANCHE_TARGET_MINOR >= 1
  /* Optional, since 1.1. Takes away what is of this backend and can be named by no key: halves that a crash left. Prepared shares stay. The host calls
   * it after every list_prepared that it compares with its store, so list_prepared itself need not change anything. Idempotent. */
  tranche_code (*sweep)(tranche_instance* instance, tranche_call* call);
#endif
} tranche_backend_api;

/* The one export. `host` is the head of the host's table; return NULL when this host cannot be served. The table is constant and lives as
 * long as the process: the host never unloads a backend. */
typedef const tranche_backend_api* (*tranche_backend_entry)(const tranche_head* host);

#if defined(__cplusplus) && __cplusplus >= 201103L
#include <stddef.h>
#define TRANCHE_ASSERT_LAYOUT(type, member, offset) static_assert(offsetof(type, member) == (offset), "frozen layout of " #type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#include <stddef.h>
#define TRANCHE_ASSERT_LAYOUT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), "frozen layout of " #type)
#else
#define TRANCHE_ASSERT_LAYOUT(type, member, offset)
#endif
#if defined(__LP64__)
TRANCHE_ASSERT_LAYOUT(tranche_head, minor, 6);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, host, 8);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, log, 16);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, now, 24);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, report_health, 32);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, devices_changed, 40);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, share_lost, 48);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, fail, 56);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, cancelled, 64);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, add_device, 72);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, add_share, 80);
TRANCHE_ASSERT_LAYOUT(tranche_host_api, add_result, 88);
#if TRANCHE_TARGET_MINOR >= 1
TRANCHE_ASSERT_LAYOUT(tranche_host_api, record_metric, 96);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, sweep, 120);
#endif
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, magic, 8);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, flags, 12);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, name, 16);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, version, 24);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, create, 32);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, destroy, 40);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, discover, 48);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, prepare, 56);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, unprepare, 64);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, list_prepared, 72);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, verify, 80);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, check_health, 88);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, recover, 96);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, release_handles, 104);
TRANCHE_ASSERT_LAYOUT(tranche_backend_api, self_test, 112);
#endif

#ifdef __cplusplus
}
#endif

#endif /* TRANCHE_BACKEND_H */
