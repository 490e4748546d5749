# make demo    installs what is missing of what the demo needs, and runs it
# make all     builds and installs the whole package: the checker, the workloads' runner, and the
#              CUDA module where nvcc is present
# make wheel   builds dist/*.whl, which needs nothing of this machine, and dist/*.tar.gz
# make test    everything that is tested: C++, Python, the sanitizers, and the CUDA build where
#              nvcc is present; long tests try one in ten of what they try, SHARE=1: all of it
# make lint    formats, types, linters       make format  formats the sources
# make bench   runs the benchmarks           make results makes docs/results.md of their files
# make docs    brings what the docs quote up to date
# make clean   removes what was built
SHELL := /bin/bash
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
KILLS ?= 25
SHARE ?= 10

NVCC := $(shell command -v nvcc || ls $${CUDA_PATH:-/usr/local/cuda}/bin/nvcc 2>/dev/null)
ifneq ($(NVCC),)
export CUDACXX ?= $(NVCC)
endif

# The package's parts, each with a build tree of its own, are of the objects that the presets have:
# ccache knows them again where neither the folder nor what a warning is taken for tells them apart.
export CCACHE_NOHASHDIR := true
test lint: export HOLDFAST_WERROR := ON

# Real inputs of the workloads, where they are; without them inputs are generated.
DATA := $(wildcard ../shared/data)
ifneq ($(DATA),)
export HOLDFAST_DATA ?= $(abspath $(DATA))
endif

# What the Python package is built from.
SOURCES := CMakeLists.txt pyproject.toml README.md LICENSE bench/requirements.txt \
  $(shell find include src workloads examples litmus tools python cmake -type f -not -name '*.pyc' \
    -not -path 'workloads/*_test.cpp' 2>/dev/null)

.PHONY: demo all wheel test lint bench results docs format clean system tools install cpu \
  test-cpu test-check test-asan test-python test-cuda

demo:
	@scripts/bootstrap.sh demo
	@scripts/venv.sh $(VENV) demo
	@$(MAKE) --no-print-directory -s $(VENV)/.demo
	@holdfast demo --kills $(KILLS)

all: install

wheel: tools
	@scripts/wheel.sh $(VENV)

bench: install cpu
	holdfast bench run

results: install
	$(VENV)/bin/python -m holdfast_bench.report

docs: install cpu
	$(VENV)/bin/python scripts/doc_blocks.py

system:
	@scripts/bootstrap.sh

tools: system
	@scripts/venv.sh $(VENV)

install: tools
	@$(MAKE) --no-print-directory -s $(VENV)/.installed

$(VENV)/.installed: $(SOURCES)
	@scripts/install.sh $(VENV) all

# Where the whole package is installed it is kept whole.
$(VENV)/.demo: $(SOURCES)
	@scripts/install.sh $(VENV) $(if $(wildcard $(VENV)/.installed),all,demo)

test:
	@$(MAKE) --no-print-directory test-cpu
	@$(MAKE) --no-print-directory test-check
	@$(MAKE) --no-print-directory test-asan
	@$(MAKE) --no-print-directory test-cuda
	@$(MAKE) --no-print-directory test-python
	@echo "holdfast: all tests passed"

cpu: tools
	cmake --preset cpu >/dev/null
	cmake --build --preset cpu -j $(JOBS)

test-cpu: cpu
	HOLDFAST_TEST_SHARE=$(SHARE) ctest --preset cpu -j $(JOBS)

test-check: tools
	cmake --preset cpu-check >/dev/null
	cmake --build --preset cpu-check -j $(JOBS)
	HOLDFAST_TEST_SHARE=$(SHARE) ctest --preset cpu-check -j $(JOBS)

test-asan: tools
	cmake --preset asan >/dev/null
	cmake --build --preset asan -j $(JOBS)
	HOLDFAST_TEST_SHARE=$(SHARE) ctest --preset asan -j $(JOBS)

test-python: install cpu
	pytest -n $(JOBS) --dist loadfile

test-cuda: tools
ifneq ($(NVCC),)
	cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 >/dev/null
	cmake --build --preset cuda -j $(JOBS) --target kernels
else
	@echo "holdfast: no nvcc here: the CUDA backend was not compiled"
endif

lint: install
	@scripts/lint.sh

format: tools
	ruff check --fix-only --exit-zero
	ruff format
	git ls-files -- '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.inl' '*.h' | xargs clang-format -i

clean:
	rm -rf build $(VENV)
