/* A library with the whole ABI in its debug information: abidw describes it, abidiff compares it with what was released. */
#include <tranche/backend.h>

TRANCHE_EXPORT const tranche_backend_api *tranche_backend_v1(const tranche_head *host);

/* The host's table is no argument of the entry: it is reached through create. */
const tranche_backend_api *tranche_backend_v1(const tranche_head *host) {
  static tranche_backend_api table;
  table.head = *host;
  return &table;
}
