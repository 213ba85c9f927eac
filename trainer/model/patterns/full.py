"""Full attention, with or without a causal mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainer.model.attention import attend, visible
from trainer.model.context import Context


@dataclass(frozen=True)
class Full:
    """Every position sees every real position."""

    pattern: Literal["full"] = "full"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> Full:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        mask = visible(context.real, context.segments, context.segments)
        return attend(q, k, v, mask, *context.biases, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return (_offsets(length),)  # (L, L)

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return torch.ones_like(query + key, dtype=torch.bool)

    def flops(self, length: int, width: int) -> int:
        return 4 * length * length * width

    def kept(self, length: int, width: int, heads: int) -> int:
        return length * heads  # the log-sum-exp of every query


@dataclass(frozen=True)
class Causal:
    """Position i sees positions up to i: the decoder's self-attention.

    Padding stands on the right, out of sight of every real position, so it needs no mask.
    """

    pattern: Literal["causal"] = "causal"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> Causal:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        if not context.biases:
            return attend(q, k, v, dropout=dropout, causal=True, scale=scale)
        places = torch.arange(q.shape[1], device=q.device)
        seen = self.sees(places[:, None], places, q.shape[1])[None]
        return attend(q, k, v, seen, *context.biases, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return (_offsets(length),)  # (L, L)

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return key <= query

    def flops(self, length: int, width: int) -> int:
        return 2 * length * (length + 1) * width

    def kept(self, length: int, width: int, heads: int) -> int:
        return length * heads


def _offsets(length: int) -> Tensor:
    places = torch.arange(length)
    return places - places[:, None]
