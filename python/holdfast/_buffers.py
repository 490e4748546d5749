"""Arrays of other libraries as addresses: where they lie, and of what type and shape they are."""

from __future__ import annotations

import math
import operator
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _types
from ._backend import ext
from ._errors import Error

# DLPack's numbers.
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


@dataclass(frozen=True)
class Buffer:
    """The memory of an array: contiguous, in C's order, and writable unless it is only read."""

    address: int
    shape: tuple[int, ...]
    dtype: str  # NumPy's or PyTorch's name
    itemsize: int  # bytes
    on_device: bool
    torch: bool
    keep: Any  # what must live for as long as the address is used

    @property
    def nbytes(self) -> int:
        return self.itemsize * math.prod(self.shape)

    def check_writable(self, what: str) -> None:
        """Raises Error if it is NumPy's and was made read-only since buffer_of() took it."""
        if isinstance(self.keep, np.ndarray) and not self.keep.flags.writeable:
            raise _read_only(what)


def _refuse(what: str, why: str) -> Error:
    return Error(f"{what}: {why}")


def _not_contiguous(what: str) -> Error:
    return _refuse(what, "the array is not contiguous in C's order: give a contiguous copy of it")


def _read_only(what: str) -> Error:
    return _refuse(what, "the array is read-only, and is written into: give a copy of it")


def _masked(what: str) -> Error:
    return _refuse(what, "the array is masked: save its data and its mask as two arrays")


def is_torch(array: Any) -> bool:
    """Whether it is a tensor of PyTorch, which is not imported for this."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor is not None and isinstance(array, tensor)


def is_array(value: Any) -> bool:
    """Whether buffer_of() may know it."""
    if isinstance(value, np.generic):  # has no memory that could be written
        return False
    protocols = ("__cuda_array_interface__", "__dlpack__")
    return is_torch(value) or any(hasattr(type(value), name) for name in protocols)


def _of_numpy(array: np.ndarray[Any, Any], what: str, only_read: bool) -> Buffer:
    if isinstance(array, np.ma.MaskedArray):
        raise _masked(what)
    name = array.dtype.name
    if not _types.is_buffer_type(name) or not array.dtype.isnative:
        raise _refuse(
            what,
            f"elements of type {array.dtype} cannot be saved: save .view(numpy.uint8), or "
            f".astype() one of {_types.buffer_types()}",
        )
    if not array.flags.c_contiguous:
        raise _not_contiguous(what)
    if not array.flags.writeable and not only_read:
        raise _read_only(what)
    return Buffer(array.ctypes.data, array.shape, name, array.itemsize, False, False, array)


def _of_torch(tensor: Any, what: str) -> Buffer:
    device = tensor.device.type
    if device not in ("cpu", "cuda"):
        raise _refuse(what, f"the tensor is on device '{device}': save one on cpu or cuda")
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise _refuse(what, "the tensor is sparse or quantized: save a dense one")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise _not_contiguous(what)
    return Buffer(
        tensor.data_ptr(),
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        tensor.element_size(),
        device == "cuda",
        True,
        tensor.detach(),
    )


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> bool:
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != unit:
            return False
        unit *= extent
    return True


def _cuda_interface(array: Any, what: str) -> dict[str, Any]:
    """Returns what an array says of itself, in the types that it should have."""
    try:
        said = dict(array.__cuda_array_interface__)
        said["typestr"] = np.dtype(said["typestr"])
        said["shape"] = tuple(map(operator.index, said["shape"]))
        address, read_only = said["data"]
        said["data"] = operator.index(address), read_only
        if said.get("strides") is not None:
            said["strides"] = tuple(map(operator.index, said["strides"]))
            if len(said["strides"]) != len(said["shape"]):
                raise ValueError("it has not as many strides as extents")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refuse(
            what,
            f"{type(array).__name__} has a __cuda_array_interface__ that is none "
            f"({type(error).__name__}: {error}): it takes typestr, shape and data",
        ) from None
    return said


def _of_cuda_interface(array: Any, what: str, only_read: bool) -> Buffer:
    interface = _cuda_interface(array, what)
    dtype, shape = interface["typestr"], interface["shape"]
    address, read_only = interface["data"]
    strides = interface.get("strides")
    if interface.get("mask") is not None:
        raise _masked(what)
    if not _types.is_buffer_type(dtype.name) or not dtype.isnative:
        raise _refuse(what, f"elements of type {dtype} cannot be saved")
    if strides is not None and not _is_contiguous(shape, strides, dtype.itemsize):
        raise _not_contiguous(what)
    if read_only and not only_read:
        raise _read_only(what)
    return Buffer(address, shape, dtype.name, dtype.itemsize, True, False, array)


def _of_dlpack(array: Any, what: str) -> Buffer:
    try:
        view = ext.view_array(array)
    except TypeError:
        raise _refuse(
            what, f"{type(array).__name__} does not hand out writable memory: add a copy of it"
        ) from None
    kind = _KINDS.get(view.code)
    name = "bool" if kind == "bool" else f"{kind}{view.bits}"
    if kind is None or not _types.is_buffer_type(name):
        raise _refuse(
            what, f"elements of DLPack's type {view.code} with {view.bits} bits cannot be saved"
        )
    if view.device not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise _refuse(
            what, f"the array is on DLPack's device {view.device}: save one on CPU or CUDA"
        )
    shape = tuple(view.shape)
    if not _is_contiguous(shape, tuple(view.strides), 1):
        raise _not_contiguous(what)
    on_device = view.device != _CPU
    return Buffer(view.address, shape, name, view.bits // 8, on_device, False, (array, view))


def buffer_of(array: Any, what: str, *, only_read: bool = False) -> Buffer:
    """Returns the memory of an array. `what` names it in errors.

    Takes NumPy arrays, PyTorch tensors, and what has __cuda_array_interface__ or __dlpack__.
    only_read: one that is read-only is taken, too, unless __dlpack__ is all that it has.
    Raises Error: something else, another element type, not contiguous, read-only, or in the memory
    of a GPU while the backend is cpu.
    """
    if isinstance(array, np.ndarray):
        return _of_numpy(array, what, only_read)
    if is_torch(array):
        buffer = _of_torch(array, what)
    elif hasattr(type(array), "__cuda_array_interface__"):
        buffer = _of_cuda_interface(array, what, only_read)
    elif hasattr(type(array), "__dlpack__") and not isinstance(array, np.generic):
        buffer = _of_dlpack(array, what)
    else:
        raise _refuse(
            what,
            f"{type(array).__name__} is no array: add a NumPy array, a PyTorch tensor, or an "
            "object with __cuda_array_interface__ or __dlpack__",
        )
    if buffer.on_device and ext.backend_name() != "cuda":
        raise Error(
            f"{what}: the array is in the memory of a GPU and the backend is cpu: copy it to the "
            "host, or set HOLDFAST_BACKEND=cuda",
            "unsupported",
        )
    return buffer
