#!/bin/sh
# Installs the system packages that the build needs and that are missing (Debian, Ubuntu).
# Needs root or sudo only where something is missing.
#
#   scripts/bootstrap.sh [all|demo]     demo: what `make demo` needs, and no more
set -eu

packages="g++ cmake ninja-build libboost-context-dev libxxhash-dev libpmem2-dev
python3 python3-venv python3-dev"
if [ "${1:-all}" = all ]; then
  packages="$packages pkg-config ccache liblzma-dev zlib1g-dev nlohmann-json3-dev libgtest-dev
libopenmpi-dev openmpi-bin"
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "holdfast: no dpkg here; make sure that these are installed:" $packages >&2
  exit 0
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo"
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
  as_root="sudo"
else
  echo "holdfast: these packages are missing:$missing" >&2
  echo "holdfast: install them as root, then run make again:" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends$missing" >&2
  exit 1
fi
mkdir -p build
log=build/system-packages.log
# apt_get ARGUMENT...: its output goes to the log, and is shown where it fails.
apt_get() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "holdfast: apt-get $1 failed; its whole output is in $log" >&2
    exit 1
  }
}
echo "holdfast: fetching$missing ($log)"
: >"$log"
apt_get update
apt_get install -y --no-install-recommends --download-only $missing
echo "holdfast: installing them"
apt_get install -y --no-install-recommends $missing
