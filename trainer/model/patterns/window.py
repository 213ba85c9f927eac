"""A sliding window plus global positions chosen by the task (Longformer, arXiv:2004.05150, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context, Globals
from trainer.model.layers.attention import SelfAttention, attend, mask_other_documents
from trainer.model.layers.heads import HeadsConfig, Projections
from trainer.model.layers.sublayers import NormConfig
from trainer.model.pattern import Pattern
from trainer.model.patterns.span import GlobalKeys, attend_span, count_pairs
from trainer.model.positions import rotate


@dataclass(frozen=True)
class Window(Pattern):
    """Position i attends to the ``size + 1`` positions ``|i - j| <= size / 2``, and to all global ones.

    Global positions come from the task, as ``context.globals``; in ``WindowAttention`` they attend to all positions.

    Attributes:
        size: window size, or one for each layer.
    """

    size: int | tuple[int, ...] = 512
    pattern: Literal["window"] = "window"
    uses_flex: ClassVar[bool] = True
    takes_global_positions: ClassVar[bool] = True
    optional_weights: ClassVar[bool] = True  # projections of global positions

    def __post_init__(self) -> None:
        if not self.sizes:
            raise FarspanError("attention pattern window: size is empty; give one size, or one for each layer")
        for size in self.sizes:
            if size < 2 or size % 2:
                raise FarspanError(
                    f"attention pattern window: size is {size}; half of it is on either side of a position, so it "
                    "must be even and at least 2"
                )

    def check(self, layers: int) -> None:
        if len(self.sizes) not in (1, layers):
            raise FarspanError(
                f"model.encoder.attention.size has {len(self.sizes)} sizes, but model.encoder.layers is {layers}; give "
                "one size, or one for each layer"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Window sizes, one for each layer or one for all layers."""
        return (self.size,) if isinstance(self.size, int) else self.size

    def at(self, layer: int) -> Window:
        return self if isinstance(self.size, int) else Window(self.size[layer])

    @property
    def half(self) -> int:
        """Number of positions attended to on either side."""
        (size,) = self.sizes
        return size // 2

    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> WindowAttention:
        return WindowAttention(width, heads, self, dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        padding_mask, shown = context.padding_mask, None
        if context.globals is not None:
            # Global positions are separate keys, so they are masked out within the window.
            padding_mask = ~context.globals.chosen if padding_mask is None else padding_mask & ~context.globals.chosen
            shown = _global_keys(k, v, context)
        context = context._replace(padding_mask=padding_mask)
        return attend_span(q, k, v, context, self.half, self.half, shown, dropout, scale)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (query - key).abs() <= self.half

    def flops(self, length: int, width: int) -> int:
        return 4 * width * count_pairs(length, self.half, self.half)

    def extra_flops(self, length: int, width: int, inner: int, global_positions: int) -> int:
        # queries of global positions, keys and values of all positions, scores and weighted sums in both directions
        projections = 2 * width * inner * (global_positions + 2 * length * (global_positions > 0))
        return projections + 8 * global_positions * length * inner


class WindowAttention(SelfAttention):
    """Self-attention within a window, plus attention of global positions to all positions.

    Global positions have their own projections (arXiv:2004.05150, section 3.1) for queries and for the keys and values
    that they attend to; a batch without global positions does not use them.
    """

    def __init__(self, width: int, heads: HeadsConfig, pattern: Window, dropout: float) -> None:
        super().__init__(width, heads, pattern, dropout)
        self.global_qkv = Projections(width, self.out.in_features, 3, bias=heads.bias)

    def mix(self, x: Tensor, context: Context, states: Tensor | None = None) -> Tensor:
        """Attend before the output projection: ``(B, L, d)`` to the values of every head, ``(B, L, H, D)``."""
        mixed = super().mix(x, context)
        if context.globals is None:
            return mixed
        answers = self._attend_globally(x, context, context.globals)  # (B, G, H, D)
        chosen = context.globals.chosen
        # index of each global position within its row
        which = (chosen.cumsum(1) - 1).clamp_(min=0)[..., None, None]  # (B, L, 1, 1)
        placed = answers.gather(1, which.expand(mixed.shape))
        return torch.where(chosen[..., None, None], placed, mixed)

    def _attend_globally(self, x: Tensor, context: Context, chosen: Globals) -> Tensor:
        """Attend from each global position to its whole document; returns ``(B, G, H, D)``."""
        inner, bias = self.out.in_features, self.global_qkv.bias
        w_q, w_kv = self.global_qkv.weight.split([inner, 2 * inner])
        b_q, b_kv = (None, None) if bias is None else bias.split([inner, 2 * inner])
        states = x.gather(1, chosen.at[..., None].expand(-1, -1, x.shape[2]))  # (B, G, d)
        q = F.linear(states, w_q, b_q).unflatten(-1, (self.heads, -1))
        k, v = F.linear(x, w_kv, b_kv).unflatten(-1, (2, self.heads, -1)).unbind(2)
        q, k = self.norms.q(q), self.norms.k(k)
        if context.rotation:
            turns = [part[chosen.at.flatten()] for part in context.rotation]  # (B G, D)
            q = rotate(q.flatten(0, 1)[None], (turns[0], turns[1]))[0].view_as(q)
            k = rotate(k, context.rotation)
        mask = mask_other_documents(context.padding_mask, _at(context.segments, chosen), context.segments)
        dropout = self.dropout if self.training else 0.0
        return attend(q, k, v, mask, dropout=dropout, scale=self.scale)


def _global_keys(k: Tensor, v: Tensor, context: Context) -> GlobalKeys:
    assert context.globals is not None
    places = context.globals.at[..., None, None].expand(-1, -1, *k.shape[2:])  # (B, G, H, D)
    return GlobalKeys(
        k.gather(1, places), v.gather(1, places), context.globals.padding_mask, _at(context.segments, context.globals)
    )


def _at(segments: Tensor | None, chosen: Globals) -> Tensor | None:
    """Select the documents of global positions: ``(B, L)`` to ``(B, G)``."""
    return None if segments is None else segments.gather(1, chosen.at)
