"""Pooled attention: a second attention layer whose keys and values are averages over windows of the whole sequence.

Source: BART-LS, arXiv:2209.10052, section 2.1. In the top layers of the encoder, the sum after self-attention is
``x + y + pooled(y)``, where ``y`` is the output of self-attention after its output projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context, derive_per_batch
from trainer.model.layers.attention import CrossAttention
from trainer.model.layers.heads import HeadsConfig

Length = TypeVar("Length", int, Tensor)


@dataclass(frozen=True)
class Pooling:
    """Pooled attention in the top ``layers`` of the encoder; the defaults are the paper's.

    Attributes:
        layers: number of layers with pooled attention, counted from the top.
        kernel, stride, padding: parameters of the average over positions; 16,384 positions become 1,366.
        reference_init: draw the output projection like all others; by default it starts at zero, so that pooling does
            not change the initial model.
        reference_padding: follow the released code: average over the whole window, with padding counted as zeros, and
            attend to every window of the padded batch that holds a token, so that a row's result depends on the amount
            of padding. By default, averages and windows are computed as if the row had no padding.
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
                "(half the kernel), so that even a sequence of one position has a window"
            )

    def windows(self, length: Length) -> Length:
        """Number of windows of a sequence of ``length`` >= 1 positions."""
        return (length + 2 * self.padding - self.kernel) // self.stride + 1

    def flops(self, length: int, width: int, inner: int) -> int:
        """Count forward operations of one layer's pooled attention with its four projections."""
        windows = self.windows(length)
        return 4 * inner * (width * (length + windows) + length * windows)


class PooledAttention(CrossAttention):
    """Attention of every position to every pooled window.

    Averaging and projection commute, so the layer's input is averaged before it is projected to keys and values, at
    1 / stride of the cost.
    """

    def __init__(self, width: int, heads: HeadsConfig, pooling: Pooling, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        self.pooling = pooling

    def forward(self, x: Tensor, context: Context) -> Tensor:  # type: ignore[override]
        """Map hidden states ``(B, L, d)`` to the same shape; results at tokens do not depend on padding on the right.

        If documents must not attend to each other, a window belongs to the document of its middle position, averages
        only that document's positions, and only they attend to it. A document shorter than a stride may have no window;
        its positions get zeros.
        """
        q, pooling, padding_mask, segments = self.queries(x), self.pooling, context.padding_mask, context.segments
        owners = None if segments is None else derive_per_batch(_owners, (padding_mask, segments), pooling)
        k, v = self.split(self._pool(x, context, owners))
        padding_mask = None if padding_mask is None else derive_per_batch(_window_mask, (padding_mask,), pooling)
        return self.attend(q, k, v, context, context._replace(padding_mask=padding_mask, segments=owners))

    def _pool(self, x: Tensor, context: Context, owners: Tensor | None) -> Tensor:
        """Return keys and values, contiguous ``(B, P, 2 H D)``, since the fast kernel needs a last stride of 1."""
        if owners is not None and context.segments is not None:
            average, share = self._average_own(x, context.segments, context.padding_mask, owners)
        else:
            average, share = self._average(x, context.padding_mask)
        if not self.pooling.reference_padding:
            return self.kv(average)
        # Padding counts as positions with zero keys and values, so the bias is scaled too.
        keys = F.linear(average * share, self.kv.weight)
        return keys if self.kv.bias is None else keys + self.kv.bias * share

    def _average(self, x: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Average ``(B, L, C)`` over the tokens of each window, ``(B, P, C)``.

        Also return the share of the window that is not padding, ``(B or 1, P, 1)``.
        """
        if padding_mask is None:
            share = self._slide(x.new_ones(1, x.shape[1], 1), count_padding=True)
            return self._slide(x, count_padding=False), share
        total = self._slide(x.masked_fill(~padding_mask[..., None], 0.0), count_padding=True)
        share = self._slide(padding_mask[..., None].float(), count_padding=True)  # 0 in windows without a position
        return (total / share.clamp(min=1 / self.pooling.kernel)).to(x.dtype), share.to(x.dtype)

    def _slide(self, x: Tensor, count_padding: bool) -> Tensor:
        # (B, L, C) is pooled as an image of height L and width 1 in channels-last layout, without a transposition.
        pooling = self.pooling
        image = x.transpose(1, 2).unsqueeze(-1).contiguous(memory_format=torch.channels_last)
        pooled = F.avg_pool2d(
            image, (pooling.kernel, 1), (pooling.stride, 1), (pooling.padding, 0), count_include_pad=count_padding
        )
        return pooled.squeeze(-1).transpose(1, 2)

    def _average_own(
        self, x: Tensor, segments: Tensor, padding_mask: Tensor | None, owners: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Average over the positions of each window's own document, given by ``owners``, ``(B, P)``."""
        pooling = self.pooling
        if padding_mask is not None:
            segments = segments.masked_fill(~padding_mask, -1)
        # (B, P, kernel); -2, the padding value, owns no window
        members = F.pad(segments, (pooling.padding, pooling.padding), value=-2).unfold(
            1, pooling.kernel, pooling.stride
        )
        own = (members == owners[..., None]).to(x.dtype)
        count = own.sum(-1, keepdim=True)  # (B, P, 1), exact: a kernel has few positions
        # (B, P, C, kernel) @ (B, P, kernel, 1)
        windows = F.pad(x, (0, 0, pooling.padding, pooling.padding)).unfold(1, pooling.kernel, pooling.stride)
        total = (windows @ own[..., None]).squeeze(-1)
        return total / count.clamp(min=1), count / pooling.kernel


def _owners(padding_mask: Tensor | None, segments: Tensor, pooling: Pooling) -> Tensor:
    """Document of each window's middle, ``(B, P)``; of the row's last position if the middle is past it."""
    length = segments.shape[1]
    middles = pooling.stride * torch.arange(pooling.windows(length), device=segments.device)
    lengths = middles.new_full((len(segments),), length) if padding_mask is None else _lengths(padding_mask)
    return segments.gather(1, middles.minimum((lengths[:, None] - 1).clamp(min=0)))


def _window_mask(padding_mask: Tensor, pooling: Pooling) -> Tensor:
    """Mask of the windows that the positions of each row attend to, ``(B, P)`` bool."""
    lengths = _lengths(padding_mask)[:, None]
    windows = torch.arange(pooling.windows(padding_mask.shape[1]), device=padding_mask.device)
    if pooling.reference_padding:
        return pooling.stride * windows - pooling.padding < lengths.where(lengths > 0, -pooling.padding)
    return (windows < pooling.windows(lengths)) & (lengths > 0)


def _lengths(padding_mask: Tensor) -> Tensor:
    """Length of each row, index of its last token + 1, ``(B,)``."""
    return (padding_mask * torch.arange(1, padding_mask.shape[1] + 1, device=padding_mask.device)).amax(1)
