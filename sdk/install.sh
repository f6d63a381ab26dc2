#!/usr/bin/env bash
# Builds the SDK of this checkout and installs it with host, runner and tranchectl, so that a backend can be tried without a cluster.
#   sdk/install.sh PREFIX [PRESET]      PRESET: release (default), dev
# Distribution packages that the build lacks are installed first (Debian 12).
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: sdk/install.sh PREFIX [PRESET], for example sdk/install.sh /opt/tranche-sdk" >&2; exit 2; }
prefix=$(realpath -m "$1")
preset=${2:-release}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
cmake --build --preset "$preset" --target sdk_package
cmake --install "build/$preset" --component sdk --prefix "$prefix" > /dev/null
echo "the SDK is in $prefix; next: export PATH=$prefix/bin:\$PATH"
