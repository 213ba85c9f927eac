"""One walk through all documents of a neighbour graph, from neighbour to neighbour where it can, each visited once.

The greedy maximum travelling salesman of in-context pretraining (arXiv 2310.10638, algorithm 1): begin at the document
of the least degree, go on to the unvisited neighbour of the greatest similarity; where there is none, begin again.
The paper's graph is undirected, and so is ours: two documents are neighbours when either has the other in its list.
(Its published code is simpler: it follows the lists one way, takes the first of nine neighbours that is unvisited,
begins again at any document, and also after 21 of them.)
"""

from __future__ import annotations

import numba
import numpy as np

from corpora.ragged import Ragged


def document_path(
    neighbours: Ragged, similarities: np.ndarray, links: np.ndarray, kept: np.ndarray, ranks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Walk through the kept ones of n documents.

    Args:
        neighbours: n rows of int32, best first, no document twice in a row.
        similarities: float32 beside ``neighbours.values``. A step weighs what the row of the document it leaves says;
            where that row has no such link, what the other one's says.
        links: bool beside ``neighbours.values``, where a step may be taken; only between kept documents.
        kept: ``(n,)`` bool.
        ranks: ``(n,)`` int32, distinct: the lower one wins among equals.

    Returns:
        The documents in the order of the walk, int64, and the similarity of each to the one before it, float32, nan
        where the walk begins again.
    """
    forward = neighbours.values, neighbours.offsets, similarities, links
    degrees, sources, weights, begins, ends = _backward(*forward)
    starts = np.lexsort((ranks, degrees))
    return _walk(*forward, sources, weights, begins, ends, starts[kept[starts]], ranks)


@numba.njit(cache=True, nogil=True)
def _backward(
    values: np.ndarray, offsets: np.ndarray, similarities: np.ndarray, links: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The links that only the other document has in its row.

    Returns:
        Degrees ``(n,)`` in the undirected graph; then the backward lists: sources, similarities, where each list
        begins, and where it ends (gaps between lists hold nothing).
    """
    n = len(offsets) - 1
    begins = np.zeros(n + 1, np.int64)
    for edge in range(offsets[0], offsets[n]):
        if links[edge]:
            begins[values[edge] + 1] += 1
    begins = np.cumsum(begins)
    ends = begins[:n].copy()
    sources, weights = np.empty(begins[n], np.int32), np.empty(begins[n], np.float32)
    for document in range(n):
        for edge in range(offsets[document], offsets[document + 1]):
            if links[edge]:
                place = ends[values[edge]]
                sources[place], weights[place] = document, similarities[edge]
                ends[values[edge]] += 1
    degrees = np.zeros(n, np.int64)
    linked_from = np.full(n, -1, np.int32)  # stamps: the last document whose row links to this one
    for document in range(n):
        for edge in range(offsets[document], offsets[document + 1]):
            if links[edge]:
                linked_from[values[edge]] = document
                degrees[document] += 1
        end = begins[document]
        for place in range(begins[document], ends[document]):
            if linked_from[sources[place]] != document:
                sources[end], weights[end] = sources[place], weights[place]
                end += 1
        ends[document] = end
        degrees[document] += end - begins[document]
    return degrees, sources, weights, begins, ends


@numba.njit(cache=True, nogil=True)
def _walk(
    values: np.ndarray,
    offsets: np.ndarray,
    similarities: np.ndarray,
    links: np.ndarray,
    sources: np.ndarray,
    weights: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    starts: np.ndarray,
    ranks: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    visited = np.zeros(len(offsets) - 1, np.bool_)
    path, steps = np.empty(len(starts), np.int64), np.empty(len(starts), np.float32)
    count = 0
    for start in starts:
        if visited[start]:
            continue
        document, step = np.int64(start), np.float32(np.nan)
        while document >= 0:
            path[count], steps[count], visited[document] = document, step, True
            count += 1
            best, step = np.int64(-1), np.float32(-np.inf)
            for edge in range(offsets[document], offsets[document + 1]):
                if similarities[edge] < step:
                    break  # best first
                other = values[edge]
                if links[edge] and not visited[other] and (best < 0 or ranks[other] < ranks[best]):
                    best, step = other, similarities[edge]
            for place in range(begins[document], ends[document]):
                other, weight = sources[place], weights[place]
                if not visited[other] and (
                    weight > step or best < 0 or (weight == step and ranks[other] < ranks[best])
                ):
                    best, step = other, weight
            document = best
    return path, steps
