"""Pooled attention: a second attention whose keys and values are averages over windows of the whole sequence.

Source: BART-LS, arXiv:2209.10052, section 2.1. In the top layers of the encoder, ``y`` being what self-attention gave
after its output projection, the layer goes on with ``x + y + pooled(y)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.errors import FarspanError
from trainer.model.attention import HeadsConfig, attend, visible
from trainer.model.context import Context

Length = TypeVar("Length", int, Tensor)


@dataclass(frozen=True)
class Pooling:
    """Pooled attention in the top ``layers`` of the encoder; the defaults are the paper's.

    Attributes:
        layers: how many layers have it, counted from the top.
        kernel, stride, padding: of the average over positions; 16,384 positions become 1,366.
        reference_init: draw the output projection like all others; by default it starts at zero, so that a model
            starts as the same model without pooling.
        reference_padding: average over the whole window, its padding counted as zeros; by default over its real
            positions only.

    Raises:
        FarspanError: windows that leave positions out or a sequence without any window.
    """

    layers: int = 4
    kernel: int = 18
    stride: int = 12
    padding: int = 9
    reference_init: bool = False
    reference_padding: bool = False

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise FarspanError(f"pooling.layers is {self.layers}; give at least 1, or leave the pooling section out")
        if not 1 <= self.stride <= self.kernel:
            raise FarspanError(
                f"pooling.stride is {self.stride} with pooling.kernel {self.kernel}; "
                "1 <= stride <= kernel keeps every position in a window"
            )
        if self.padding != self.kernel // 2:
            raise FarspanError(
                f"pooling.padding is {self.padding} with pooling.kernel {self.kernel}; set it to {self.kernel // 2} "
                "(half the kernel), so that a sequence of one position has a window too"
            )

    def windows(self, length: Length) -> Length:
        """How many windows a sequence of ``length`` >= 1 positions has."""
        return (length + 2 * self.padding - self.kernel) // self.stride + 1

    def flops(self, length: int, width: int, inner: int) -> int:
        """Forward floating-point operations of one layer's pooled attention, its four projections included.

        Args:
            length: positions.
            width: d.
            inner: of all heads together, H * D.
        """
        return 8 * length * width * inner + 4 * length * self.windows(length) * inner


class PooledAttention(nn.Module):
    """Every position attends to every pooled window."""

    def __init__(self, width: int, heads: HeadsConfig, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        inner = heads.count * (heads.width or width // heads.count)
        self.heads, self.pooling, self.dropout = heads.count, pooling, dropout
        self.scale = None if heads.scaled else 1.0
        self.qkv = nn.Linear(width, 3 * inner, bias=heads.bias)
        self.out = nn.Linear(inner, width, bias=heads.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """``(B, L, d)`` -> ``(B, L, d)``; padding on the right changes nothing at real positions."""
        real = context.real
        inner = self.out.in_features
        q, kv = self.qkv(x).split([inner, 2 * inner], -1)
        k, v = self._pool(kv, real).unflatten(-1, (2, self.heads, -1)).unbind(2)
        mask = visible(None if real is None else self._real_windows(real), None, None)
        dropout = self.dropout if self.training else 0.0
        mixed = attend(q.unflatten(-1, (self.heads, -1)), k, v, mask, dropout=dropout, scale=self.scale)
        return self.out(mixed.flatten(2))

    def _pool(self, x: Tensor, real: Tensor | None) -> Tensor:
        """Average ``(B, L, C)`` over windows -> contiguous ``(B, P, C)``."""
        if real is None:
            return self._average(x, count_padding=self.pooling.reference_padding)
        total = self._average(x.masked_fill(~real[..., None], 0.0), count_padding=True)
        if self.pooling.reference_padding:
            return total
        share = self._average(real[..., None].float(), count_padding=True)  # (B, P, 1), 0 in windows without a position
        return (total / share.clamp(min=1 / self.pooling.kernel)).to(x.dtype)

    def _average(self, x: Tensor, count_padding: bool) -> Tensor:
        # As an image of height L and width 1 whose channels come last, (B, L, C) is pooled without being transposed.
        pooling = self.pooling
        image = x.transpose(1, 2).unsqueeze(-1).contiguous(memory_format=torch.channels_last)
        pooled = F.avg_pool2d(
            image, (pooling.kernel, 1), (pooling.stride, 1), (pooling.padding, 0), count_include_pad=count_padding
        )
        # Contiguous, because keys and values with another last stride than 1 lose the fast kernel.
        return pooled.squeeze(-1).transpose(1, 2).contiguous()

    def _real_windows(self, real: Tensor) -> Tensor:
        """``(B, P)`` bool: the windows that each row would have if it were not padded."""
        positions = torch.arange(1, real.shape[1] + 1, device=real.device)
        lengths = (real * positions).amax(1)  # (B,)
        windows = torch.arange(self.pooling.windows(real.shape[1]), device=real.device)
        return (windows < self.pooling.windows(lengths)[:, None]) & (lengths > 0)[:, None]
