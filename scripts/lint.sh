#!/bin/bash
# Formats, types and linters. Every tool is run, so that one call shows everything.
set -uo pipefail
failed=()

check() {
  local name=$1
  shift
  if "$@"; then
    echo "lint: $name: ok"
  else
    echo "lint: $name: FAILED" >&2
    failed+=("$name")
  fi
}

c_files() { git ls-files --cached --others --exclude-standard -- "$@" | sort -u; }

# clang-tidy over what the cpu preset compiles, but for the tests and for kernels: it does not
# know CUDA's names as our header spells them.
tidy() {
  cmake --preset cpu >/dev/null || return 1
  c_files 'src/*.cpp' 'apps/*.cpp' 'python/bindings/*.cpp' |
    python3 scripts/in_compile_commands.py build/cpu/compile_commands.json |
    xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p build/cpu 2>build/clang-tidy.log ||
    { grep -E 'error' build/clang-tidy.log; return 1; }
}

check "ruff" ruff check
check "ruff format" ruff format --check
check "mypy" mypy
check "clang-format" bash -c \
  "git ls-files --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.h' |
   xargs -r clang-format --dry-run -Werror"
check "shell syntax" bash -c 'for f in scripts/*.sh .ci/run; do bash -n "$f" || exit 1; done'
check "clang-tidy" tidy

if ((${#failed[@]})); then
  echo "lint: failed: ${failed[*]}" >&2
  exit 1
fi
echo "lint: all passed"
