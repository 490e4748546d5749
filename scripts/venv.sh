#!/bin/sh
# Makes .venv with the tools of requirements-dev.txt; does nothing where it is up to date.
set -eu
venv=${1:-.venv}
stamp="$venv/.tools"

if [ ! -x "$venv/bin/python" ]; then
  echo "holdfast: making the virtual environment $venv"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "holdfast: python3 is older than 3.10" >&2
    exit 1
  }
  python3 -m venv "$venv"
fi
if [ ! -e "$stamp" ] || [ requirements-dev.txt -nt "$stamp" ]; then
  echo "holdfast: installing into $venv:" $(sed 's,#.*,,' requirements-dev.txt)
  "$venv/bin/pip" install -q --disable-pip-version-check -r requirements-dev.txt
  # Ubuntu 22.04 ships CMake 3.22; the presets need 3.25.
  "$venv/bin/python" - <<'PY' || "$venv/bin/pip" install -q --disable-pip-version-check 'cmake>=3.25,<5'
import re, subprocess, sys
text = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
version = tuple(map(int, re.search(r"(\d+)\.(\d+)", text).groups()))
sys.exit(version < (3, 25))
PY
  touch "$stamp"
fi
