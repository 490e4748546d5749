"""Trains a small model of clicks, and goes on where it was killed.

    python examples/embedding_bag/train.py clicks.hf --steps 200

Kill it (`kill -9`) and call it again: it ends with the same bits, which the digest that it prints
shows. The embedding table is a map (embedding_bag.py), the rest of the model a checkpoint, saved
once a step's rows are stored.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same bits on a GPU

import torch
from embedding_bag import PersistentEmbeddingBag

import holdfast

DIM, HIDDEN, BAGS, IDS_OF_A_BAG = 8, 16, 64, 10
RATE = 0.05


def batch(step: int, ids: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Returns ids, the beginnings of bags, and clicks: a function of the step."""
    draw = torch.Generator().manual_seed(step)
    # Some ids come often.
    chosen = (torch.rand(BAGS * IDS_OF_A_BAG, generator=draw) ** 3 * ids).to(torch.int64)
    clicks = (chosen.reshape(BAGS, IDS_OF_A_BAG) % 7 == 3).any(dim=1).to(torch.float32)
    offsets = torch.arange(0, BAGS * IDS_OF_A_BAG, IDS_OF_A_BAG)
    return chosen.to(device), offsets.to(device), clicks.to(device)


def region_bytes(ids: int) -> int:
    table = holdfast.Map.region_bytes(2 * ids, "int64", PersistentEmbeddingBag.row(DIM))
    return table + holdfast.Checkpoint.region_bytes(1 << 20, buffers=4) + (1 << 20)


def digest(bag: PersistentEmbeddingBag, model: torch.nn.Module) -> str:
    """Returns a sum over all bits of the table and the model."""
    keys, rows = bag.table.export()
    order = keys.argsort()
    text = hashlib.sha256(keys[order].tobytes() + rows[order].tobytes())
    for weights in model.parameters():
        text.update(repr(weights.tolist()).encode())
    return text.hexdigest()


def train(region: holdfast.Region, steps: int, ids: int) -> None:
    device = torch.device("cuda" if holdfast.backend == "cuda" else "cpu")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    bag = PersistentEmbeddingBag(region, "ids", 2 * ids, DIM, device)
    model = torch.nn.Sequential(
        torch.nn.Linear(DIM, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    checkpoint = holdfast.Checkpoint(region, "model")
    for name, weights in model.named_parameters():
        checkpoint.add("dense", name, weights)
    done = checkpoint.restore("dense") or 0
    print(f"begins behind step {done}, with {len(bag.table)} rows", flush=True)
    for step in range(done + 1, steps + 1):
        chosen, offsets, clicks = batch(step, ids, device)
        optimizer.zero_grad()
        guess = model(bag(chosen, offsets, step))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(guess, clicks)
        loss.backward()
        optimizer.step()
        bag.store(step, RATE)
        checkpoint.save("dense", step)  # from here on the step is made
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    print(f"digest {digest(bag, model)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small model of clicks.")
    parser.add_argument("region", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ids", type=int, default=2000)
    given = parser.parse_args()
    with holdfast.open_or_create(given.region, region_bytes(given.ids)) as region:
        train(region, given.steps, given.ids)


if __name__ == "__main__":
    main()
