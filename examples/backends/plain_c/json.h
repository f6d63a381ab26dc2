/* SPDX-License-Identifier: Apache-2.0
 * Just enough JSON for a backend: slices of the host's own texts, nothing is copied or changed. The host writes valid JSON. */
#ifndef PLAIN_C_JSON_H
#define PLAIN_C_JSON_H

#include <stdint.h>

typedef struct json_slice {
  const char* data; /* NULL: there is none */
  uint64_t size;
} json_slice;

/* The value of a member of an object: text as it stands, quotes included. */
json_slice json_member(json_slice object, const char* name);
/* The first element of an array, and the one after `element`. */
json_slice json_first(json_slice array);
json_slice json_next(json_slice array, json_slice element);
/* 0 when it is no whole number. */
int64_t json_integer(json_slice value);
/* Whether a string has exactly this text. */
int json_is(json_slice value, const char* text);

#endif
