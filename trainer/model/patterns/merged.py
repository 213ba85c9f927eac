"""Merged cross-attention: one softmax over the decoder's own keys and the encoder's (T5Gemma 2, arXiv:2512.14856)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Merged(Pattern):
    """A decoder's pattern for its ``own`` keys, and all keys of the encoder, which are side keys without padding."""

    own: Pattern
    pattern: Literal["merged"] = "merged"
    uses_flex: ClassVar[bool] = True

    @property
    def local(self) -> bool:
        return self.own.local

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        length = q.shape[1]
        places = torch.arange(length, device=q.device)
        mask = self.own.mask_mod(places[:, None], places, length)[None]  # (1, T, T)
        beside = mask_other_documents(context.side_mask, context.segments, context.side_segments)  # (B, 1 or T, S)
        if beside is None:
            beside = mask.new_ones(1, 1, k.shape[1] - length)
        if context.segments is not None:
            mask = mask & (context.segments[:, :, None] == context.segments[:, None])
        rows = max(len(mask), len(beside))
        mask = torch.cat([part.expand(rows, length, -1) for part in (mask, beside)], -1)  # (1 or B, T, T + S)
        return attend(q, k, v, mask, dropout=dropout, scale=scale)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (key >= length) | self.own.mask_mod(query, key, length)

    def side_documents(self, context: Context, length: int) -> Tensor | None:
        if context.side_segments is None:
            return None if context.side_mask is None else context.side_mask.long() - 1  # 0 is the only document
        segments = context.side_segments.long()
        return segments if context.side_mask is None else segments.masked_fill(~context.side_mask, -1)

    def flops(self, length: int, width: int) -> int:
        return self.own.flops(length, width)
