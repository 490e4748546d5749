#!/bin/sh
# Builds and installs the Python package into .venv, out of build/python (kept, so that a second
# run compiles only what changed). Prints the build's output only when it fails.
set -eu
venv=${1:-.venv}
mkdir -p build
log=build/pip-install.log
echo "holdfast: installing the package into $venv (the build's output: $log)"
# The compiler by the name that CMake's presets find it by, so that ccache knows their objects again.
export CXX="${CXX:-c++}"
# No build isolation: requirements-dev.txt has the build's needs, and build/python stays valid.
if ! "$venv/bin/pip" install --disable-pip-version-check --no-build-isolation -v \
  -C build-dir=build/python . >"$log" 2>&1; then
  tail -n 60 "$log" >&2
  echo "holdfast: the package did not build; the whole output is in $log" >&2
  exit 1
fi
sed -n 's,^ *holdfast: ,holdfast: ,p' "$log"
touch "$venv/.installed"
