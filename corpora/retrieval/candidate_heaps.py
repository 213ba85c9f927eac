"""Compiled loops over the candidates of many queries: one bounded heap per query, its worst candidate on top.

The worse of two candidates has the smaller product, or with equal products the greater row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from corpora.retrieval.vector_rows import dot_exactly, dot_in_order


class Heaps(NamedTuple):
    """The candidates of n queries, at most ``depth`` each."""

    products: np.ndarray  # (n, depth) float32 or float64
    rows: np.ndarray  # (n, depth) int32
    counts: np.ndarray  # (n,) int32


@compiled(inline="always")
def _worse(product: float, row: np.int32, other_product: float, other_row: np.int32) -> bool:
    if product == other_product:
        return bool(row > other_row)
    return product < other_product


@compiled
def _sink(products: np.ndarray, rows: np.ndarray, end: int, product: float, row: np.int32) -> None:
    """Replace the worst candidate, the top of the heap of the first ``end`` entries."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= end:
            break
        if child + 1 < end and _worse(products[child + 1], rows[child + 1], products[child], rows[child]):
            child += 1
        if _worse(product, row, products[child], rows[child]):
            break
        products[place], rows[place] = products[child], rows[child]
        place = child
    products[place], rows[place] = product, row


@compiled
def _rise(products: np.ndarray, rows: np.ndarray, place: int, product: float, row: np.int32) -> None:
    """Add a candidate at the end of a heap that is not full."""
    while place > 0:
        parent = (place - 1) // 2
        if not _worse(product, row, products[parent], rows[parent]):
            break
        products[place], rows[place] = products[parent], rows[parent]
        place = parent
    products[place], rows[place] = product, row


@compiled
def keep_best(seen: np.ndarray, places: np.ndarray, candidates: np.ndarray, own: np.ndarray, heaps: Heaps) -> None:
    """Put candidates into the heaps of the queries ``places``; ``seen`` are their products, ``(m, c)`` float32."""
    products, rows, counts = heaps
    depth = rows.shape[1]
    for i in range(len(places)):
        heap, names, count = products[places[i]], rows[places[i]], counts[places[i]]
        least = heap[0] if count == depth else np.float32(-np.inf)
        for j in range(len(candidates)):
            product = seen[i, j]
            if product < least:
                continue
            row = candidates[j]
            if row == own[i]:
                continue
            if count < depth:
                _rise(heap, names, count, product, row)
                count += 1
            elif _worse(heap[0], names[0], product, row):
                _sink(heap, names, depth, product, row)
            if count == depth:
                least = heap[0]
        counts[places[i]] = count


@compiled
def sort_heaps(heaps: Heaps) -> None:
    """Sort each heap, best first: the worst candidate moves to the end, and the heap shrinks by one."""
    products, rows, counts = heaps
    for i in range(len(rows)):
        for end in range(counts[i] - 1, 0, -1):
            product, row = products[i, end], rows[i, end]
            products[i, end], rows[i, end] = products[i, 0], rows[i, 0]
            _sink(products[i], rows[i], end, product, row)


@compiled
def first_together(heaps: Heaps, queries: np.ndarray, stamps: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first ``queries`` with at most ``most`` distinct candidates together, and these candidates, int32.

    Each candidate's index among them is written to ``stamps``.
    """
    _, rows, counts = heaps
    for query in queries:
        for i in range(counts[query]):
            stamps[rows[query, i]] = -1
    found = np.empty(min(len(stamps), most), np.int32)
    count = 0
    for number in range(len(queries)):
        query = queries[number]
        if count + counts[query] > most and number > 0:
            return queries[:number], found[:count]
        for i in range(counts[query]):
            row = rows[query, i]
            if stamps[row] < 0:
                stamps[row], found[count] = count, row
                count += 1
    return queries, found[:count]


@compiled
def rank_exactly(
    queries: np.ndarray,
    vectors: np.ndarray,
    places: np.ndarray,
    numbers: np.ndarray,
    heaps: Heaps,
    errors: np.ndarray,
    exact: np.ndarray,
    k: int,
    certain: np.ndarray,
) -> None:
    """Rank the candidates of the queries ``numbers``, sorted by float32 products; ``places``: their rows' in
    ``vectors``."""
    products, rows, counts = heaps
    depth = rows.shape[1]
    found, names = np.empty(depth, np.float64), np.empty(depth, np.int32)
    for i in range(len(numbers)):
        query = numbers[i]
        count, error = counts[query], errors[query]
        some = 0
        clear = certain[query] or count < depth  # True if all others are worse than the best k
        for place in range(count):
            if place >= k and products[query, place] + error < products[query, k - 1] - error:
                clear = True
                break
            row = rows[query, place]
            other = vectors[places[row]]
            product = dot_exactly(queries[i], other) if exact[query] else dot_in_order(queries[i], other)
            at = some
            while at > 0 and _worse(found[at - 1], names[at - 1], product, row):
                found[at], names[at] = found[at - 1], names[at - 1]
                at -= 1
            found[at], names[at] = product, row
            some += 1
        certain[query] = clear or k == 0 or found[k - 1] > products[query, count - 1] + error
        for place in range(min(some, k)):
            products[query, place], rows[query, place] = found[place], names[place]


@compiled
def keep_exactly(
    seen: np.ndarray,
    queries: np.ndarray,
    vectors: np.ndarray,
    kinds: np.ndarray,
    places: np.ndarray,
    candidates: np.ndarray,
    own: np.ndarray,
    least: np.ndarray,
    errors: np.ndarray,
    exact: np.ndarray,
    heaps: Heaps,
) -> None:
    """Do the same as ``keep_best`` by exact products, for candidates with a float32 product of at least ``least``."""
    products, rows, counts = heaps
    k = rows.shape[1]
    for i in range(len(places)):
        place = places[i]
        heap, names, count, error = products[place], rows[place], counts[place], errors[place]
        kind, product = -1, 0.0
        for j in range(len(candidates)):
            row = candidates[j]
            if seen[i, j] < least[place] or row == own[i] or (count == k and seen[i, j] + error < heap[0]):
                continue
            if kinds[j] != kind:
                kind = kinds[j]
                product = dot_exactly(queries[i], vectors[j]) if exact[place] else dot_in_order(queries[i], vectors[j])
            if count < k:
                _rise(heap, names, count, product, row)
                count += 1
            elif _worse(heap[0], names[0], product, row):
                _sink(heap, names, k, product, row)
        counts[place] = count
