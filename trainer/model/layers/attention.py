"""Scaled dot-product attention with defined results at padding, and the attention layers built on it.

Tensors with heads are ``(B, L, H, D)``: batch, positions, heads, head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.model.context import Context
from trainer.model.kernels.choose import attend_across, attend_within
from trainer.model.layers.heads import HeadsConfig, Projections
from trainer.model.layers.sublayers import NormConfig
from trainer.model.pattern import Pattern
from trainer.model.positions import rotate


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Compute softmax(scale q k^T + bias) v.

    Args:
        q: ``(B, Lq, H, D)``.
        k, v: ``(B, Lk, H, D)``; the fast kernel needs a last stride of 1.
        mask: ``(B, 1 or Lq, Lk)`` bool, the keys that each query attends to; None means all, which is fastest.
        bias: ``(H, Lq, Lk)``, optionally with a batch dimension in front; a learned bias rules out the fast CPU kernel.
        dropout: probability of dropping an attention weight; above 0 it rules out the fast CPU kernel.
        causal: query i attends to keys up to i only; not together with a mask or a bias.
        scale: factor of the scores; None is 1 / sqrt(D).

    Returns:
        ``(B, Lq, H, D)``; zeros, with zero gradients, in rows without any key.
    """
    empty = None
    if mask is not None:
        # A softmax without keys is NaN in some kernels, so such rows attend to all keys and are then set to zero.
        empty = ~mask.any(-1, keepdim=True)  # (B, 1 or Lq, 1)
        mask = (mask | empty)[:, None]  # (B, 1, 1 or Lq, Lk)
    if bias is not None:
        bias = bias.to(q.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    ).transpose(1, 2)
    return mixed if empty is None else mixed.masked_fill(empty[..., None], 0.0)


def visible(padding_mask: Tensor | None, query_segments: Tensor | None, key_segments: Tensor | None) -> Tensor | None:
    """Make the mask of ``attend``: keys of the query's own document, without padding.

    ``padding_mask`` is ``(N, Lk)`` bool, ``query_segments`` and ``key_segments`` are ``(N, Lq)`` and ``(N, Lk)`` int,
    None if documents attend to each other. Returns ``(N, 1 or Lq, Lk)`` bool, or None if every query attends to every
    key.
    """
    keys = None if padding_mask is None else padding_mask[:, None, :]
    if query_segments is None or key_segments is None:
        return keys
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return same if keys is None else same & keys


class SelfAttention(nn.Module):
    """Multi-head self-attention with a pattern that has no parameters of its own."""

    def __init__(self, width: int, heads: HeadsConfig, pattern: Pattern, dropout: float) -> None:
        super().__init__()
        inner = heads.inner(width)
        self.heads, self.scale = heads.count, heads.scale
        self.pattern, self.dropout = pattern, dropout
        self.qkv = Projections(width, inner, 3, bias=heads.bias)
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Map hidden states ``(B, G + L, d)`` to the same shape."""
        return self.out(self.mix(x, context).flatten(2))

    def mix(self, x: Tensor, context: Context) -> Tensor:
        """Attend before the output projection: ``(B, G + L, d)`` to the values of every head, ``(B, G + L, H, D)``."""
        # (B, G + L, 3 H D) -> three views (B, G + L, H, D)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = rotate(q, context.rotation), rotate(k, context.rotation)
        dropout = self.dropout if self.training else 0.0
        return attend_within(self.pattern, q, k, v, context, dropout, self.scale)


class CrossAttention(nn.Module):
    """Full attention of the decoder to the encoder's output."""

    def __init__(self, width: int, heads: HeadsConfig, dropout: float) -> None:
        super().__init__()
        inner = heads.inner(width)
        self.heads, self.scale, self.dropout = heads.count, heads.scale, dropout
        self.q = nn.Linear(width, inner, bias=heads.bias)
        self.kv = Projections(width, inner, 2, bias=heads.bias)
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Attend from decoder states ``(B, T, d)`` to encoder states ``(B, S, d)`` with a ``(B, S)`` bool padding mask.

        Returns:
            ``(B, T, d)``.
        """
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = self.kv(states).unflatten(-1, (2, self.heads, -1)).unbind(2)
        dropout = self.dropout if self.training else 0.0
        mixed = attend_across(q, k, v, Context(), Context(padding_mask), dropout, self.scale)
        if mixed is None:
            mixed = attend(q, k, v, visible(padding_mask, None, None), dropout=dropout, scale=self.scale)
        return self.out(mixed.flatten(2))


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
