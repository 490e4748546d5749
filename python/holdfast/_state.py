"""State dicts in checkpoints: tensors as buffers, plain values as JSON in a buffer of their own.

The JSON is a tree of nodes: None, bool, int, float and str as they are, and objects for the rest.
  {"d": [[key, node], ...]}            a dict, in its order; keys are str or int
  {"l": [node, ...]}, {"t": [...]}     a list, a tuple
  {"a": name, "dtype": ..., "shape": ..., "torch": ...}   an array; name null: it is empty
The buffer begins with the length of the JSON, 8 bytes in little-endian order.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

import numpy as np

from ._buffers import Buffer, buffer_of, is_array
from ._checkpoint import Checkpoint, StoredBuffer, checked_group
from ._errors import Error
from ._region import Region

Path = tuple[str | int, ...]
Node = Any  # of JSON

_NAME = "state"  # of the checkpoint that a region alone stands for
_PLAIN = "(plain values)"  # the buffer of the JSON
_MOST_NAME_BYTES = 47
_PLAIN_KEY = re.compile(r"(?!-?[0-9]+$)[^/~]+")  # no number, which an int key would be
_DEEPEST = 64
_MOST_INT_BITS = 8192  # Python's own limit of what it reads as text is some 14,000
_LEAST_ROOM = 4096


class RestoredState(NamedTuple):
    """What restore_state() found."""

    state: dict[Any, Any]
    tag: int


def _shown(path: Path) -> str:
    return "/".join(map(str, path)) or "(the whole state)"


class _Flattened:
    """A state dict as its tree of nodes and its arrays by name."""

    def __init__(self, state: dict[Any, Any]) -> None:
        self.arrays: dict[str, Any] = {}
        self._buffers: dict[str, Buffer] = {}
        if not isinstance(state, dict):
            raise Error(f"the state is a {type(state).__name__}: give a dict")
        self.tree = self._node(state, ())

    def buffers(self) -> list[tuple[str, Buffer]]:
        """In the order of their names: that of a dict does not matter."""
        return sorted(self._buffers.items())

    def _node(self, value: Any, path: Path) -> Node:
        if len(path) > _DEEPEST:
            raise Error(f"'{_shown(path[:8])}...' is nested more than {_DEEPEST} deep")
        if type(value) is int and value.bit_length() > _MOST_INT_BITS:
            raise Error(
                f"'{_shown(path)}' is an int of {value.bit_length()} bits: a checkpoint holds "
                f"those of {_MOST_INT_BITS} at most"
            )
        if type(value) in (bool, int, float, str) or value is None:
            return value
        if isinstance(value, dict):
            return {"d": [[key, self._node(value[key], self._key(key, path))] for key in value]}
        if type(value) in (list, tuple):
            kind = "l" if type(value) is list else "t"
            return {kind: [self._node(item, (*path, i)) for i, item in enumerate(value)]}
        if isinstance(value, np.ndarray) or is_array(value):
            return self._array(value, path)
        raise Error(
            f"'{_shown(path)}' is a {type(value).__module__}.{type(value).__qualname__}, which a "
            "checkpoint does not hold: leave it out, or give tensors, arrays, None, bool, int, "
            "float, str, and lists, tuples and dicts of these"
        )

    @staticmethod
    def _key(key: Any, path: Path) -> Path:
        if type(key) not in (str, int):
            raise Error(
                f"'{_shown(path)}' has the key {key!r} of type {type(key).__name__}: use str or int"
            )
        return (*path, key)

    def _array(self, array: Any, path: Path) -> Node:
        buffer = buffer_of(array, f"'{_shown(path)}'")
        name = None
        if buffer.nbytes > 0:
            name = self._name(path)
            self.arrays[name] = array
            self._buffers[name] = buffer
        shape = list(buffer.shape)
        return {"a": name, "dtype": buffer.dtype, "shape": shape, "torch": buffer.torch}

    @staticmethod
    def _name(path: Path) -> str:
        """The path, where it fits and no other path reads the same; else its end and a hash."""
        name = _shown(path)
        encoded = name.encode()
        plain = all(isinstance(key, int) or _PLAIN_KEY.fullmatch(key) for key in path)
        if len(encoded) <= _MOST_NAME_BYTES and plain and name != _PLAIN:
            return name
        digest = hashlib.blake2b(json.dumps(path).encode(), digest_size=8).hexdigest()
        return encoded[-(_MOST_NAME_BYTES - 17) :].decode(errors="ignore") + "~" + digest


def _rebuilt(node: Node, arrays: dict[str, Any], bytes_only: bool) -> Any:
    """Returns what a tree stands for, with its arrays, or the arrays that their bytes are of."""
    if not isinstance(node, dict):
        return node
    if "d" in node:
        return {key: _rebuilt(item, arrays, bytes_only) for key, item in node["d"]}
    if "a" in node:
        if node["a"] is None:
            return _viewed(node, np.empty(0, np.uint8))
        array = arrays[node["a"]]
        return _viewed(node, array) if bytes_only else array
    items = [_rebuilt(item, arrays, bytes_only) for item in node["l" if "l" in node else "t"]]
    return items if "l" in node else tuple(items)


def _viewed(node: Node, data: np.ndarray[Any, Any]) -> Any:
    """The bytes as the array that they are of: a tensor if it was one and PyTorch is there."""
    dtype, shape = node["dtype"], node["shape"]
    if node["torch"]:
        try:
            import torch
        except ImportError:
            pass
        else:
            return torch.from_numpy(data).view(getattr(torch, dtype)).reshape(shape)
    try:
        return data.view(dtype).reshape(shape)
    except TypeError:
        raise Error(
            f"'{node['a']}' has elements of type {dtype}, which NumPy does not know: "
            "pip install 'holdfast[torch]', or give tensors to restore into",
            "unsupported",
        ) from None


def _checkpoint_of(where: Region | Checkpoint) -> Checkpoint:
    return where if isinstance(where, Checkpoint) else Checkpoint(where, _NAME)


def _stored(checkpoint: Checkpoint, group: str) -> dict[str, StoredBuffer]:
    """What the region holds of a group: nothing if it was not saved. Raises Error if not by us."""
    if group not in checkpoint.groups():
        return {}
    buffers = {buffer.name: buffer for buffer in checkpoint.stored(group)}
    if buffers and _PLAIN not in buffers:
        raise Error(
            f"group '{group}' of {checkpoint!r} was not saved by save_state(): use its restore(), "
            "or another group"
        )
    return buffers


def _plain_buffer(tree: Node, room: int, group: str) -> Buffer:
    """The JSON in a buffer of `room` bytes; 0: of as many as it should have."""
    text = json.dumps(tree, separators=(",", ":")).encode()
    if room == 0:
        room = _LEAST_ROOM
        while room < 2 * len(text):
            room *= 2
    if 8 + len(text) > room:
        raise Error(
            f"the plain values of group '{group}' take {8 + len(text)} bytes, and its first save "
            f"left room for {room}: save into another group",
            "no_space",
        )
    data = np.zeros(room, np.uint8)
    data[:8] = np.frombuffer(len(text).to_bytes(8, "little"), np.uint8)
    data[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
    return buffer_of(data, _PLAIN)


def _tree_of(data: np.ndarray[Any, np.dtype[np.uint8]]) -> Node:
    length = int.from_bytes(data[:8].tobytes(), "little")
    tree: Node = json.loads(data[8 : 8 + length].tobytes())
    return tree


def save_state(
    where: Region | Checkpoint,
    group: str,
    state: dict[Any, Any],
    tag: int = 0,
    *,
    stream: Any = None,
) -> None:
    """Saves a state dict as a group; durable on the region's rung when it returns.

    where: a checkpoint, or a region, which stands for its checkpoint "state".
    state: a dict, nested as you like, of arrays and tensors as Checkpoint.add() takes them, and of
    None, bool, int, float, str, lists and tuples. Nothing is pickled: other objects raise an Error
    that names their key. All saves of a group have the same tensors, by key, type and shape; the
    rest may change, in twice the room that its first save took (4 KiB at least).
    `tag` and `stream` are as for Checkpoint.save(), which says what else is raised.
    """
    flat = _Flattened(state)
    checked_group(group)
    checkpoint = _checkpoint_of(where)
    stored = _stored(checkpoint, group)
    room = stored[_PLAIN].nbytes if stored else 0
    checkpoint.forget(group)
    try:
        checkpoint._add(group, _PLAIN, _plain_buffer(flat.tree, room, group))
        for name, buffer in flat.buffers():
            checkpoint._add(group, name, buffer)
        checkpoint.save(group, tag, stream=stream)
    finally:
        checkpoint.forget(group)


def restore_state(
    where: Region | Checkpoint,
    group: str,
    into: dict[Any, Any] | None = None,
    *,
    stream: Any = None,
) -> RestoredState | None:
    """Returns the state dict that was last saved as this group, and its tag; None if none was.

    into: a state dict with the same tensors, which are restored in place and are those of the
    result; its other values are not looked at. Without it the tensors are new ones in host memory:
    PyTorch's where such were saved and PyTorch is installed, NumPy's otherwise.
    Raises Error as Checkpoint.restore() does.
    """
    flat = _Flattened(into) if into is not None else None
    checked_group(group)
    checkpoint = _checkpoint_of(where)
    stored = _stored(checkpoint, group)
    if not stored:
        return None
    plain = np.zeros(stored[_PLAIN].nbytes, np.uint8)
    arrays: dict[str, Any] = flat.arrays if flat else {}
    checkpoint.forget(group)
    try:
        checkpoint._add(group, _PLAIN, buffer_of(plain, _PLAIN))
        for name, buffer in flat.buffers() if flat else ():
            checkpoint._add(group, name, buffer)
        for name, entry in stored.items() if flat is None else ():
            if name != _PLAIN:
                arrays[name] = np.empty(entry.nbytes, np.uint8)
                checkpoint._add_stored(group, entry, buffer_of(arrays[name], name))
        tag = checkpoint.restore(group, stream=stream)
    finally:
        checkpoint.forget(group)
    if tag is None:
        return None
    return RestoredState(_rebuilt(_tree_of(plain), arrays, bytes_only=flat is None), tag)
