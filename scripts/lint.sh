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

# Files of the repository: known to git or new, and there.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | sort -u |
    while read -r file; do [ -e "$file" ] && echo "$file"; done
}

c_format() {
  files '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.inl' '*.h' | xargs -r clang-format --dry-run -Werror
}

shell_syntax() {
  local file
  for file in scripts/*.sh scripts/fresh_machine scripts/gpu_round .ci/run; do bash -n "$file" || return 1; done
}

# clang-tidy over the host files that the presets cpu and cpu-check compile, tests apart: each by itself,
# where the presets compile some together. Kernels are left out: it does not know CUDA's names as our
# header spells them. It brings no OpenMP header: the compiler's does. libstdc++'s own use of what it
# calls deprecated is none of our business.
tidy() {
  local preset
  mkdir -p build/tidy
  ln -sf "$(c++ -print-file-name=include/omp.h)" build/tidy/omp.h
  : >build/tidy/seen
  for preset in cpu cpu-check; do
    cmake --preset $preset -B build/tidy/$preset -DCMAKE_UNITY_BUILD=OFF >/dev/null || return 1
    files 'src/*.cpp' 'workloads/*.cpp' 'tools/*.cpp' 'bench/*.cpp' |
      grep -vE '_(test|checks|stand_in)\.cpp$' |
      python scripts/in_compile_commands.py build/tidy/$preset/compile_commands.json |
      grep -vxFf build/tidy/seen >build/tidy/files
    cat build/tidy/files >>build/tidy/seen
    xargs -r -n 1 -P "$(nproc)" clang-tidy --quiet -p build/tidy/$preset \
      "--extra-arg=-isystem$PWD/build/tidy" --extra-arg=-Wno-deprecated-declarations \
      --extra-arg=-Wno-unknown-warning-option <build/tidy/files 2>build/clang-tidy.log ||
      { grep -A 20 ': error:' build/clang-tidy.log; return 1; }
  done
}

check "ruff" ruff check
check "ruff format" ruff format --check
check "mypy" mypy
check "clang-format" c_format
check "shell syntax" shell_syntax
check "the results' page is of the results" python -m holdfast_bench.report --check
check "clang-tidy" tidy

if ((${#failed[@]})); then
  echo "lint: failed: ${failed[*]}" >&2
  exit 1
fi
echo "lint: all passed"
