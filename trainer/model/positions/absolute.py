"""Absolute positions, learned or sinusoidal: vectors added to token vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError


@dataclass(frozen=True)
class Learned:
    """Learned position vectors.

    Attributes:
        count: number of rows, which is the maximum sequence length.
    """

    count: int
    scheme: Literal["learned"] = "learned"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FarspanError(f"learned positions: count is {self.count}; it must be at least 1")

    @property
    def limit(self) -> int:
        """Maximum sequence length."""
        return self.count


@dataclass(frozen=True)
class Sinusoidal:
    """Sinusoidal position vectors, sines in the first half and cosines in the second, without a maximum length.

    Attributes:
        variant: ``pegasus``: wave i of pair i has length ``2 pi 10,000^(2i / d)`` (Vaswani et al. 2017); ``pegasus_x``:
            the d / 2 lengths are spread from 2 pi to exactly 2 pi 10,000, as in the released PEGASUS-X.
    """

    variant: Literal["pegasus", "pegasus_x"] = "pegasus"
    scheme: Literal["sinusoidal"] = "sinusoidal"

    @property
    def limit(self) -> None:
        """Maximum sequence length: unlimited."""
        return None


class LearnedPositions(nn.Module):
    """A table with one row per position.

    Attributes:
        weight: ``(positions, d)`` float32.
    """

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the position vectors for ``(B, L, d)`` token vectors, ``(L, d)``."""
        length = tokens.shape[1]
        if length > len(self.weight):
            raise FarspanError(
                f"a sequence has {length} positions, the model has {len(self.weight)}; raise `positions.count` in the "
                "model's section or shorten the data"
            )
        return self.weight[:length]


class SinusoidalPositions(nn.Module):
    """Sinusoidal vectors, computed for the longest sequence so far and not stored in checkpoints."""

    def __init__(self, sinusoidal: Sinusoidal) -> None:
        super().__init__()
        self.variant = sinusoidal.variant
        self._table = torch.empty(0, 0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the position vectors for ``(B, L, d)`` token vectors, ``(L, d)``."""
        length, width = tokens.shape[1:]
        if len(self._table) < length or self._table.device != tokens.device:
            self._table = self._waves(length, width).to(tokens.device)
        return self._table[:length].to(tokens.dtype)

    def _waves(self, length: int, width: int) -> Tensor:
        half = width // 2
        # Each variant has the precision of its original: at position 16,384 float32 is off by a thousandth.
        kind = torch.float64 if self.variant == "pegasus" else torch.float32
        steps = torch.arange(half, dtype=kind)
        if self.variant == "pegasus":
            angles = torch.arange(length, dtype=kind)[:, None] / 10_000.0 ** (2 * steps / width)  # (L, d / 2)
        else:
            angles = torch.arange(length)[:, None] * torch.exp(steps * -(math.log(10_000.0) / (half - 1)))
        return torch.cat([angles.sin(), angles.cos()], -1).float()


def tile_positions(rows: Tensor, length: int) -> Tensor:
    """Repeat a short model's ``(P, d)`` rows until there are ``length``, so that each block starts at its row 0."""
    return rows.repeat(-(-length // len(rows)), 1)[:length]
