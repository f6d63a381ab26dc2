#!/usr/bin/env bash
# The ABI gate: passes what a minor may do, fails everything else.
#   abi_gate_test.sh SOURCE_DIRECTORY
set -euo pipefail
source=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0

"$source/tools/abi_gate"

# expect 0|1 WHAT SED-EXPRESSION: the gate's verdict about a changed header. The header's own assertions are taken out: they would stop the compiler first.
expect() {
  rm -rf "$place/include"
  mkdir "$place/include"
  cp -r "$source/sdk/include/tranche" "$place/include/"
  sed -i -E "$3" "$place/include/tranche/backend.h"
  cmp -s "$source/sdk/include/tranche/backend.h" "$place/include/tranche/backend.h" && { echo "FAILED: $2 changes nothing"; failed=1; return; }
  sed -i -E '/TRANCHE_ASSERT_LAYOUT\(tranche/d' "$place/include/tranche/backend.h"
  local code=0
  "$source/tools/abi_gate" --include "$place/include" > "$place/report" 2>&1 || code=$?
  if grep -q "error:" "$place/report"; then echo "FAILED: $2 does not compile"; cat "$place/report"; failed=1; return; fi
  if [ "$code" -eq "$1" ]; then echo "ok: $2"; else echo "FAILED: $2: exit $code"; cat "$place/report"; failed=1; fi
}
expect 1 "an inserted member" 's/^  uint32_t magic; .*/  uint32_t magic;\n  uint64_t inserted;/'
expect 1 "a removed member" '/\(\*recover\)\(/d'
expect 1 "a retyped member" 's/const char\* version; /uint64_t version; /'
expect 1 "two members exchanged" 's/^  tranche_code \(\*recover\)\(.*/@@/; s/^  tranche_code \(\*release_handles\)\(.*/  tranche_code (*recover)(tranche_instance *instance, tranche_call *call, tranche_str device);/; s/@@/  tranche_code (*release_handles)(tranche_instance *instance, tranche_call *call);/'
expect 1 "a function with one more argument" 's/uint32_t \(\*cancelled\)\(tranche_call\* call\)/uint32_t (*cancelled)(tranche_call* call, int32_t why)/'
expect 1 "a function with another result" 's/int64_t \(\*now\)/int32_t (*now)/'
expect 1 "a narrower length" 's/^  uint64_t size;/  uint32_t size;/'
expect 1 "a changed entry type" 's/^typedef struct tranche_call tranche_call;.*/typedef struct tranche_other tranche_call;/'
expect 1 "a member appended without a band" 's/^(  tranche_code \(\*sweep\).*)/\1\n  tranche_code (*later)(tranche_instance *instance);/'
expect 0 "a function appended in a band of its own" 's/^(  tranche_code \(\*sweep\).*)/\1\n#endif\n#if TRANCHE_TARGET_MINOR >= 2\n  tranche_code (*later)(tranche_instance *instance);/; s/^#define TRANCHE_ABI_MINOR 1/#define TRANCHE_ABI_MINOR 2/'
expect 0 "a service appended in a band of its own" 's/^(  void \(\*record_metric\).*)/\1\n#endif\n#if TRANCHE_TARGET_MINOR >= 2\n  void (*later)(void *host);/; s/^#define TRANCHE_ABI_MINOR 1/#define TRANCHE_ABI_MINOR 2/'
exit $failed
