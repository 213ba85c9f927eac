"""Full attention, with or without a causal mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trainer.model.attention import attend


@dataclass(frozen=True)
class Full:
    """Every position sees every real position."""

    pattern: Literal["full"] = "full"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, dropout: float = 0.0) -> Tensor:
        return attend(q, k, v, real, dropout)

    def dense_mask(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool)

    def flops(self, length: int, width: int) -> int:
        return 4 * length * length * width


@dataclass(frozen=True)
class Causal:
    """Position i sees positions up to i: the decoder's self-attention.

    Padding stands on the right, out of sight of every real position, so it needs no mask.
    """

    pattern: Literal["causal"] = "causal"

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, dropout: float = 0.0) -> Tensor:
        return attend(q, k, v, None, dropout, causal=True)

    def dense_mask(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).tril()

    def flops(self, length: int, width: int) -> int:
        return 2 * length * (length + 1) * width
