"""A sliding window (LongT5 Local, arXiv:2112.07916, section 3.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.kernels.banded import attend_banded
from trainer.model.pattern import Pattern, ScoreMod, SideKeys
from trainer.model.patterns.span import count_pairs

MOST_POSITIONS = 1 << 20
"""Largest radius; tables of relative positions grow with it, so a damaged configuration could exhaust the memory."""


@dataclass(frozen=True)
class Local(Pattern):
    """Position i attends to the positions j with ``|i - j| <= radius``."""

    radius: int = 127
    pattern: Literal["local"] = "local"
    uses_flex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.radius <= MOST_POSITIONS:
            raise FarspanError(
                f"attention pattern local: radius is {self.radius}; it must be from 1 to {MOST_POSITIONS} positions"
            )

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        return attend_banded(q, k, v, context, self.radius, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return (torch.arange(-self.radius, self.radius + 1),)  # (2 r + 1,)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (query - key).abs() <= self.radius

    def score_mod(self, biases: tuple[Tensor, ...], sides: SideKeys | None) -> ScoreMod:
        return lambda score, b, h, q, k: score + near_bias(biases[0], self.radius, h, q, k)

    def flops(self, length: int, width: int) -> int:
        return 4 * count_pairs(length, self.radius, self.radius) * width


def near_bias(bias: Tensor, radius: int, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Look up one of ``(H, 2 radius + 1)`` biases by the offset from ``query`` to ``key``."""
    return bias[head, (key - query + radius).clamp(0, 2 * radius)]
