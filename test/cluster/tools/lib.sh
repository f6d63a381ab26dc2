# Shared by the tools of this folder; sourced, never run. Says where things are: the cache, the Go tool and the built commands.

cluster_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cluster_cache=${TRANCHE_CACHE:-$HOME/.cache/tranche}/cluster

fail() { echo "$(basename "$0"): $*" >&2; exit 1; }

# The module of a Kubernetes minor version: the newest is the folder itself.
module_dir() { # [MINOR]
  case ${1:-} in
    ''|1.37) echo "$cluster_dir" ;;
    *) [ -f "$cluster_dir/versions/v$1/go.mod" ] || fail "Kubernetes $1 is not known here; choose 1.37 or one of: $(ls "$cluster_dir/versions")"
       echo "$cluster_dir/versions/v$1" ;;
  esac
}

# Where the commands of a module lie. The key names everything that goes into them.
bin_dir() { # MODULE_DIR GO
  local version hash
  version=$(sed -n 's/^\tk8s\.io\/kubernetes \(v[^ ]*\).*/\1/p' "$1/go.mod")
  hash=$({ cat "$1/go.mod" "$1/go.sum" "$cluster_dir/tools/build"; "$2" version; } | sha256sum | cut -c1-12)
  echo "$cluster_cache/$version-$hash/bin"
}
