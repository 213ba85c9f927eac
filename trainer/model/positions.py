"""Learned absolute positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError


class LearnedPositions(nn.Module):
    """One row a position, counted from 0.

    Attributes:
        weight: ``(positions, d)`` float32.
    """

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))

    def forward(self, length: int) -> Tensor:
        """The first ``length`` rows, ``(L, d)``.

        Raises:
            FarspanError: more positions than rows.
        """
        if length > len(self.weight):
            raise FarspanError(
                f"a sequence has {length} positions, the model {len(self.weight)}; raise `positions` in the model's "
                "section or shorten the data"
            )
        return self.weight[:length]


def tile_positions(rows: Tensor, length: int) -> Tensor:
    """Repeat a short model's ``(P, d)`` rows until there are ``length``, so that each block starts at its row 0."""
    return rows.repeat(-(-length // len(rows)), 1)[:length]
