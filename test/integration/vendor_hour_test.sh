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

# Every line of a code block that begins with "$ ". The first is the installation, which has happened above from what is built.
sed -n '/^```$/,/^```$/ s/^\$ //p' "$source/docs/write-a-backend.md" > "$place/all"
count=$(wc -l < "$place/all")
echo "the document has $count commands"
[ "$count" -gt 5 ] || { echo "too few: the document has lost its commands"; exit 1; }
[ "$count" -le 10 ] || { echo "too many: at most 10 are allowed"; exit 1; }
numbers=$(sed -E 's/.* # ([0-9]+).*/\1/' "$place/all")
[ "$numbers" = "$(seq "$count")" ] || { echo "the commands of the document are not numbered from 1 to $count"; exit 1; }
if ! head -1 "$place/all" | grep -q '^sdk/install.sh /opt/tranche-sdk'; then echo "the first command is not the installation"; exit 1; fi
sed "1d; s|/opt/tranche-sdk|$place/prefix|g" "$place/all" > "$place/commands"

cd "$place/empty"
start=$SECONDS
env -i HOME="$place" PATH=/usr/bin:/bin:/usr/sbin:/sbin bash -euo pipefail -x "$place/commands" > "$place/output" 2>&1 || {
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

# The manifest of a changed library, and a backend in C: the commands of the document as they are, in the places that it names.
document() { sed -n "/^## $1/,/^## / { /^\`\`\`sh\$/,/^\`\`\`\$/ { /^\`\`\`/d; s|/opt/tranche-sdk|$place/prefix|g; p } }" "$source/docs/write-a-backend.md"; }
cd "$place/empty/my_accelerator"
strip build/my_accelerator.so
before=$("$place/prefix/bin/tranche-conform" build/my_accelerator.so --config config.json --manifest || true)
grep -q "TB-005  FAILED" <<< "$before" || { echo "strip did not change the library"; exit 1; }
bash -euo pipefail -xc "$(document "5. Ship it")"
"$place/prefix/bin/tranche-conform" build/my_accelerator.so --config config.json > report || { cat report; exit 1; }
if cmake -DNAME=x -DVERSION=1.0.0 -DLIBRARY=absent.so -P "$(find "$place/prefix" -name WriteManifest.cmake)" 2> error; then
  echo "a manifest of no library was written"
  exit 1
fi
grep -q "is no file; nothing was written" error || { cat error; exit 1; }

cp -r "$place/prefix/share/tranche/examples/plain_c" "$place/c" && cd "$place/c"
bash -euo pipefail -xc "$(document "In plain C")"
echo '{"memoryMiB": 1024}' > config.json
"$place/prefix/bin/tranche-conform" plain_c.so --config config.json > report || { cat report; exit 1; }
tail -1 report
echo "the vendor's hour took $((SECONDS - start)) s"
