#!/bin/sh
# Makes .venv with the tools of requirements-dev.txt; does nothing where it is up to date.
#
#   scripts/venv.sh [VENV] [all|demo]
#
# demo: what builds the Python package, and no more.
set -eu
venv=${1:-.venv}
what=${2:-all}
if [ "$what" = demo ]; then
  # Not as constraints: pip takes none where a requirement names extras.
  tools=$(grep -oE '^(scikit-build-core|nanobind)==[^ #]+' requirements-dev.txt)
  named=$tools
  stamp="$venv/.tools-demo"
else
  tools="-r requirements-dev.txt"
  named=$(sed 's,#.*,,' requirements-dev.txt)
  stamp="$venv/.tools"
fi

if [ ! -x "$venv/bin/python" ]; then
  echo "holdfast: making the virtual environment $venv"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "holdfast: python3 is older than 3.10" >&2
    exit 1
  }
  python3 -m venv "$venv"
fi
# Whatever has all tools has those of the demo.
if [ "$what" = demo ] && [ -e "$venv/.tools" ]; then stamp="$venv/.tools"; fi
if [ ! -e "$stamp" ] || [ requirements-dev.txt -nt "$stamp" ]; then
  echo "holdfast: installing into $venv:" $named
  # shellcheck disable=SC2086  # words
  "$venv/bin/pip" install -q --disable-pip-version-check $tools
  # The presets need CMake 3.25; Debian 12 has it.
  PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" - <<'PY' ||
import re, subprocess, sys
text = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
version = tuple(map(int, re.search(r"(\d+)\.(\d+)", text).groups()))
sys.exit(version < (3, 25))
PY
    "$venv/bin/pip" install -q --disable-pip-version-check 'cmake>=3.25,<5'
  touch "$stamp"
fi
