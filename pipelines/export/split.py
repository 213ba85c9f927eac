"""Items in groups of limited size, one group per file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from corpora.storage.ragged import Ragged, concatenate_columns
from pipelines.export.items import Items


def split(batches: Iterable[Items], sizes: Callable[[Items], np.ndarray], most: int) -> Iterator[Items]:
    """Yield the items of all batches in groups of at most ``most`` bytes, and at least one item.

    Args:
        sizes: returns the bytes of each item, ``(n,)``.
    """
    waiting: list[Items] = []
    free = most
    for items in batches:
        ends, first = np.cumsum(sizes(items)), 0
        while first < len(items):
            begun = int(ends[first - 1]) if first else 0
            stop = int(np.searchsorted(ends, begun + free, side="right"))
            stop = max(stop, first + (not waiting))
            if stop > first:
                waiting.append(_slice(items, first, stop))
                free -= int(ends[stop - 1]) - begun
            if stop < len(items):
                yield _join(waiting)
                waiting, free = [], most
            first = stop
    if waiting:
        yield _join(waiting)


def _slice(items: Items, first: int, stop: int) -> Items:
    tokens = Ragged(items.tokens.values, items.tokens.offsets[first : stop + 1])
    loss = None if items.loss is None else items.loss[tokens.offsets[0] : tokens.offsets[-1]]
    starts = Ragged(items.starts.values, items.starts.offsets[first : stop + 1])
    domains = None if items.domains is None else items.domains[first:stop]
    return Items(tokens.compact(), starts.compact(), loss=loss, domains=domains)


def _join(parts: list[Items]) -> Items:
    loss = None if parts[0].loss is None else np.concatenate([part.loss for part in parts if part.loss is not None])
    tokens, starts = (Ragged.concatenate([getattr(part, name) for part in parts]) for name in ("tokens", "starts"))
    return Items(tokens, starts, loss=loss, domains=concatenate_columns([part.domains for part in parts]))
