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
from trainer.model.layers.heads import HeadNorms, HeadsConfig, Projections
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
        k, v: ``(B, Lk, H, D)``, or with fewer heads, a divisor of H; the fast kernel needs a last stride of 1.
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
    grouped = q.shape[2] // k.shape[2]
    if grouped > 1 and not q.is_cuda:  # the fast CPU kernel has no groups, and the slow one stores all scores
        k, v = (x[:, :, :, None].expand(-1, -1, -1, grouped, -1).flatten(2, 3) for x in (k, v))
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    groups = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}  # a compiled comparison is no bool
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale, **groups
    ).transpose(1, 2)
    return mixed if empty is None else mixed.masked_fill(empty[..., None], 0.0)


def mask_other_documents(
    padding_mask: Tensor | None, query_segments: Tensor | None, key_segments: Tensor | None
) -> Tensor | None:
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
    """Multi-head self-attention with a pattern that has no parameters of its own.

    Queries have a projection of their own if they have more heads than keys and values, so that stacked projections
    always have equal widths.
    """

    def __init__(self, width: int, heads: HeadsConfig, pattern: Pattern, dropout: float) -> None:
        super().__init__()
        inner = heads.inner(width)
        self.heads, self.scale = heads.count, heads.scale
        self.pattern, self.dropout = pattern, dropout
        self.grouped = heads.groups != heads.count
        if self.grouped:
            self.q = nn.Linear(width, inner, bias=heads.bias)
            self.kv = Projections(width, inner // heads.count * heads.groups, 2, bias=heads.bias)
        else:
            self.qkv = Projections(width, inner, 3, bias=heads.bias)
        self.norms, self.groups = HeadNorms(width, heads), heads.groups
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, context: Context, states: Tensor | None = None) -> Tensor:
        """Map hidden states ``(B, G + L, d)`` to the same shape; ``states``, ``(B, S, d)``, are those of ``mix``."""
        return self.out(self.mix(x, context, states).flatten(2))

    def mix(self, x: Tensor, context: Context, states: Tensor | None = None) -> Tensor:
        """Attend before the output projection: ``(B, G + L, d)`` to the values of every head, ``(B, G + L, H, D)``.

        ``states`` of the encoder, if given, are side keys, which have no position (``patterns/merged.py``).
        """
        q, k, v = self.project(x)
        rotation = context.rotation_of(self.pattern.local)
        q, k = rotate(q, rotation), rotate(k, rotation)
        if states is not None:
            side_k, side_v = self.project_keys(states)
            k, v = torch.cat([k, side_k], 1), torch.cat([v, side_v], 1)
        dropout = self.dropout if self.training else 0.0
        return attend_within(self.pattern, q, k, v, context, dropout, self.scale)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project ``(B, L, d)`` to queries, keys and values before rotation, ``(B, L, heads, D)`` each."""
        if self.grouped:
            return self.norms.q(self.q(x).unflatten(-1, (self.heads, -1))), *self.project_keys(x)
        # (B, L, 3 H D) -> three views (B, L, H, D)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.norms.q(q), self.norms.k(k), v

    def project_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``(B, L, d)`` to keys and values alone."""
        if self.grouped:
            projected = self.kv(x)
        else:
            first = self.qkv.out_features // 3
            projected = F.linear(x, self.qkv.weight[first:], None if self.qkv.bias is None else self.qkv.bias[first:])
        k, v = projected.unflatten(-1, (2, self.groups, -1)).unbind(2)
        return self.norms.k(k), v


_ALL = Context()


def make_attention(pattern: Pattern, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> nn.Module:
    """Make the self-attention layer of a pattern."""
    return pattern.layer(width, heads, norm, dropout) or SelfAttention(width, heads, pattern, dropout)


class CrossAttention(nn.Module):
    """Full attention of the decoder to the encoder's output."""

    def __init__(self, width: int, heads: HeadsConfig, dropout: float) -> None:
        super().__init__()
        inner = heads.inner(width)
        self.heads, self.scale, self.dropout = heads.count, heads.scale, dropout
        self.q = nn.Linear(width, inner, bias=heads.bias)
        self.kv = Projections(width, inner // heads.count * heads.groups, 2, bias=heads.bias)
        self.norms, self.groups = HeadNorms(width, heads), heads.groups
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, states: Tensor, context: Context = _ALL, keys: Context = _ALL) -> Tensor:
        """Attend from decoder states ``(B, T, d)`` to encoder states ``(B, S, d)``, within their documents.

        ``context`` is that of the T positions, ``keys`` that of the S; both have segments, or neither has. Returns
        ``(B, T, d)``.
        """
        return self.attend(self.queries(x), *self.project_keys(states), context, keys)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context, keys: Context) -> Tensor:
        """Attend from projected queries to projected keys and values, and project the result, ``(B, T, d)``."""
        dropout = self.dropout if self.training else 0.0
        mixed = attend_across(q, k, v, context, keys, dropout, self.scale)
        if mixed is None:
            mask = mask_other_documents(keys.padding_mask, context.segments, keys.segments)
            mixed = attend(q, k, v, mask, dropout=dropout, scale=self.scale)
        return self.out(mixed.flatten(2))

    def queries(self, x: Tensor) -> Tensor:
        """Project ``(B, T, d)`` to queries, ``(B, T, H, D)``."""
        return self.norms.q(self.q(x).unflatten(-1, (self.heads, -1)))

    def project_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``(B, S, d)`` to keys and values, ``(B, S, heads, D)`` each."""
        return self.split(self.kv(states))

    def split(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Split ``(B, S, 2 * heads * D)`` into keys and values, ``(B, S, heads, D)`` each."""
        k, v = projected.unflatten(-1, (2, self.groups, -1)).unbind(2)
        return self.norms.k(k), v


@dataclass(frozen=True)
class Causal(Pattern):
    """Position i attends to positions up to i.

    Padding is on the right, where no earlier position attends to it, so it needs no mask.
    """

    pattern: Literal["causal"] = "causal"

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        same = mask_other_documents(None, context.segments, context.segments)
        if not context.biases and same is None:
            return attend(q, k, v, dropout=dropout, causal=True, scale=scale)
        places = torch.arange(q.shape[1], device=q.device)
        seen = self.mask_mod(places[:, None], places, q.shape[1])[None]
        seen = seen if same is None else seen & same
        return attend(q, k, v, seen, *context.biases, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        positions = torch.arange(length)
        return (positions - positions[:, None],)  # (L, L)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return key <= query

    def flops(self, length: int, width: int) -> int:
        return 2 * length * (length + 1) * width
