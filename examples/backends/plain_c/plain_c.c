/* SPDX-License-Identifier: Apache-2.0
 * A backend in C11: one device whose memory is shared out, without a library. A file per share stands for the hardware: it outlives the process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <tranche/backend.h>

#include "json.h"

#ifndef PLAIN_C_NAME
#define PLAIN_C_NAME "plain_c"
#endif

/* The size of the host's table in 1.0: what came later is looked for where it is used. */
enum { kHostOf10 = offsetof(tranche_host_api, add_result) + sizeof(void*) };
enum { kPath = 4096, kKey = 2048, kText = 8192, kMessage = 256 };

struct tranche_instance {
  const tranche_host_api* host;
  int64_t memory;
  char directory[kPath];
};

/* One share as it is in force. */
typedef struct share {
  char key[kKey]; /* JSON of the six members of a key */
  int64_t memory;
} share;

static tranche_str text_of(const char* text) {
  tranche_str result = {text, strlen(text)};
  return result;
}
static json_slice slice_of(tranche_str text) {
  json_slice result = {text.data, text.size};
  return result;
}

/* The key by its six members: what a later version of the host adds is left out. 0 when it does not fit. */
static int copy_key(json_slice key, char* out) {
  static const char* const kMembers[] = {"claimUID", "request", "driver", "pool", "device", "shareID"};
  uint64_t size = 1, i;
  strcpy(out, "{");
  for (i = 0; i < 6; ++i) {
    const json_slice value = json_member(key, kMembers[i]);
    if (value.data == NULL) continue;
    if (size + value.size + 32 > kKey) return 0;
    size += (uint64_t)sprintf(out + size, "%s\"%s\":%.*s", size == 1 ? "" : ",", kMembers[i], (int)value.size, value.data);
  }
  strcpy(out + size, "}");
  return 1;
}

static void path_of(const tranche_instance* self, const char* key, char* out) {
  uint64_t hash = 1469598103934665603ull;
  const char* c;
  for (c = key; *c != 0; ++c) hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
  snprintf(out, kPath + 64, "%s/%016llx.share", self->directory, (unsigned long long)hash);
}

enum found { kAbsent, kRead, kUnreadable };
static enum found read_share(const char* path, share* out) {
  FILE* file = fopen(path, "r");
  long long memory = 0;
  int good;
  if (file == NULL) return errno == ENOENT ? kAbsent : kUnreadable;
  good = fscanf(file, "%lld\n", &memory) == 1 && fgets(out->key, kKey, file) != NULL;
  fclose(file);
  out->memory = memory;
  return good ? kRead : kUnreadable;
}

/* Whole or not at all. */
static int write_share(const char* path, const share* in) {
  char part[kPath + 96];
  FILE* file;
  int good;
  snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
  file = fopen(part, "w");
  if (file == NULL) return 0;
  good = fprintf(file, "%lld\n%s", (long long)in->memory, in->key) > 0;
  good = fclose(file) == 0 && good;
  return good && rename(part, path) == 0;
}

static void push_share(const tranche_instance* self, tranche_call* call, const share* in) {
  char text[kText];
  snprintf(text, sizeof text,
           "{\"schemaVersion\":1,\"key\":%s,\"limits\":[{\"capacity\":\"memory\",\"requested\":%lld,\"inForce\":%lld,\"enforcement\":\"strong\",\"mechanism\":"
           "\"file\"}],"
           "\"usage\":[{\"capacity\":\"memory\",\"used\":0}],\"containerEdits\":{\"env\":[\"PLAIN_C_MEMORY=%lld\"]},\"applied\":\"complete\"}",
           in->key, (long long)in->memory, (long long)in->memory, (long long)in->memory);
  self->host->add_share(call, text_of(text));
}

/* Calls `visit` for every share. 0 with errno when one of them cannot be read: an answer with a gap would be repaired wrongly. */
static int each_share(const tranche_instance* self, void (*visit)(const share*, void*), void* with) {
  DIR* directory = opendir(self->directory);
  const struct dirent* entry;
  int good = 1;
  if (directory == NULL) return 0;
  while (good && (entry = readdir(directory)) != NULL) {
    char path[kPath + 300];
    share one;
    enum found found;
    const size_t size = strlen(entry->d_name);
    if (size < 6 || strcmp(entry->d_name + size - 6, ".share") != 0) continue;
    snprintf(path, sizeof path, "%s/%s", self->directory, entry->d_name);
    found = read_share(path, &one);
    if (found == kRead) visit(&one, with);
    good = found != kUnreadable;
  }
  closedir(directory);
  return good;
}

static tranche_code fail_unreadable(const tranche_instance* self, tranche_call* call) {
  char why[kPath + 128];
  snprintf(why, sizeof why, "a .share file in %s cannot be read; find out whose it is, then remove it", self->directory);
  return self->host->fail(call, TRANCHE_DATA_LOSS, text_of(why));
}

/* Hosts that overlap share the directory: what is free must stay free until it is taken. Waits for the lock until the call's time is over; -1 then. The lock
 * ends with the descriptor, however the process ends. */
static int take_lock(const tranche_instance* self, tranche_call* call) {
  char path[kPath + 64];
  const struct timespec pause = {0, 5000000};
  int fd;
  snprintf(path, sizeof path, "%s/lock", self->directory);
  fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (self->host->cancelled(call)) {
      close(fd);
      return -1;
    }
    nanosleep(&pause, NULL);
  }
  return fd;
}

static tranche_code create(const tranche_host_api* host, tranche_call* call, tranche_str config_json, tranche_instance** out) {
  const json_slice envelope = slice_of(config_json);
  const json_slice directory = json_member(envelope, "runtimeDirectory");
  const int64_t memory = json_integer(json_member(json_member(envelope, "config"), "memoryMiB"));
  tranche_instance* self;
  if (memory <= 0) return host->fail(call, TRANCHE_INVALID_ARGUMENT, text_of("config.memoryMiB must be a positive whole number"));
  if (directory.size < 3 || directory.size > kPath) return host->fail(call, TRANCHE_INVALID_ARGUMENT, text_of("runtimeDirectory is missing or too long"));
  self = calloc(1, sizeof *self);
  if (self == NULL) return host->fail(call, TRANCHE_RESOURCE_EXHAUSTED, text_of("out of memory"));
  self->host = host;
  self->memory = memory << 20;
  memcpy(self->directory, directory.data + 1, directory.size - 2);
  *out = self;
  return TRANCHE_OK;
}

static void destroy(tranche_instance* self) { free(self); }

static tranche_code discover(tranche_instance* self, tranche_call* call) {
  char text[kText];
  snprintf(text, sizeof text,
           "{\"schemaVersion\":1,\"name\":\"plain-0\",\"identity\":{\"serial\":\"PLAIN-0\"},\"modes\":[\"share\"],\"attributes\":{\"model\":{\"string\":"
           "\"Plain C\"}},"
           "\"capacities\":{\"memory\":{\"value\":%lld,\"unit\":\"bytes\",\"shareable\":true,\"enforcement\":\"strong\"}}}",
           (long long)self->memory);
  self->host->add_device(call, text_of(text));
  return TRANCHE_OK;
}

struct sum {
  const char* except;
  int64_t memory;
};
static void add_up(const share* one, void* with) {
  struct sum* sum = with;
  if (strcmp(one->key, sum->except) != 0) sum->memory += one->memory;
}

/* On anything but TRANCHE_OK `why` says why not. */
static tranche_code apply(tranche_instance* self, json_slice item, share* out, char* why) {
  char path[kPath + 64];
  struct sum used = {out->key, 0};
  why[0] = 0;
  if (!json_is(json_member(item, "physical"), "plain-0")) {
    strcpy(why, "there is no such device");
    return TRANCHE_NOT_FOUND;
  }
  out->memory = json_integer(json_member(json_member(json_member(item, "consumed"), "memory"), "value"));
  if (!each_share(self, add_up, &used)) {
    strcpy(why, "what is free is unknown: a share cannot be read");
    return TRANCHE_DATA_LOSS;
  }
  if (out->memory <= 0 || out->memory > self->memory - used.memory) {
    snprintf(why, kMessage, "%lld bytes are left", (long long)(self->memory - used.memory));
    return TRANCHE_RESOURCE_EXHAUSTED;
  }
  path_of(self, out->key, path);
  if (!write_share(path, out)) {
    snprintf(why, kMessage, "the share cannot be written: %s", strerror(errno));
    return TRANCHE_UNAVAILABLE;
  }
  return TRANCHE_OK;
}

static tranche_code prepare(tranche_instance* self, tranche_call* call, tranche_str list_json) {
  const json_slice shares = json_member(slice_of(list_json), "shares");
  json_slice item;
  for (item = json_first(shares); item.data != NULL; item = json_next(shares, item)) {
    share one;
    char why[kMessage];
    tranche_code code;
    int lock;
    if (!copy_key(json_member(item, "key"), one.key)) return self->host->fail(call, TRANCHE_INVALID_ARGUMENT, text_of("a key is too long"));
    if (self->host->cancelled(call)) {
      self->host->add_result(call, text_of(one.key), TRANCHE_DEADLINE_EXCEEDED, text_of("the deadline has passed"));
      continue;
    }
    lock = take_lock(self, call);
    if (lock < 0) {
      self->host->add_result(call, text_of(one.key), TRANCHE_UNAVAILABLE, text_of("the lock could not be had in the call's time"));
      continue;
    }
    code = apply(self, item, &one, why);
    close(lock);
    if (code == TRANCHE_OK) push_share(self, call, &one);
    self->host->add_result(call, text_of(one.key), code, text_of(why));
  }
  return TRANCHE_OK;
}

static tranche_code unprepare(tranche_instance* self, tranche_call* call, tranche_str list_json) {
  const json_slice shares = json_member(slice_of(list_json), "shares");
  json_slice item;
  for (item = json_first(shares); item.data != NULL; item = json_next(shares, item)) {
    char key[kKey], path[kPath + 64];
    if (!copy_key(json_member(item, "key"), key)) return self->host->fail(call, TRANCHE_INVALID_ARGUMENT, text_of("a key is too long"));
    path_of(self, key, path);
    if (unlink(path) != 0 && errno != ENOENT) {
      self->host->add_result(call, text_of(key), TRANCHE_UNAVAILABLE, text_of(strerror(errno)));
    } else {
      self->host->add_result(call, text_of(key), TRANCHE_OK, text_of(""));
    }
  }
  return TRANCHE_OK;
}

struct push {
  tranche_instance* self;
  tranche_call* call;
};
static void push_one(const share* one, void* with) {
  const struct push* push = with;
  push_share(push->self, push->call, one);
}

static tranche_code list_prepared(tranche_instance* self, tranche_call* call) {
  struct push with;
  with.self = self;
  with.call = call;
  return each_share(self, push_one, &with) ? TRANCHE_OK : fail_unreadable(self, call);
}

static tranche_code verify(tranche_instance* self, tranche_call* call, tranche_str key_json) {
  char key[kKey], path[kPath + 64];
  share one;
  if (!copy_key(json_member(slice_of(key_json), "key"), key)) return self->host->fail(call, TRANCHE_INVALID_ARGUMENT, text_of("the key is too long"));
  path_of(self, key, path);
  switch (read_share(path, &one)) {
    case kAbsent: return self->host->fail(call, TRANCHE_NOT_FOUND, text_of("nothing is prepared for this key"));
    case kUnreadable: return fail_unreadable(self, call);
    case kRead: break;
  }
  push_share(self, call, &one);
  return TRANCHE_OK;
}

#if TRANCHE_TARGET_MINOR >= 1
/* Nothing is ever left half: a share is renamed into place. The number shows how many there are. */
static void count_one(const share* one, void* with) {
  (void)one;
  ++*(int64_t*)with;
}
static tranche_code sweep(tranche_instance* self, tranche_call* call) {
  int64_t count = 0;
  if (!each_share(self, count_one, &count)) return fail_unreadable(self, call);
  /* A host of 1.0 has no record_metric: its table ends before it. */
  if (self->host->head.struct_size >= sizeof(tranche_host_api)) self->host->record_metric(self->host->host, text_of("boards"), count);
  return TRANCHE_OK;
}
#endif

static const tranche_backend_api kTable = {
    {sizeof(tranche_backend_api), TRANCHE_ABI_MAJOR, TRANCHE_TARGET_MINOR},
    TRANCHE_BACKEND_MAGIC,
    0,
    PLAIN_C_NAME,
    "1.0.0",
    create,
    destroy,
    discover,
    prepare,
    unprepare,
    list_prepared,
    verify,
    NULL,
    NULL,
    NULL,
    NULL,
#if TRANCHE_TARGET_MINOR >= 1
    sweep,
#endif
};

TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head* host);
TRANCHE_EXPORT const tranche_backend_api* tranche_backend_v1(const tranche_head* host) {
  return host->major == TRANCHE_ABI_MAJOR && host->struct_size >= kHostOf10 ? &kTable : NULL;
}
