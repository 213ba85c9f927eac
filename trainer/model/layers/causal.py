"""Causal attention of the decoder; not selectable in recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.layers.attention import SelfAttention, attend
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Causal(Pattern):
    """Position i attends to positions up to i.

    Padding is on the right, where no earlier position attends to it, so it needs no mask.
    """

    pattern: Literal["causal"] = "causal"

    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> SelfAttention:
        return SelfAttention(width, heads, self, dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        if not context.biases:
            return attend(q, k, v, dropout=dropout, causal=True, scale=scale)
        places = torch.arange(q.shape[1], device=q.device)
        seen = self.mask_mod(places[:, None], places, q.shape[1])[None]
        return attend(q, k, v, seen, *context.biases, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        positions = torch.arange(length)
        return (positions - positions[:, None],)  # (L, L)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return key <= query

    def flops(self, length: int, width: int) -> int:
        return 2 * length * (length + 1) * width
