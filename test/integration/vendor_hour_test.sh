#!/usr/bin/env bash
# docs/write-a-backend.md as a newcomer follows it: installs the SDK to a prefix of its own and runs exactly the commands of the document, in an
# empty folder, with nothing of the build tree in reach.
#   vendor_hour_test.sh BUILD_DIRECTORY SOURCE_DIRECTORY
set -euo pipefail
build=$1
source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

cmake --install "$build" --component sdk --prefix "$place/prefix" > "$place/install.log"
mkdir "$place/empty"

# Every line of a code block that begins with "$ ".
sed -n '/^```$/,/^```$/ s/^\$ //p' "$source/docs/write-a-backend.md" > "$place/commands"
count=$(wc -l < "$place/commands")
echo "the document has $count commands"
[ "$count" -gt 5 ] || { echo "too few: the document has lost its commands"; exit 1; }
[ "$count" -le 10 ] || { echo "too many: at most 10 are allowed"; exit 1; }

cd "$place/empty"
start=$SECONDS
env -i HOME="$place" PATH=/usr/bin:/bin:/usr/sbin:/sbin PREFIX="$place/prefix" bash -euo pipefail -x "$place/commands" > "$place/output" 2>&1 || {
  cat "$place/output"
  echo "a command of the document failed"
  exit 1
}
cat "$place/output"
for expected in "100% tests passed" "claims served and released" " 0 failed"; do
  grep -qF "$expected" "$place/output" || { echo "the output lacks: $expected"; exit 1; }
done
# The paths of this build must not have leaked into what a vendor gets.
if grep -rIl "$source" "$place/prefix/include" "$place/prefix/lib" "$place/prefix/share"; then
  echo "the installed SDK names the source tree"
  exit 1
fi
test "$(PKG_CONFIG_PATH=$(dirname "$(find "$place/prefix" -name tranche-sdk.pc)") pkg-config --modversion tranche-sdk | cut -d. -f1)" = 1

# A backend in C, with pkg-config alone.
mkdir "$place/c" && cd "$place/c"
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$place/prefix" -name tranche-sdk.pc)") pkg-config --cflags tranche-sdk)
exports=$(find "$place/prefix" -name backend.exports)
# shellcheck disable=SC2086
cc -std=gnu11 -fPIC -shared -fvisibility=hidden $flags -Wl,--version-script="$exports" -o plain_c.so "$source"/examples/backends/plain_c/*.c
cmake -DNAME=plain_c -DVERSION=1.0.0 -DLICENSE=Apache-2.0 -DABI=1.0 -DARCH="$(uname -m)" -DLIBRARY="$PWD/plain_c.so" \
  -DSCHEMA="$source/examples/backends/plain_c/config.schema.json" -P "$(find "$place/prefix" -name WriteManifest.cmake)"
echo '{"memoryMiB": 1024}' > config.json
"$place/prefix/bin/tranche-conform" plain_c.so --config config.json > report || { cat report; exit 1; }
tail -1 report
echo "the vendor's hour took $((SECONDS - start)) s"
