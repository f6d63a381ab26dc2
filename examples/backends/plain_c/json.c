#include "json.h"

#include <string.h>

static uint64_t skip_space(json_slice text, uint64_t at) {
  while (at < text.size && (text.data[at] == ' ' || text.data[at] == '\n' || text.data[at] == '\t' || text.data[at] == '\r')) ++at;
  return at;
}

/* The place behind the value that begins at `at`. Never beyond the text. */
static uint64_t skip_value(json_slice text, uint64_t at) {
  int depth = 0, quoted = 0;
  for (; at < text.size; ++at) {
    const char c = text.data[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"') quoted = 0;
      if (c == '"' && depth == 0) return at + 1;
      continue;
    }
    if (c == '"') quoted = 1;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && depth == 0) return at;
    if ((c == '}' || c == ']') && --depth == 0) return at + 1;
    if (depth == 0 && (c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r')) return at;
  }
  return text.size;
}

static json_slice value_at(json_slice text, uint64_t at) {
  json_slice value = {0, 0};
  at = skip_space(text, at);
  const uint64_t end = skip_value(text, at);
  if (end <= at || end > text.size) return value;
  value.data = text.data + at;
  value.size = end - at;
  return value;
}

json_slice json_member(json_slice object, const char* name) {
  const json_slice none = {0, 0};
  uint64_t at = skip_space(object, 0);
  if (object.data == 0 || at >= object.size || object.data[at] != '{') return none;
  ++at;
  while (at < object.size) {
    const json_slice key = value_at(object, at);
    if (key.data == 0 || key.data[0] != '"') return none;
    at = skip_space(object, (uint64_t)(key.data - object.data) + key.size);
    if (at >= object.size || object.data[at] != ':') return none;
    const json_slice value = value_at(object, at + 1);
    if (value.data == 0 || json_is(key, name)) return value;
    at = skip_space(object, (uint64_t)(value.data - object.data) + value.size);
    if (at >= object.size || object.data[at] != ',') return none;
    ++at;
  }
  return none;
}

json_slice json_first(json_slice array) {
  const json_slice none = {0, 0};
  const uint64_t at = skip_space(array, 0);
  return array.data == 0 || at >= array.size || array.data[at] != '[' ? none : value_at(array, at + 1);
}

json_slice json_next(json_slice array, json_slice element) {
  const json_slice none = {0, 0};
  const uint64_t at = skip_space(array, (uint64_t)(element.data - array.data) + element.size);
  return at >= array.size || array.data[at] != ',' ? none : value_at(array, at + 1);
}

int64_t json_integer(json_slice value) {
  int64_t number = 0;
  uint64_t at;
  for (at = 0; at < value.size; ++at) {
    if (value.data[at] < '0' || value.data[at] > '9' || number > INT64_MAX / 10 - 1) return 0;
    number = number * 10 + (value.data[at] - '0');
  }
  return number;
}

int json_is(json_slice value, const char* text) {
  const uint64_t size = strlen(text);
  return value.size == size + 2 && value.data[0] == '"' && memcmp(value.data + 1, text, size) == 0;
}
