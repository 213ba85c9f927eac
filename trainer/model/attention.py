"""Scaled dot-product attention that survives padding, and the self- and cross-attention layers built on it.

Tensors that hold heads are ``(B, L, H, D)``: batch, positions, heads, head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.kernels.choose import attend_across, attend_within
from trainer.model.projections import Projections
from trainer.model.rotary import rotate


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Attention heads, the same in every attention of the model.

    Attributes:
        count: H.
        width: D; None is the model's width / count.
        bias: whether the four projections have biases.
        scaled: whether scores are divided by sqrt(D); T5's are not.

    Raises:
        FarspanError: sizes below 1.
    """

    count: int
    width: int | None = None
    bias: bool = True
    scaled: bool = True

    def __post_init__(self) -> None:
        for name in ("count", "width"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"model.heads.{name} is {value}; it must be at least 1")


class Pattern(Protocol):
    """Who attends to whom in a self-attention layer; a frozen dataclass whose field ``pattern`` is its name.

    A pattern with ``extra_tokens`` sees sequences of ``G + L`` positions, its own tokens first: G is their number, or,
    where documents must not see each other, that times ``context.documents``, all of document 0 first. What a context
    says of positions is said of the other L.
    """

    @property
    def pattern(self) -> str:
        """The name that a recipe says."""

    @property
    def extra_tokens(self) -> int:
        """How many learned tokens stand before the sequence in all layers of the encoder."""

    def at(self, layer: int) -> Pattern:
        """The pattern of the 0-based ``layer``."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        """Attend within the pattern.

        Args:
            q, k, v: ``(B, G + L, H, D)``.
            context: of the L positions.
            dropout: probability of dropping an attention weight.
            scale: of the scores; None is 1 / sqrt(D).

        Returns:
            ``(B, G + L, H, D)``; zeros where a query sees no real position.
        """

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        """Key position - query position, int64, in the shapes in which ``attend`` takes biases; one for each table of
        relative positions that the pattern wants, none where it knows no relative positions."""

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        """The pattern said the plain way: whether ``query`` sees ``key``, both int64 places among the ``G + length``
        positions, of shapes that broadcast; bool. Padding and documents are not its concern."""

    def flops(self, length: int, width: int) -> int:
        """Floating-point operations of scores and mixing, forward, for one sequence and ``H * D = width``."""

    def kept(self, length: int, width: int, heads: int) -> int:
        """Numbers that ``attend`` keeps for the backward pass besides q, k, v and its result, for one sequence without
        padding, on a CPU."""


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
    """Softmax(scale q k^T + bias) v.

    Args:
        q: ``(B, Lq, H, D)``.
        k, v: ``(B, Lk, H, D)``; a last stride other than 1 costs the fast kernel.
        mask: ``(B, 1 or Lq, Lk)`` bool, the keys that may be seen; None means all, which is fastest.
        bias: ``(H, Lq, Lk)``, or with a batch in front; learned ones cost the fast kernel on a CPU.
        dropout: probability of dropping an attention weight; above 0 costs the fast kernel on a CPU.
        causal: query i sees keys up to i only; not together with a mask or a bias.
        scale: of the scores; None is 1 / sqrt(D).

    Returns:
        ``(B, Lq, H, D)``; zeros, with zero gradients, in rows without any key.
    """
    empty = None
    if mask is not None:
        # A softmax over nothing is NaN in some kernels: such rows see everything, and are then set to zero.
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


def visible(real: Tensor | None, query_segments: Tensor | None, key_segments: Tensor | None) -> Tensor | None:
    """The mask of ``attend``: real keys of the query's own document.

    Args:
        real: ``(N, Lk)`` bool, or None where all are.
        query_segments, key_segments: ``(N, Lq)`` and ``(N, Lk)`` int, or None where documents see each other.

    Returns:
        ``(N, 1 or Lq, Lk)`` bool, or None where everything is seen.
    """
    keys = None if real is None else real[:, None, :]
    if query_segments is None or key_segments is None:
        return keys
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return same if keys is None else same & keys


class SelfAttention(nn.Module):
    """Multi-head self-attention within a pattern that has no parameters of its own."""

    def __init__(self, width: int, heads: HeadsConfig, pattern: Pattern, dropout: float) -> None:
        super().__init__()
        inner = heads.count * (heads.width or width // heads.count)
        self.heads, self.pattern, self.dropout = heads.count, pattern, dropout
        self.scale = None if heads.scaled else 1.0
        self.qkv = Projections(width, inner, 3, bias=heads.bias)
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """``(B, G + L, d)`` -> ``(B, G + L, d)``."""
        return self.out(self.mix(x, context).flatten(2))

    def mix(self, x: Tensor, context: Context) -> Tensor:
        """``(B, G + L, d)`` -> ``(B, G + L, H, D)``: each position's mixture of values, for every head."""
        # (B, G + L, 3 H D) -> three views (B, G + L, H, D)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = rotate(q, context.rotation), rotate(k, context.rotation)
        dropout = self.dropout if self.training else 0.0
        return attend_within(self.pattern, q, k, v, context, dropout, self.scale)


class CrossAttention(nn.Module):
    """The decoder's full attention to the encoder's output."""

    def __init__(self, width: int, heads: HeadsConfig, dropout: float) -> None:
        super().__init__()
        inner = heads.count * (heads.width or width // heads.count)
        self.heads, self.dropout = heads.count, dropout
        self.scale = None if heads.scaled else 1.0
        self.q = nn.Linear(width, inner, bias=heads.bias)
        self.kv = Projections(width, inner, 2, bias=heads.bias)
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, memory: Tensor, real: Tensor | None = None) -> Tensor:
        """``(B, T, d)``, memory ``(B, S, d)`` and its ``(B, S)`` bool -> ``(B, T, d)``."""
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = self.kv(memory).unflatten(-1, (2, self.heads, -1)).unbind(2)
        dropout = self.dropout if self.training else 0.0
        mixed = attend_across(q, k, v, Context(), Context(real), dropout, self.scale)
        if mixed is None:
            mixed = attend(q, k, v, visible(real, None, None), dropout=dropout, scale=self.scale)
        return self.out(mixed.flatten(2))
