"""As much of PyTorch's tensors as holdfast.dynamicemb uses, over NumPy.

Where PyTorch is not installed this stands for it: same names, arguments and meanings.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np


class Tensor(np.ndarray[Any, Any]):
    """An array that has the attributes and methods of a tensor in the host's memory."""

    device: Any = types.SimpleNamespace(type="cpu")
    layout = "torch.strided"
    is_quantized = False

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize

    def data_ptr(self) -> int:
        return self.ctypes.data

    def is_contiguous(self) -> bool:
        return self.flags.c_contiguous

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def detach(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return _made(np.ascontiguousarray(self))

    def to(self, what: Any) -> Tensor:
        """To another type; to a device: as it is."""
        return _made(self.astype(what)) if isinstance(what, type) else self


def _made(array: Any) -> Tensor:
    return np.asarray(array).view(Tensor)


def module() -> types.ModuleType:
    """For sys.modules."""
    torch = types.ModuleType("torch")
    names: dict[str, Any] = {
        "Tensor": Tensor,
        **{name: getattr(np, name) for name in ("float16", "float32", "int64", "bool", "uint8")},
        "tensor": lambda data, dtype=None, device="cpu": _made(np.array(data, dtype)),
        "zeros": lambda size, dtype, device="cpu": _made(np.zeros(size, dtype)),
        "empty": lambda size, dtype, device="cpu": _made(np.full(size, 77, dtype)),
        "frombuffer": lambda buffer, dtype: _made(np.frombuffer(buffer, dtype)),
        "nonzero": lambda array: _made(np.argwhere(array)),
        "device": lambda name: types.SimpleNamespace(type=name.partition(":")[0]),
        "cuda": types.SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False),
    }
    vars(torch).update(names)
    return torch
