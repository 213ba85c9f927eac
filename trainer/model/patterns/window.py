"""A sliding window plus global positions chosen by the task (Longformer, arXiv:2004.05150, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context, Globals
from trainer.model.layers.attention import SelfAttention, attend, visible
from trainer.model.layers.heads import HeadsConfig, Projections
from trainer.model.layers.sublayers import NormConfig
from trainer.model.pattern import Pattern
from trainer.model.positions import rotate


class _Part(NamedTuple):
    """Consecutive groups of ``size`` queries, and the keys that each group may attend to.

    The first group is ``[start, start + size)`` and its keys are ``[first_key, first_key + reach)``; each further group
    and its keys are half a window to the right.
    """

    start: int
    groups: int
    size: int
    first_key: int
    reach: int


class _GlobalKeys(NamedTuple):
    """Keys and values of global positions, ``(B, G, H, D)``, visible to all queries, and their ``(B, G)`` masks."""

    k: Tensor
    v: Tensor
    padding_mask: Tensor
    segments: Tensor | None


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
        parts = [self._attend_part(part, q, k, v, context, shown, dropout, scale) for part in self._parts(q.shape[1])]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _parts(self, length: int) -> list[_Part]:
        """Return groups of half a window with three half windows of keys, and shorter groups at both ends.

        Thus no key is padding of a group, and all inner groups share one mask.
        """
        half = self.half
        inner = length // half - 2
        if inner < 1:
            return [_Part(0, 1, length, 0, length)]
        last = (inner + 1) * half
        return [
            _Part(0, 1, half, 0, 2 * half),
            _Part(half, inner, half, 0, 3 * half),
            _Part(last, 1, length - last, last - half, length - last + half),
        ]

    def _attend_part(
        self,
        part: _Part,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: Context,
        shown: _GlobalKeys | None,
        dropout: float,
        scale: float | None,
    ) -> Tensor:
        """Attend from the queries of ``part``; returns ``(B, groups * size, H, D)``."""
        start, groups, size, first_key, reach = part

        def queries(x: Tensor) -> Tensor:  # (B, L, ...) -> (B n, Q, ...)
            return x[:, start : start + groups * size].unflatten(1, (groups, size)).flatten(0, 1)

        def keys(x: Tensor) -> Tensor:  # (B, L, ...) -> (B n, K, ...), overlapping; a view if B is 1
            stop = first_key + reach + (groups - 1) * self.half
            return x[:, first_key:stop].unfold(1, reach, self.half).movedim(-1, 2).flatten(0, 1)

        query_segments = None if context.segments is None else queries(context.segments)
        key_segments = None if context.segments is None else keys(context.segments)
        mask = visible(
            None if context.padding_mask is None else keys(context.padding_mask), query_segments, key_segments
        )
        k_seen, v_seen, bias = keys(k), keys(v), None
        if reach - 1 > self.half:
            places = torch.arange(first_key, first_key + reach, device=q.device)
            near = self.mask_mod(
                torch.arange(start, start + size, device=q.device)[:, None], places, q.shape[1]
            )  # (Q, K)
            if mask is None:
                # Every query attends to itself, so each has a key.
                bias = torch.zeros_like(near, dtype=q.dtype).masked_fill(~near, float("-inf"))[None, None]
            else:
                mask = near & mask  # (B n, Q, K)
        if shown and mask is not None:  # with global positions there is always a mask
            beside_segments = None if shown.segments is None else _repeat(shown.segments, groups)
            beside = visible(_repeat(shown.padding_mask, groups), query_segments, beside_segments)
            assert beside is not None
            mask = torch.cat([mask.expand(-1, size, -1), beside.expand(-1, size, -1)], -1)  # (B n, Q, K + G)
            k_seen = torch.cat([k_seen, _repeat(shown.k, groups)], 1)
            v_seen = torch.cat([v_seen, _repeat(shown.v, groups)], 1)
        mixed = attend(queries(q), k_seen, v_seen, mask, bias, dropout=dropout, scale=scale)
        return mixed.unflatten(0, (-1, groups)).flatten(1, 2)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (query - key).abs() <= self.half

    def flops(self, length: int, width: int) -> int:
        half = min(self.half, length - 1)
        return 4 * width * (length * (2 * half + 1) - half * (half + 1))

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
        self.global_qkv = Projections(width, self.qkv.out_features // 3, 3, bias=heads.bias)

    def mix(self, x: Tensor, context: Context) -> Tensor:
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
        inner, bias = self.qkv.out_features // 3, self.global_qkv.bias
        w_q, w_kv = self.global_qkv.weight.split([inner, 2 * inner])
        b_q, b_kv = (None, None) if bias is None else bias.split([inner, 2 * inner])
        states = x.gather(1, chosen.at[..., None].expand(-1, -1, x.shape[2]))  # (B, G, d)
        q = F.linear(states, w_q, b_q).unflatten(-1, (self.heads, -1))
        k, v = F.linear(x, w_kv, b_kv).unflatten(-1, (2, self.heads, -1)).unbind(2)
        if context.rotation:
            turns = [part[chosen.at.flatten()] for part in context.rotation]  # (B G, D)
            q = rotate(q.flatten(0, 1)[None], (turns[0], turns[1]))[0].view_as(q)
            k = rotate(k, context.rotation)
        mask = visible(context.padding_mask, _at(context.segments, chosen), context.segments)
        dropout = self.dropout if self.training else 0.0
        return attend(q, k, v, mask, dropout=dropout, scale=self.scale)


def _global_keys(k: Tensor, v: Tensor, context: Context) -> _GlobalKeys:
    assert context.globals is not None
    places = context.globals.at[..., None, None].expand(-1, -1, *k.shape[2:])  # (B, G, H, D)
    return _GlobalKeys(
        k.gather(1, places), v.gather(1, places), context.globals.padding_mask, _at(context.segments, context.globals)
    )


def _at(segments: Tensor | None, chosen: Globals) -> Tensor | None:
    """Select the documents of global positions: ``(B, L)`` to ``(B, G)``."""
    return None if segments is None else segments.gather(1, chosen.at)


def _repeat(x: Tensor, groups: int) -> Tensor:
    """Repeat each row n times: ``(B, ...)`` to ``(B n, ...)``."""
    return x[:, None].expand(-1, groups, *x.shape[1:]).flatten(0, 1)
