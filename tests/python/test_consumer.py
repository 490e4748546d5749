"""A project of its own, tests/consumer, uses Holdfast in each way that docs/install.md names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import REPOSITORY

CONSUMER = REPOSITORY / "tests" / "consumer"
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def call(
    *command: object, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def succeed(*command: object, cwd: Path | None = None, **more: str) -> str:
    done = call(*command, cwd=cwd, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configure(build: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    return call("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", *definitions)


def configured(build: Path, *definitions: str) -> None:
    done = configure(build, *definitions)
    assert done.returncode == 0, done.stdout + done.stderr


def use(build: Path, scratch: Path) -> None:
    """Builds the project and runs what it made: bank, scores, and the checks where they are."""
    # So that a compiler's cache knows the sources again, wherever this test has put them.
    succeed("cmake", "--build", build, CCACHE_BASEDIR=str(build.parent))
    scratch.mkdir()
    succeed(build / "bank", cwd=scratch)
    # A clean close leaves the image, which the next life opens.
    assert (scratch / "bank.hf").exists()
    succeed(build / "scores", cwd=scratch)
    if (build / "check_deposits").exists():
        succeed("ctest", "--test-dir", build, "--output-on-failure")


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed library with its checker, moved from where it was installed to."""
    folder = tmp_path_factory.mktemp("library")
    build = REPOSITORY / "build" / "library"
    succeed("cmake", "--preset", "library", cwd=REPOSITORY)
    succeed("cmake", "--build", build)
    succeed("cmake", "--install", build, "--prefix", folder / "first")
    (folder / "first").rename(folder / "prefix")
    return folder / "prefix"


def test_package(prefix: Path, tmp_path: Path) -> None:
    configured(tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    use(tmp_path / "build", tmp_path / "scratch")


def test_package_names_nothing_of_the_build(prefix: Path) -> None:
    for path in prefix.rglob("*"):
        if path.suffix in (".cmake", ".pc", ".hpp", ".h", ".inl"):
            assert str(REPOSITORY) not in path.read_text(), path


def test_package_without_holdfast_kernels_is_of_no_use(prefix: Path, tmp_path: Path) -> None:
    broken = tmp_path / "prefix"
    shutil.copytree(prefix, broken)
    next(broken.rglob("HoldfastKernels.cmake")).unlink()
    done = configure(tmp_path / "build", f"-DCMAKE_PREFIX_PATH={broken}")
    assert done.returncode != 0
    assert "HoldfastKernels" in done.stderr


def test_package_says_what_it_lacks(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
        "find_package(holdfast CONFIG REQUIRED COMPONENTS cuda)\n"
    )
    done = call("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert done.returncode != 0
    assert "cuda" in done.stderr


@pytest.mark.parametrize(("asked", "found"), [("0.1", True), ("0.0", False), ("9", False)])
def test_package_version(prefix: Path, tmp_path: Path, asked: str, found: bool) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
        f"find_package(holdfast {asked} CONFIG REQUIRED)\n"
    )
    done = call("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert (done.returncode == 0) == found, done.stderr


def test_two_flavours_in_one_program_are_refused(prefix: Path, tmp_path: Path) -> None:
    done = configure(
        tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DHOLDFAST_TEST_BOTH_FLAVOURS=ON"
    )
    assert done.returncode != 0
    assert "HOLDFAST_INTERCEPT" in done.stderr


def test_older_language_is_refused(prefix: Path, tmp_path: Path) -> None:
    source = tmp_path / "old.cpp"
    source.write_text('#include "holdfast/region.hpp"\n')
    done = call(
        "c++", "-std=c++17", "-fsyntax-only", "-DHOLDFAST_BACKEND_CPU=1",
        f"-I{prefix / 'include'}", source,
    )  # fmt: skip
    assert done.returncode != 0
    assert "C++20" in done.stderr


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    source = tmp_path / "host.cpp"
    source.write_text(
        '#include "holdfast/region.hpp"\n'
        "int main() {\n"
        '  auto region = holdfast::Region::create("host.hf", {.size = 1 << 20});\n'
        '  region.allocate<double>("balance", 4)[0] = 1;\n'
        "  region.commit();\n"
        "}\n"
    )
    folder = next(prefix.rglob("holdfast.pc")).parent
    flags = succeed(
        "pkg-config", "--cflags", "--libs", "holdfast",
        PKG_CONFIG_PATH=str(folder),
    )  # fmt: skip
    succeed("g++", source, *flags.split(), "-o", "host", cwd=tmp_path)
    succeed(tmp_path / "host", cwd=tmp_path)


@pytest.mark.parametrize("way", ["subdirectory", "fetch"])
def test_checkout(way: str, tmp_path: Path) -> None:
    """The library alone, with what the checker is asked for by name."""
    checkout = REPOSITORY
    commit = ""
    if way == "fetch":
        # What git knows of the working tree, as a repository of its own.
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        files = succeed("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=REPOSITORY)
        for name in filter(None, files.split("\0")):
            if (REPOSITORY / name).is_file() and not name.startswith("bench/results/"):
                (checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / name, checkout / name)
        succeed("git", "init", "-q", "-b", "main", cwd=checkout)
        succeed("git", "add", "-A", cwd=checkout)
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
        succeed("git", *identity, "commit", "-q", "-m", "as it is", cwd=checkout)
        commit = succeed("git", "rev-parse", "HEAD", cwd=checkout).strip()
    configured(
        tmp_path / "build",
        f"-DHOLDFAST_BY={way}",
        f"-DHOLDFAST_CHECKOUT={checkout}",
        f"-DHOLDFAST_COMMIT={commit}",
        f"-DHOLDFAST_CHECKER={'OFF' if way == 'fetch' else 'ON'}",
        "-DHOLDFAST_WERROR=ON",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        *launcher(),
    )
    # No tests, workloads, tools or benchmarks.
    commands = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    compiled = {Path(command["file"]) for command in commands}
    ours = {path for path in compiled if not path.is_relative_to(CONSUMER)}
    assert ours
    assert all("src" in path.parts and "tests" not in path.parts for path in ours)
    use(tmp_path / "build", tmp_path / "scratch")


def launcher() -> list[str]:
    """The project's own trees use ccache where it is; the consumer's says so itself."""
    ccache = shutil.which("ccache")
    return [f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if ccache else []


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_cuda(tmp_path: Path) -> None:
    """The example is compiled for a GPU, by a package of the CUDA backend."""
    prefix = tmp_path / "prefix"
    build = REPOSITORY / "build" / "cuda"
    if not (build / "src" / "libholdfast.a").exists():
        pytest.skip("the CUDA backend is not built: make test-cuda")
    succeed("cmake", "--build", build, "--target", "holdfast")  # it may be an older one
    succeed("cmake", "--install", build, "--prefix", prefix)
    configured(
        tmp_path / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DHOLDFAST_BACKEND=cuda",
        f"-DCMAKE_CUDA_COMPILER={NVCC}",
        "-DCMAKE_CUDA_ARCHITECTURES=90",
    )
    succeed("cmake", "--build", tmp_path / "build")
    assert (tmp_path / "build" / "bank").exists()
