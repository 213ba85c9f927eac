"""Scaled dot-product attention that survives padding, and the self- and cross-attention layers built on it.

Tensors that hold heads are ``(B, L, H, D)``: batch, positions, heads, head width; ``d = H * D``.
"""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn


class Pattern(Protocol):
    """Who attends to whom in a self-attention layer; a frozen dataclass whose field ``pattern`` is its name."""

    @property
    def pattern(self) -> str:
        """The name that a recipe says."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, dropout: float = 0.0) -> Tensor:
        """Attend within the pattern.

        Args:
            q, k, v: ``(B, L, H, D)``.
            real: ``(B, L)`` bool, False at padding; None where there is none.
            dropout: probability of dropping an attention weight.

        Returns:
            ``(B, L, H, D)``; zeros where a query sees no real position.
        """

    def dense_mask(self, length: int) -> Tensor:
        """``(L, L)`` bool, True where the row's query sees the column's key: the pattern said the plain way."""

    def flops(self, length: int, width: int) -> int:
        """Floating-point operations of scores and mixing, forward, for one sequence and ``H * D = width``."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None = None, dropout: float = 0.0, causal: bool = False
) -> Tensor:
    """Softmax(q k^T / sqrt(D)) v.

    Args:
        q: ``(B, Lq, H, D)``.
        k, v: ``(B, Lk, H, D)``; a last stride other than 1 costs the fast kernel.
        keys: ``(B, Lk)`` bool, the keys that may be seen; None means all, which costs no mask.
        dropout: probability of dropping an attention weight; above 0 costs the fast kernel on a CPU.
        causal: query i sees keys up to i only.

    Returns:
        ``(B, Lq, H, D)``; zeros, with zero gradients, in rows without any key.
    """
    mask = empty = None
    if keys is not None:
        # A softmax over nothing is NaN in some kernels: such rows see everything, and are then set to zero.
        empty = ~keys.any(1)
        mask = (keys | empty[:, None])[:, None, None, :]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal).transpose(1, 2)
    return mixed if empty is None else mixed.masked_fill(empty[:, None, None, None], 0.0)


class SelfAttention(nn.Module):
    """Multi-head self-attention within a pattern."""

    def __init__(self, width: int, heads: int, pattern: Pattern, dropout: float) -> None:
        super().__init__()
        self.heads, self.pattern, self.dropout = heads, pattern, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """``(B, L, d)``, ``(B, L)`` bool -> ``(B, L, d)``."""
        # (B, L, 3 d) -> three views (B, L, H, D)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.out(self.pattern.attend(q, k, v, real, self.dropout if self.training else 0.0).flatten(2))


class CrossAttention(nn.Module):
    """The decoder's full attention to the encoder's output."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, real: Tensor | None = None) -> Tensor:
        """``(B, T, d)``, memory ``(B, S, d)`` and its ``(B, S)`` bool -> ``(B, T, d)``."""
        q = self.q(x).unflatten(-1, (self.heads, -1))
        k, v = self.kv(memory).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return self.out(attend(q, k, v, real, self.dropout if self.training else 0.0).flatten(2))
