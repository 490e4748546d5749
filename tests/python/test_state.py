"""State dicts in checkpoints."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import Checkpoint, restore_state, save_state

MIB = 1 << 20


@pytest.fixture
def region(path: Path) -> Iterator[holdfast.Region]:
    with holdfast.create(path, 8 * MIB) as region:
        yield region


def training(value: int) -> dict[str, Any]:
    """As of a module and its optimizer."""
    return {
        "model": OrderedDict(
            [
                ("layers.0.weight", np.full((16, 8), value, np.float32)),
                ("layers.0.bias", np.full(16, -value, np.float16)),
                ("a/very/long/name/of/a/layer/that/does/not/fit.weight", np.full(3, value)),
                ("batches", np.array(value, np.int64)),
                ("nothing", np.zeros((3, 0), np.float32)),
            ]
        ),
        "optimizer": {
            "state": {0: {"step": value, "average": np.full((16, 8), value / 2)}, 1: {}},
            "param_groups": [
                {"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1], "amsgrad": False}
            ],
        },
        "model/batches": np.full(2, value),  # the path of another
        "(plain values)": np.full(2, value),
        "epoch": value,
        "name": "Täst",
        "best": None,
        "loss": math.inf,
        "large": 2**80,
    }


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(found) is type(expected)
        assert found == expected


def test_out_and_in(path: Path) -> None:
    with holdfast.create(path, 8 * MIB) as region:
        assert restore_state(region, "training") is None
        for epoch in (1, 2, 30000):
            save_state(region, "training", training(epoch), tag=epoch)
        found = restore_state(region, "training")
        assert found is not None
    with holdfast.open(path) as region:
        again = restore_state(region, "training")
        assert again is not None
        for state, tag in (found, again):
            assert tag == 30000
            assert_same(state, training(30000))
        again.state["model"]["layers.0.weight"][:] = 1  # the caller's own
        names = [buffer.name for buffer in Checkpoint(region, "state").stored("training")]
        assert "model/layers.0.weight" in names
        assert "optimizer/state/0/average" in names


def test_in_place(region: holdfast.Region) -> None:
    checkpoint = Checkpoint(region, "mine")
    save_state(checkpoint, "g", training(4), 4)
    target = training(0)
    weights = target["model"]["layers.0.weight"]
    # The order of a dict does not matter; the saved one is that of the result.
    found = restore_state(checkpoint, "g", dict(reversed(target.items())))
    assert found is not None
    assert found.tag == 4
    assert found.state["model"]["layers.0.weight"] is weights
    assert_same(found.state, training(4))
    assert checkpoint.groups() == ["g"]
    assert restore_state(region, "g") is None


def test_another_structure_is_refused(region: holdfast.Region) -> None:
    save_state(region, "g", {"a": np.zeros(3), "b": {"c": np.zeros(2)}})
    with pytest.raises(holdfast.Error, match="no buffer 'd'"):
        save_state(region, "g", {"a": np.zeros(3), "b": {"c": np.zeros(2)}, "d": np.zeros(1)})
    with pytest.raises(holdfast.Error, match="'b/c', which was not added"):
        restore_state(region, "g", {"a": np.zeros(3)})
    with pytest.raises(holdfast.Error, match=r"'a' as 3 x f64 .*, not as 4 x f64"):
        restore_state(region, "g", {"a": np.zeros(4), "b": {"c": np.zeros(2)}})
    checkpoint = Checkpoint(region, "state")
    checkpoint.add("plain", "array", np.zeros(3))
    checkpoint.save("plain")
    with pytest.raises(holdfast.Error, match="save_state"):
        restore_state(checkpoint, "plain")


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (object(), ["builtins.object"]),
        (b"bytes", ["builtins.bytes"]),
        ({1, 2}, ["builtins.set"]),
        (1j, ["complex"]),
        (np.float32(1), ["numpy.float32"]),
        (lambda: 0, ["function"]),
        (np.zeros(2, object), ["object"]),
        (np.ma.array([1.0, 2.0], mask=[False, True]), ["masked"]),
        (1 << 8192, ["8193 bits", "8192"]),
        (np.zeros((2, 2)).T[:1], ["contiguous"]),
        ({(1, 2): 3}, ["(1, 2)", "tuple", "str or int"]),
        ({True: 3}, ["True", "bool"]),
    ],
)
def test_leaves_that_it_does_not_hold(
    region: holdfast.Region, leaf: object, words: list[str]
) -> None:
    with pytest.raises(holdfast.Error) as raised:
        save_state(region, "g", {"good": 1, "outer": [0, {"bad": leaf}]})
    for word in ("outer/1/bad", *words):
        assert word in str(raised.value)
    assert restore_state(region, "g") is None


def test_misuse(region: holdfast.Region) -> None:
    with pytest.raises(holdfast.Error, match="dict"):
        save_state(region, "g", [1, 2])  # type: ignore[arg-type]
    circle: dict[str, Any] = {}
    circle["again"] = circle
    with pytest.raises(holdfast.Error, match=r"again/again.*deep"):
        save_state(region, "g", circle)
    save_state(region, "g", {"losses": [0.1]})
    save_state(region, "g", {"losses": [0.1] * 500})
    with pytest.raises(holdfast.Error, match="room for 4096") as raised:
        save_state(region, "g", {"losses": [0.1] * 5000})
    assert raised.value.code == "no_space"
    found = restore_state(region, "g")
    assert found is not None
    assert found.state == {"losses": [0.1] * 500}


def test_pytorch(region: holdfast.Region) -> None:
    torch = pytest.importorskip("torch")
    devices = ["cpu"] + ["cuda"] * (holdfast.backend == "cuda" and torch.cuda.is_available())
    for device in devices:
        torch.manual_seed(1)
        model = torch.nn.Linear(40, 8, device=device)
        optimizer = torch.optim.AdamW(model.parameters())

        def step(model: Any = model, optimizer: Any = optimizer, device: str = device) -> None:
            optimizer.zero_grad()
            model(torch.ones(2, 40, device=device)).square().sum().backward()
            optimizer.step()

        def state(model: Any = model, optimizer: Any = optimizer) -> dict[str, Any]:
            return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

        step()
        save_state(region, device, state(), 1)
        expected = {key: value.clone() for key, value in model.state_dict().items()}
        step()
        after = {key: value.clone() for key, value in model.state_dict().items()}
        found = restore_state(region, device)
        assert found is not None
        assert found.state["model"]["weight"].dtype == torch.float32
        model.load_state_dict(found.state["model"])
        optimizer.load_state_dict(found.state["optimizer"])
        assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
        step()
        assert all(torch.equal(value, after[key]) for key, value in model.state_dict().items())
        again = restore_state(region, device, state())
        assert again is not None
        assert torch.equal(model.weight, expected["weight"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int64", "float8_e4m3fn"])
def test_pytorch_types(region: holdfast.Region, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip(f"this PyTorch has no {dtype}")
    devices = ["cpu"] + ["cuda"] * (holdfast.backend == "cuda" and torch.cuda.is_available())
    for device in devices:
        checkpoint = Checkpoint(region, device)
        tensor = torch.ones(6, 3, device=device).to(kind)
        checkpoint.add("g", "tensor", tensor)
        checkpoint.save("g")
        tensor.zero_()
        checkpoint.restore("g")
        assert (tensor.float() == 1).all()
        found = checkpoint.stored("g")[0]
        assert (found.dtype, found.shape) == (dtype, (6, 3))
        with pytest.raises(holdfast.Error, match="contiguous"):
            checkpoint.add("h", "tensor", tensor.T)
        save_state(region, device, {"tensor": tensor})
        restored = restore_state(region, device)
        assert restored is not None
        assert restored.state["tensor"].dtype == kind


def test_cupy(region: holdfast.Region) -> None:
    cupy = pytest.importorskip("cupy")
    if holdfast.backend != "cuda":
        pytest.skip("CuPy's arrays are in the memory of a GPU")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        weights = cupy.arange(3000, dtype=cupy.float32).reshape(60, 50)
        counts = cupy.full(7, 5, cupy.int64)
    checkpoint = Checkpoint(region, "cupy")
    checkpoint.add("g", "weights", weights)
    checkpoint.add("g", "counts", counts)
    checkpoint.save("g", 1, stream=stream)
    with stream:
        weights += 1
    pending = checkpoint.save_async("g", 2, stream=stream)
    with stream:
        weights.fill(0)
        counts.fill(0)
    pending.wait()
    assert checkpoint.restore("g", stream=stream) == 2
    np.testing.assert_array_equal(
        cupy.asnumpy(weights), np.arange(1, 3001, dtype=np.float32).reshape(60, 50)
    )
    assert cupy.asnumpy(counts).tolist() == [5] * 7
    with pytest.raises(holdfast.Error, match="contiguous"):
        checkpoint.add("h", "weights", weights.T)
    save_state(region, "state", {"weights": weights})
    found = restore_state(region, "state")
    assert found is not None
    np.testing.assert_array_equal(found.state["weights"], cupy.asnumpy(weights))
