"""Attention patterns as masks for FlexAttention, which skips tiles that are masked out (arXiv:2412.05496).

The mask is ``pattern.mask_mod``, restricted to the query's document and to keys that are not padding; the biases of
relative positions are looked up score by score. Kernels are compiled per length, so lengths are rounded up to few
values. A query at padding attends to itself, so that no row is without keys. On a CPU, where FlexAttention has no
backward pass, the same code runs uncompiled for tests.

The gradient of relative positions is summed by atomic additions, so its last bits may differ between runs.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from trainer.model.context import Context, number_documents, remember_per_batch
from trainer.model.pattern import Pattern, ScoreMod, SideKeys

Kernel = Callable[..., Tensor]

AVAILABLE = "recompile_limit" in inspect.signature(torch.compile).parameters
"""True if torch can compile this many lengths; beyond its default limit it would save all scores instead."""

LEAST_WIDTH = 16
"""Minimum head width of the kernel's matrix products."""

TILE = 128  # queries and keys of a tile, which a kernel computes or skips as a whole


class Places(NamedTuple):
    """The part of the mask that depends on the batch; all three are None if it masks nothing."""

    queries: Tensor | None = None  # (B, Lq) int64, the document of each query, -1 at padding
    keys: Tensor | None = None  # (B, Lk) int64, the document of each key, -2 for keys to which no query attends
    shown: Tensor | None = None  # (B, Lk) bool, keys to which all queries of their document attend


def attend(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float | None = None) -> Tensor:
    """Compute ``pattern.attend`` without dropout, for a pattern with ``uses_flex``; zeros at padding.

    ``q`` is ``(B, L, H, D)``, ``k`` and ``v`` ``(B, L + G, H, D)`` with the pattern's G side keys last; ``scale`` None
    is 1 / sqrt(D).
    """
    length, sides = q.shape[1], k.shape[1] - q.shape[1]
    wide, wide_sides = round_up(length), _tiles(sides) * TILE if sides else 0

    def make() -> tuple[Places, BlockMask]:
        places = places_of(pattern, context, len(q), (length, wide), (sides, wide_sides), q.device)
        return places, block_mask(pattern, places, wide, wide + wide_sides, q.device)

    chosen = context.globals and context.globals.chosen
    given = (context.padding_mask, context.segments, chosen, context.side_mask, context.side_segments)
    places, mask = remember_per_batch(given, (pattern, tuple(q.shape[:2]), sides, q.device), make)
    score_mod = _score_mod(pattern, context, places, len(q), wide, (sides, wide_sides))
    k, v = (torch.cat([_longer(x[:, :length], wide), _longer(x[:, length:], wide_sides)], 1) for x in (k, v))
    heads_first = [x.transpose(1, 2) for x in (_longer(q, wide), k, v)]
    grouped = {"enable_gqa": True} if k.shape[2] != q.shape[2] else {}
    kernel = _compiled() if q.is_cuda else cast(Kernel, flex_attention)
    mixed = compute_once(lambda: kernel(*heads_first, score_mod=score_mod, block_mask=mask, scale=scale, **grouped))
    mixed = mixed.transpose(1, 2)[:, :length]
    return mixed if context.padding_mask is None else mixed.masked_fill(~context.padding_mask[..., None, None], 0.0)


def round_up(length: int) -> int:
    """Round up to a multiple of ``TILE``, by at most a quarter above 4 tiles, so that lengths share kernels."""
    tiles = _tiles(length)
    step = 1 << max(0, tiles.bit_length() - 3)
    return -(-tiles // step) * step * TILE


def places_of(
    pattern: Pattern,
    context: Context,
    batch: int,
    lengths: tuple[int, int],
    sides: tuple[int, int],
    device: torch.device,
) -> Places:
    """Make the ``Places`` of a batch, from ``lengths`` (L, L rounded up) and ``sides`` (G, G rounded up)."""
    (length, wide), (count, wide_count) = lengths, sides
    owners, chosen = pattern.side_documents(context, length) if count else None, context.globals
    of_batch = (context.padding_mask, context.segments, chosen, owners)
    if all(part is None for part in of_batch) and (length, count) == (wide, wide_count):
        return Places()
    document = number_documents(context, batch, length, device)
    keys = document.masked_fill(document < 0, -2)
    if wide_count:
        owners = document.new_zeros(batch, count) if owners is None else owners.masked_fill(owners < 0, -2)
        side_keys = F.pad(owners, (0, wide_count - count), value=-2)
    else:
        side_keys = keys[:, :0]
    keys = torch.cat([F.pad(keys, (0, wide - length), value=-2), side_keys], 1)
    shown = None if chosen is None else F.pad(chosen.chosen, (0, keys.shape[1] - length))
    return Places(F.pad(document, (0, wide - length), value=-1), keys, shown)


def block_mask(pattern: Pattern, places: Places, queries: int, keys: int, device: torch.device) -> BlockMask:
    """Make the block mask: tiles to skip, tiles without a mask, and the mask of the others."""
    some, whole = tiles_of(cast(Hashable, pattern), queries, keys, device)  # (Q, K) each
    some, whole = some[None], whole[None]
    if places.queries is not None and places.keys is not None:
        some, whole = _within_documents(some, whole, places.queries, places.keys, places.shown)
    return BlockMask.from_kv_blocks(
        *_list_tiles(some & ~whole),
        *_list_tiles(whole),
        BLOCK_SIZE=TILE,
        mask_mod=_mask(pattern, places, queries),
        seq_lengths=(queries, keys),
    )


@lru_cache(maxsize=64)
def tiles_of(pattern: Pattern, queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Find the tiles in which any query attends to any key, and those in which all do to all, ``(Q, K)`` bool each."""
    every = torch.arange(keys, device=device)
    rows = []
    for start in range(0, queries, TILE):  # a tile of queries at a time: all pairs at once are gigabytes
        some = torch.arange(start, start + TILE, device=device)
        seen = pattern.mask_mod(some[:, None], every, queries).unflatten(1, (-1, TILE))  # (TILE, K, TILE)
        rows.append((seen.any(2).any(0), seen.all(2).all(0)))
    some_rows, whole_rows = zip(*rows, strict=True)
    return torch.stack(some_rows), torch.stack(whole_rows)


def _within_documents(
    some: Tensor, whole: Tensor, queries: Tensor, keys: Tensor, shown: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Restrict ``(1, Q, K)`` tiles of a pattern to a batch, ``(B, Q, K)``; ``some`` may be True too often."""
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


def _list_tiles(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """``(B, Q, K)`` bool -> number of set tiles, ``(B, 1, Q)``, and their indices first, ``(B, 1, Q, K)``; int32."""
    order = tiles.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1).int()[:, None], order.int()[:, None]


def _mask(pattern: Pattern, places: Places, length: int) -> Callable[..., Tensor]:
    queries, keys, shown = places
    if queries is None or keys is None:
        return lambda b, h, q, k: pattern.mask_mod(q, k, length)

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        seen = pattern.mask_mod(q, k, length)
        if shown is not None:
            seen = seen | shown[b, k]
        return (seen & (queries[b, q] == keys[b, k])) | ((queries[b, q] < 0) & (q == k))

    return mask_mod


def _score_mod(
    pattern: Pattern, context: Context, places: Places, batch: int, length: int, sides: tuple[int, int]
) -> ScoreMod | None:
    """Make the ``score_mod`` of relative-position biases, for L and G rounded up."""
    if not context.biases:
        return None
    count, padded = sides
    if not count:
        return pattern.score_mod(context.biases, None)
    if places.keys is None:
        unused = (torch.arange(padded, device=context.biases[0].device) >= count).expand(batch, -1)
    else:
        unused = places.keys[:, length:] < 0
    return pattern.score_mod(context.biases, SideKeys(length, count, padded, unused))


def _tiles(length: int) -> int:
    return -(-length // TILE)


def _longer(x: Tensor, length: int) -> Tensor:
    """Pad ``(B, L, H, D)`` with zeros up to ``length``."""
    return x if x.shape[1] == length else F.pad(x, (0, 0, 0, 0, 0, length - x.shape[1]))


@lru_cache(maxsize=1)
def _compiled() -> Kernel:
    compiler = cast(Callable[..., Kernel], torch.compile)  # its declared type is too narrow
    return compiler(flex_attention, dynamic=False, recompile_limit=64)


class _Active(threading.local):  # the backward pass runs in a thread of its own
    results: Results | None = None


_active = _Active()


class Results:
    """Results of the ``compute_once`` calls in one run of a checkpointed layer, in order.

    PyTorch's selective checkpointing selects operators, but cannot see inside separately compiled kernels, which it
    would run again in the backward pass.
    """

    def __init__(self) -> None:
        self._made: deque[Tensor] = deque()
        self._again = False

    @contextmanager
    def run(self, again: bool, others: AbstractContextManager[Any]) -> Iterator[None]:
        """Save results in the layer's first run, and reuse them ``again`` in the backward pass; within ``others``."""
        before, _active.results, self._again = _active.results, self, again
        try:
            with others:
                yield
        finally:
            _active.results = before

    def of(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return ``compute()`` in the first run, and the saved result in the second."""
        if self._again:
            return self._made.popleft()
        # The innermost hooks apply: tensors that ``compute`` saves for its gradient stay saved.
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            made = compute()
        # Later operators save the same tensors in both runs only if gradients are required in both.
        self._made.append(made.detach().requires_grad_(made.requires_grad))
        return made


def compute_once(compute: Callable[[], Tensor]) -> Tensor:
    """Return ``compute()``, computed only once in layers with selective checkpointing."""
    return compute() if _active.results is None else _active.results.of(compute)
