"""Patterns said as a mask, for kernels that skip the blocks where nothing is seen (FlexAttention, arXiv:2412.05496).

The mask is ``pattern.sees``, narrowed to documents and real positions; relative positions are looked up score by score.
Kernels are compiled for a length, so lengths are rounded up to few. A query at padding sees itself: a row that sees
nothing is never given to a kernel. On a CPU, where there is no backward pass, the same code runs uncompiled for tests.

The gradient of relative positions is summed by atomic additions: its last bits differ from run to run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from trainer.model.context import Context
from trainer.model.kernels.keep import kept
from trainer.model.kernels.remember import remembered

if TYPE_CHECKING:  # attention imports the choice, which imports this file
    from trainer.model.attention import Pattern

Kernel = Callable[..., Tensor]

NAMES = ("block_global", "window", "local", "tglobal")
"""Patterns that are attended to this way."""

AVAILABLE = "recompile_limit" in inspect.signature(torch.compile).parameters
"""Whether torch lets so many lengths be compiled: past its usual limit it would keep all scores instead."""

LEAST_WIDTH = 16
"""Of a head: the products of a kernel's tiles are no narrower."""

TILE = 128  # queries and keys that a kernel takes or skips as one


class Places(NamedTuple):
    """Who may see whom besides the pattern; None in all three where everyone may.

    Attributes:
        queries: ``(B, Lq)`` int64, the document of each query, -1 at padding.
        keys: ``(B, Lk)`` int64, likewise; -2 for keys that nobody sees.
        shown: ``(B, Lk)`` bool, keys that all queries of their document see; None where there are none.
    """

    queries: Tensor | None = None
    keys: Tensor | None = None
    shown: Tensor | None = None


def attend(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float | None = None) -> Tensor:
    """As ``pattern.attend`` without dropout; zeros at padding.

    Args:
        pattern: one of ``NAMES``.
        q: ``(B, L, H, D)``.
        k, v: ``(B, L + G, H, D)``; the G last are summaries (pattern ``tglobal``), else G is 0.
        context: of the L positions.
        scale: of the scores; None is 1 / sqrt(D).
    """
    length, sides = q.shape[1], k.shape[1] - q.shape[1]
    wide, wide_sides = rounded(length), _tiles(sides) * TILE if sides else 0
    places, mask = remembered(
        (context.real, context.segments, context.globals and context.globals.chosen),
        (pattern, tuple(q.shape[:2]), sides, q.device),
        lambda: _made(pattern, context, len(q), (length, wide), (sides, wide_sides), q.device),
    )
    bias = _bias(pattern, context, places, len(q), wide, (sides, wide_sides))
    k, v = (torch.cat([_longer(x[:, :length], wide), _longer(x[:, length:], wide_sides)], 1) for x in (k, v))
    heads_first = [x.transpose(1, 2) for x in (_longer(q, wide), k, v)]
    kernel = _compiled() if q.is_cuda else cast(Kernel, flex_attention)
    mixed = kept(lambda: kernel(*heads_first, score_mod=bias, block_mask=mask, scale=scale))
    mixed = mixed.transpose(1, 2)[:, :length]
    return mixed if context.real is None else mixed.masked_fill(~context.real[..., None, None], 0.0)


def rounded(length: int) -> int:
    """A multiple of ``TILE``: at most a quarter more than a length above 4 tiles, so that lengths share kernels."""
    tiles = _tiles(length)
    step = 1 << max(0, tiles.bit_length() - 3)
    return -(-tiles // step) * step * TILE


def _made(
    pattern: Pattern,
    context: Context,
    batch: int,
    lengths: tuple[int, int],
    sides: tuple[int, int],
    device: torch.device,
) -> tuple[Places, BlockMask]:
    places = places_of(pattern, context, batch, lengths, sides, device)
    return places, block_mask(pattern, places, lengths[1], lengths[1] + sides[1], device)


def places_of(
    pattern: Pattern,
    context: Context,
    batch: int,
    lengths: tuple[int, int],
    sides: tuple[int, int],
    device: torch.device,
) -> Places:
    """Who may see whom, of what is there now and will be after padding: (L, its roundup) and (G, its roundup)."""
    (length, wide), (count, wide_count) = lengths, sides
    real, segments, chosen = context.real, context.segments, context.globals
    if real is None and segments is None and chosen is None and length == wide and count == wide_count:
        return Places()
    document = torch.zeros(batch, length, dtype=torch.int64, device=device) if segments is None else segments.long()
    if real is not None:
        document = document.masked_fill(~real, -1)
    keys = document.masked_fill(document < 0, -2)
    if wide_count:
        owners = cast(Any, pattern).owners(context, length)
        owners = document.new_zeros(batch, count) if owners is None else owners.masked_fill(owners < 0, -2)
        side_keys = F.pad(owners, (0, wide_count - count), value=-2)
    else:
        side_keys = keys[:, :0]
    keys = torch.cat([F.pad(keys, (0, wide - length), value=-2), side_keys], 1)
    shown = None if chosen is None else F.pad(chosen.chosen, (0, keys.shape[1] - length))
    return Places(F.pad(document, (0, wide - length), value=-1), keys, shown)


def block_mask(pattern: Pattern, places: Places, queries: int, keys: int, device: torch.device) -> BlockMask:
    """Which tiles a kernel skips, which it takes whole, and what it asks in the others.

    Args:
        queries, keys: how many, multiples of ``TILE``.
    """
    some, whole = tiles_of(cast(Hashable, pattern), queries, keys, device)  # (Q, K) each
    some, whole = some[None], whole[None]
    if places.queries is not None and places.keys is not None:
        some, whole = _within_documents(some, whole, places.queries, places.keys, places.shown)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole),
        *_listed(whole),
        BLOCK_SIZE=TILE,
        mask_mod=_mask(pattern, places, queries),
        seq_lengths=(queries, keys),
    )


@lru_cache(maxsize=64)
def tiles_of(pattern: Pattern, queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tiles of ``TILE`` queries by ``TILE`` keys: whether any pair of them sees, and whether all do; (Q, K) bool."""
    every = torch.arange(keys, device=device)
    rows = []
    for start in range(0, queries, TILE):  # a tile of queries at a time: all pairs at once are gigabytes
        some = torch.arange(start, start + TILE, device=device)
        seen = pattern.sees(some[:, None], every, queries).unflatten(1, (-1, TILE))  # (TILE, K, TILE)
        rows.append((seen.any(2).any(0), seen.all(2).all(0)))
    some_rows, whole_rows = zip(*rows, strict=True)
    return torch.stack(some_rows), torch.stack(whole_rows)


def _within_documents(
    some: Tensor, whole: Tensor, queries: Tensor, keys: Tensor, shown: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``(1, Q, K)`` tiles of a pattern -> ``(B, Q, K)`` tiles of a batch; ``some`` may say yes too often."""
    q, k = queries.unflatten(1, (-1, TILE)), keys.unflatten(1, (-1, TILE))  # (B, Q, TILE), (B, K, TILE)
    last = torch.iinfo(torch.int64).max
    q_least, k_least = (x.masked_fill(x < 0, last).amin(2) for x in (q, k))
    q_most, k_most = q.amax(2), k.amax(2)
    if shown is not None:
        some = some | shown.unflatten(1, (-1, TILE)).any(2)[:, None, :]
    some = some & (q_least[:, :, None] <= k_most[:, None]) & (k_least[:, None] <= q_most[:, :, None])
    one_q, one_k = q_most == q.amin(2), k_most == k.amin(2)  # a single document, no padding: -1 and -2 never meet
    whole = whole & one_q[:, :, None] & one_k[:, None] & (q_most[:, :, None] == k_most[:, None])
    itself = torch.eye(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
    return some | (itself & (q.amin(2) < 0)[:, :, None]), whole


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """``(B, Q, K)`` bool -> how many are set, ``(B, 1, Q)``, and which, ``(B, 1, Q, K)`` with those ahead; int32."""
    order = tiles.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1).int()[:, None], order.int()[:, None]


def _mask(pattern: Pattern, places: Places, length: int) -> Callable[..., Tensor]:
    queries, keys, shown = places
    if queries is None or keys is None:
        return lambda b, h, q, k: pattern.sees(q, k, length)

    def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        seen = pattern.sees(q, k, length)
        if shown is not None:
            seen = seen | shown[b, k]
        return (seen & (queries[b, q] == keys[b, k])) | ((queries[b, q] < 0) & (q == k))

    return sees


def _bias(
    pattern: Any, context: Context, places: Places, batch: int, length: int, sides: tuple[int, int]
) -> Callable[..., Tensor] | None:
    """Relative positions: ``(H, 2 r + 1)`` by offset, and of summaries ``(H, 2 G - 1)`` by distance in blocks."""
    if not context.biases:
        return None
    near, reach = context.biases[0], pattern.radius
    count, wide_count = sides
    if not count:
        return lambda score, b, h, q, k: score + near[h, (k - q + reach).clamp(0, 2 * reach)]
    far = F.pad(context.biases[1], (wide_count - count, wide_count - count))  # the distance 0 stays in the middle
    block = pattern.block
    if places.keys is None:
        last = torch.full((batch,), count - 1, device=near.device)
    else:  # the last summary of each row: what follows its block counts with it
        numbers = torch.arange(wide_count, device=near.device)
        last = torch.where(places.keys[:, length:] >= 0, numbers, 0).amax(1)

    def score_with_bias(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        own = torch.minimum(q // block, last[b])
        away = (k - length - own + wide_count - 1).clamp(0, 2 * wide_count - 2)
        offset = (k - q + reach).clamp(0, 2 * reach)
        return score + torch.where(k >= length, far[h, away], near[h, offset])

    return score_with_bias


def _tiles(length: int) -> int:
    return -(-length // TILE)


def _longer(x: Tensor, length: int) -> Tensor:
    """``(B, L, H, D)`` with zeros up to ``length``."""
    return x if x.shape[1] == length else F.pad(x, (0, 0, 0, 0, 0, length - x.shape[1]))


@lru_cache(maxsize=1)
def _compiled() -> Kernel:
    compiler = cast(Callable[..., Kernel], torch.compile)  # whose type says less than it takes
    return compiler(flex_attention, dynamic=False, recompile_limit=64)
