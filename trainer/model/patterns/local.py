"""A sliding window (LongT5 Local, arXiv:2112.07916, section 3.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.kernels.banded import attend_banded

MOST_POSITIONS = 1 << 20
"""Largest radius; its relative positions are listed, so a damaged configuration would exhaust the memory."""


@dataclass(frozen=True)
class Local:
    """Position i sees the real positions j with ``|i - j| <= radius``.

    Raises:
        FarspanError: ``radius`` below 1 or above ``MOST_POSITIONS``.
    """

    radius: int = 127
    pattern: Literal["local"] = "local"
    extra_tokens: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not 1 <= self.radius <= MOST_POSITIONS:
            raise FarspanError(
                f"attention pattern local: radius is {self.radius}; it must be from 1 to {MOST_POSITIONS} positions"
            )

    def at(self, layer: int) -> Local:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        return attend_banded(q, k, v, context, self.radius, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return (torch.arange(-self.radius, self.radius + 1),)  # (2 r + 1,)

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (query - key).abs() <= self.radius

    def flops(self, length: int, width: int) -> int:
        return 4 * band_pairs(length, self.radius) * width

    def kept(self, length: int, width: int, heads: int) -> int:
        return heads * (2 * self.radius + 2)  # the biases; the backward pass makes the scores again


def band_pairs(length: int, radius: int) -> int:
    """How many pairs of ``length`` positions lie within ``radius``."""
    radius = min(radius, length - 1)
    return length * (2 * radius + 1) - radius * (radius + 1)
