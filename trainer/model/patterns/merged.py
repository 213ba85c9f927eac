"""Merged cross-attention: one softmax over the decoder's own keys and the encoder's (T5Gemma 2, arXiv:2512.14856)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.layers.attention import SelfAttention, attend
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Merged(Pattern):
    """A decoder's pattern for its own keys, and all keys of the encoder, which are side keys without padding.

    Attributes:
        own: pattern of the decoder's own keys.
    """

    own: Pattern
    pattern: Literal["merged"] = "merged"
    uses_flex: ClassVar[bool] = True

    @property
    def local(self) -> bool:
        return self.own.local

    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> SelfAttention:
        return SelfAttention(width, heads, self, dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        length = q.shape[1]
        mask = self.mask_mod(
            torch.arange(length, device=q.device)[:, None], torch.arange(k.shape[1], device=q.device), length
        )[None]  # (1, T, T + S)
        if context.side_mask is not None:
            beside = context.side_mask[:, None]  # (B, 1, S)
            own = mask[..., :length].expand(len(q), -1, -1)
            mask = torch.cat([own, beside.expand(-1, length, -1)], -1)
        return attend(q, k, v, mask, dropout=dropout, scale=scale)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (key >= length) | self.own.mask_mod(query, key, length)

    def side_documents(self, context: Context, length: int) -> Tensor | None:
        return None if context.side_mask is None else context.side_mask.long() - 1  # 0 is the only document

    def flops(self, length: int, width: int) -> int:
        return self.own.flops(length, width)
