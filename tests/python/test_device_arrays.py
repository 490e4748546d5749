"""Objects of a region as memory of the device: DLPack and __cuda_array_interface__."""

from __future__ import annotations

import ctypes
import gc
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import DeviceArray, testing

MIB = 1 << 20
SHAPE = (3, 5, 2)

on_cuda = pytest.mark.skipif(holdfast.backend != "cuda", reason="needs the CUDA backend")
on_cpu = pytest.mark.skipif(holdfast.backend != "cpu", reason="NumPy takes memory of the CPU alone")


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("number", ctypes.c_int32))


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


FORMS = [(b"dltensor", Managed, None), (b"dltensor_versioned", ManagedVersioned, (1, 0))]


def api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


is_valid = api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
get_pointer = api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
set_name = api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


@pytest.fixture
def region(path: Path) -> Iterator[holdfast.Region]:
    with holdfast.create(path, MIB) as made:
        made.allocate("a", SHAPE, "float32")[:] = np.arange(30).reshape(SHAPE)
        yield made


def view(region: holdfast.Region) -> DeviceArray:
    """Also on the CPU backend, where on_device() refuses: its capsules are of the CPU there."""
    return DeviceArray(region._handle, "a")


@pytest.mark.parametrize(("name", "kind", "version"), FORMS)
def test_a_capsule_says_what_the_array_is(
    region: holdfast.Region, name: bytes, kind: Any, version: tuple[int, int] | None
) -> None:
    array = view(region)
    capsule = array.__dlpack__(max_version=version)
    assert is_valid(capsule, name) == 1
    managed = kind.from_address(get_pointer(capsule, name))
    tensor = managed.tensor
    assert tensor.data == region["a"].ctypes.data
    assert (tensor.device.type, tensor.device.number) == array.__dlpack_device__()
    assert array.__dlpack_device__()[0] == (2 if holdfast.backend == "cuda" else 1)
    assert tensor.shape[: tensor.ndim] == list(SHAPE)
    assert tensor.strides[: tensor.ndim] == [10, 2, 1]
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)
    assert tensor.byte_offset == 0
    if version:
        assert list(managed.version) == [1, 0]
        assert managed.flags == 0


@pytest.mark.parametrize(
    ("dtype", "code"), [("int8", 0), ("uint16", 1), ("int64", 0), ("float16", 2), ("float64", 2)]
)
def test_types(path: Path, dtype: str, code: int) -> None:
    with holdfast.create(path, MIB) as region:
        region.allocate("a", 7, dtype)
        capsule = view(region).__dlpack__()
        tensor = Managed.from_address(get_pointer(capsule, b"dltensor")).tensor
        assert (tensor.dtype.code, tensor.dtype.bits) == (code, 8 * np.dtype(dtype).itemsize)
        del capsule


@pytest.mark.parametrize(("name", "kind", "version"), FORMS)
@pytest.mark.parametrize("taken", [False, True])
def test_a_region_stays_while_a_capsule_or_its_taker_does(
    path: Path, name: bytes, kind: Any, version: tuple[int, int] | None, taken: bool
) -> None:
    region = holdfast.create(path, MIB)
    region.allocate("a", SHAPE, "float32")
    array = view(region)
    capsules = [array.__dlpack__(max_version=version) for _ in range(2)]
    pointers = [get_pointer(capsule, name) for capsule in capsules]
    assert pointers[0] != pointers[1], "each is its taker's own"
    deleters = [kind.from_address(pointer).deleter for pointer in pointers]
    del array
    if taken:
        for capsule in capsules:
            assert set_name(capsule, b"used_" + name) == 0
        capsules = []
    gc.collect()
    for deleter, pointer in zip(deleters, pointers, strict=True):
        with pytest.raises(BufferError, match="'a'"):
            region.close()
        if taken:
            deleter(pointer)
        else:
            capsules.pop(0)
    region.close()


def test_the_protocol_is_kept(region: holdfast.Region) -> None:
    array = view(region)
    own = array.__dlpack_device__()
    for stream in (None, -1, 1, 2, 1 << 40):
        array.__dlpack__(stream=stream)
    array.__dlpack__(1, max_version=(1, 2), dl_device=own, copy=False)
    array.__dlpack__(max_version=(0, 8))
    for options in ({"copy": True}, {"dl_device": (10, 0)}, {"stream": 0}, {"stream": -2}):
        with pytest.raises(BufferError):
            array.__dlpack__(**options)
    with pytest.raises(TypeError, match="stream"):
        array.__dlpack__(stream="1")  # type: ignore[arg-type]


def test_it_waits_for_what_the_region_was_given(path: Path) -> None:
    data = np.ones(1 << 20, np.uint8)
    with testing.create(path, 4 * MIB, medium="limit=4MB/s") as region:
        region.allocate("a", SHAPE, "float32")
        checkpoint = holdfast.Checkpoint(region, "c")
        checkpoint.add("g", "data", data)
        pending = checkpoint.save_async("g", 1)
        view(region).__dlpack__(stream=-1)
        assert not pending.done()
        view(region).__dlpack__(stream=1)
        assert pending.done()


@on_cpu
def test_numpy_takes_it(path: Path) -> None:
    region = holdfast.create(path, MIB)
    region.allocate("a", SHAPE, "float32")[:] = np.arange(30).reshape(SHAPE)
    taken = [np.from_dlpack(view(region)) for _ in range(2)]
    for array in taken:
        np.testing.assert_array_equal(array.ravel(), np.arange(30))
        assert np.shares_memory(array, region["a"])
    region["a"][0, 0, 0] = 9
    assert taken[1][0, 0, 0] == 9
    del array
    with pytest.raises(BufferError):
        region.close()
    taken.pop()
    with pytest.raises(BufferError):
        region.close()
    taken.pop()
    region.close()


@on_cpu
def test_it_outlives_the_block(path: Path) -> None:
    with holdfast.create(path, MIB) as region:
        region.allocate("a", SHAPE, "float32")[:] = 4
        array = view(region)
    taken = np.from_dlpack(array)
    assert taken.sum() == 120
    del array
    with pytest.raises(holdfast.Error, match="in use"):
        holdfast.open(path)
    del taken
    with holdfast.open(path) as again:
        assert again["a"].sum() == 120


# ---- With frameworks, on a GPU -------------------------------------------------------------------


def framework(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"{name} is not installed")


TAKERS = [
    ("torch", lambda torch, array: torch.from_dlpack(array)),
    ("torch", lambda torch, array: torch.as_tensor(array, device="cuda")),
    ("cupy", lambda cupy, array: cupy.from_dlpack(array)),
    ("cupy", lambda cupy, array: cupy.asarray(array)),
]
TAKER_NAMES = ["torch.from_dlpack", "torch.as_tensor", "cupy.from_dlpack", "cupy.asarray"]


def address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)


@on_cuda
@pytest.mark.parametrize("domain", ["file", "device"])
@pytest.mark.parametrize(("name", "take"), TAKERS, ids=TAKER_NAMES)
def test_frameworks_take_it(
    path: Path, name: str, take: Callable[[Any, Any], Any], domain: str
) -> None:
    library = framework(name)
    region = holdfast.create(path, MIB, domain=domain)
    array = region.allocate_on_device("a", SHAPE, "float32")
    first, second = take(library, array), take(library, region.on_device("a"))
    assert address(first) == address(second) == array.__cuda_array_interface__["data"][0]
    assert tuple(first.shape) == SHAPE
    first[:] = 3
    second += 4
    assert float(second.sum()) == 7 * 30
    if domain == "file":
        region.commit()  # waits for the framework's streams
        assert array.numpy().sum() == 7 * 30
    with pytest.raises(BufferError, match="'a'"):
        region.close()
    del first, second, array
    gc.collect()
    region.close()
    if domain == "file":
        with holdfast.open(path) as again:
            assert again["a"].sum() == 7 * 30


@on_cuda
@pytest.mark.parametrize(("name", "take"), TAKERS, ids=TAKER_NAMES)
def test_commits_wait_for_frameworks(
    path: Path, name: str, take: Callable[[Any, Any], Any]
) -> None:
    library = framework(name)
    count = 16 * MIB
    with holdfast.create(path, 80 * MIB) as region:
        array = region.allocate_on_device("a", count, "float32")
        taken = take(library, array)
        host = array.numpy()
        for value in range(1, 6):
            taken[:] = value
            region.commit_async()
            assert (host == value).all(), "the kernel is done once the snapshot is taken"
        del taken, array, host
        gc.collect()


@on_cuda
def test_the_host_is_refused(path: Path) -> None:
    with holdfast.create(path, MIB) as region:
        array = region.allocate_on_device("a", SHAPE, "float32")
        with pytest.raises(BufferError, match=r"numpy\(\)"):
            array.__dlpack__(dl_device=(1, 0))
        assert array.numpy().shape == SHAPE
        del array
