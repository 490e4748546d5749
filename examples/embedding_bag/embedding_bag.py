"""An embedding bag of PyTorch whose table is a holdfast.Map.

A step of training reads the rows of its ids, and stores new ones. A kill in between leaves some of
a step's rows changed and others not, each of them whole. So that the step can be made again, a row
has what it was before the last step that changed it, and which step that was: who makes step n
finds the rows as they were before it, whoever has begun it already. No log is kept, and no dump is
made.
"""

from __future__ import annotations

import torch

import holdfast

EPSILON = 1e-8


class PersistentEmbeddingBag(torch.nn.Module):
    """Sums of rows, which Adagrad trains.

    A row on the medium: the step that stored it; embedding and squares of gradients as they are
    since; and as they were before.
    """

    def __init__(
        self, region: holdfast.Region, name: str, capacity: int, dim: int, device: torch.device
    ) -> None:
        super().__init__()
        self.dim, self.device = dim, device
        self.table = holdfast.Map(region, name, key="int64", value=self.row(dim), capacity=capacity)

    @staticmethod
    def row(dim: int) -> tuple[str, int]:
        return "float32", 1 + 4 * dim

    def initial(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns what new rows begin with: the same whenever an id comes first."""
        columns = torch.arange(self.dim, device=self.device)
        mixed = (ids[:, None] * 1_000_003 + columns) * 2_654_435_761 % 2**32
        embeddings = (mixed.to(torch.float32) / 2**32 - 0.5) / self.dim
        return torch.cat([embeddings, torch.zeros_like(embeddings)], dim=1)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor, step: int) -> torch.Tensor:
        """Returns a sum for each bag. `step`: from 1; the one that is made with these ids."""
        self.ids, inverse = torch.unique(ids, return_inverse=True)
        rows, found = self.table.find(self.ids, stream=self.stream())
        stored_by, now, before = (
            rows[:, :1],
            rows[:, 1 : 1 + 2 * self.dim],
            rows[:, 1 + 2 * self.dim :],
        )
        begun = stored_by.view(torch.int32) == step
        there = torch.where(begun, before, now)
        self.state = torch.where(found[:, None], there, self.initial(self.ids))
        self.weight = self.state[:, : self.dim].clone().requires_grad_()
        return torch.nn.functional.embedding_bag(inverse, self.weight, offsets, mode="sum")

    def store(self, step: int, rate: float) -> None:
        """Stores what the gradients make of the rows. Durable, row by row, when it returns."""
        gradient = self.weight.grad
        assert gradient is not None
        squares = self.state[:, self.dim :] + gradient.square()
        embeddings = self.state[:, : self.dim] - rate * gradient / (squares.sqrt() + EPSILON)
        stored_by = torch.full((len(self.ids), 1), step, dtype=torch.int32, device=self.device)
        rows = torch.cat([stored_by.view(torch.float32), embeddings, squares, self.state], dim=1)
        result = self.table.insert_or_assign(self.ids, rows, stream=self.stream())
        if result.not_done:
            raise holdfast.Error(
                f"{self.table!r} is full: make it with a larger capacity", "no_space"
            )

    def stream(self) -> torch.cuda.Stream | None:
        return torch.cuda.current_stream() if self.device.type == "cuda" else None
