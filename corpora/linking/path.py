"""A path that visits each document of a neighbour graph once, from neighbour to neighbour if possible.

Based on the greedy maximum travelling salesman of in-context pretraining (arXiv 2310.10638, algorithm 1): start at the
document of the lowest degree, move to the most similar unvisited neighbour, and start again if there is none. As in the
paper, the graph is undirected: two documents are neighbours if either has the other in its list. Unlike there, a path
is then also extended from its start in the other direction, which leaves fewer breaks. (The paper's code is simpler
than its algorithm: it follows the lists in one direction, takes the first unvisited one of nine neighbours, starts
again at any document, and also after 21 documents.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from corpora.storage.ragged import Ragged, read_only


def document_path(
    neighbours: Ragged,
    similarities: np.ndarray,
    families: np.ndarray,
    kept: np.ndarray,
    ranks: np.ndarray,
    min_similarity: float = -np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Find a path through the n documents that ``kept`` selects.

    The weight of a step is the similarity in the row of the document that the step starts from or, if that row has no
    such link, in the other document's row. Of two neighbours with equal weights, the one that is first in the row of
    the document that the step starts from is taken; of two outside that row, the one with the lower rank.

    ``neighbours``: n rows of int32, best first, without duplicates in a row. ``similarities``: float32, of these.
    ``families``: ``(n,)`` int64; no step joins two documents of one family. ``kept``: ``(n,)`` bool. ``ranks``:
    ``(n,)`` int32, distinct. Returns the documents in the order of the path, int64, and the similarity of each to the
    one before it, float32, NaN if there is no link between them.
    """
    values, similarities = read_only(neighbours.values, similarities)
    lists = _Lists(values, neighbours.offsets, similarities)
    links = _links(lists, families, kept, min_similarity)
    sources, begins, weights, degrees = _sources(lists, links)
    starts = np.lexsort((ranks, degrees))
    return _walk(lists, links, sources, begins, weights, starts[kept[starts]], ranks)


class _Lists(NamedTuple):
    """The neighbours of n documents; row i is from ``offsets[i]`` to ``offsets[i + 1]``."""

    values: np.ndarray
    offsets: np.ndarray
    similarities: np.ndarray


@compiled
def _links(lists: _Lists, families: np.ndarray, kept: np.ndarray, min_similarity: float) -> np.ndarray:
    """Return ``(edges,)`` bool: True for allowed steps."""
    values, offsets, similarities = lists
    links = np.zeros(len(values), np.bool_)
    for row in range(len(kept)):
        if not kept[row]:
            continue
        for edge in range(offsets[row], offsets[row + 1]):
            other = values[edge]
            links[edge] = kept[other] and families[other] != families[row] and similarities[edge] >= min_similarity
    return links


@compiled
def _sources(lists: _Lists, links: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find the links to each document from documents that are not in its own row.

    Returns sources, ascending for each document; ``(n + 1,)`` offsets of each document's sources; the similarities in
    the sources' rows; and ``(n,)`` degrees in the undirected graph.
    """
    values, offsets, similarities = lists
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
    # remove mutual links, and compact
    degrees = np.zeros(n, np.int64)
    linked_from = np.full(n, -1, np.int32)  # for each document, the last document whose row contains it
    end = 0
    for document in range(n):
        first, begins[document] = begins[document], end
        for edge in range(offsets[document], offsets[document + 1]):
            if links[edge]:
                linked_from[values[edge]] = document
                degrees[document] += 1
        for place in range(first, ends[document]):
            if linked_from[sources[place]] != document:
                sources[end], weights[end] = sources[place], weights[place]
                end += 1
        degrees[document] += end - begins[document]
    begins[n] = end
    return sources[:end].copy(), begins, weights[:end].copy(), degrees


@compiled
def _walk(
    lists: _Lists,
    links: np.ndarray,
    sources: np.ndarray,
    begins: np.ndarray,
    weights: np.ndarray,
    starts: np.ndarray,
    ranks: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    values, offsets, similarities = lists
    visited = np.zeros(len(ranks), np.bool_)
    path, steps = np.empty(len(starts), np.int64), np.empty(len(starts), np.float32)
    count = 0
    for start in starts:
        if visited[start]:
            continue
        first = count
        path[count], steps[count], visited[start] = start, np.nan, True
        count += 1
        for way in range(2):
            document = start
            while document >= 0:
                best, step = np.int64(-1), np.float32(-np.inf)
                for edge in range(offsets[document], offsets[document + 1]):
                    if links[edge] and not visited[values[edge]]:
                        best, step = np.int64(values[edge]), similarities[edge]
                        break
                listed = best  # no less similar than documents outside the list, though rounding may hide it
                for place in range(begins[document], begins[document + 1]):
                    other = sources[place]
                    if visited[other] or weights[place] < step or (weights[place] == step and best == listed):
                        continue
                    if weights[place] > step or ranks[other] < ranks[best]:
                        best, step = np.int64(other), weights[place]
                if best >= 0:
                    path[count], steps[count], visited[best] = best, step, True
                    count += 1
                document = best
            if way == 0:  # reverse, so that the start is last
                path[first:count] = path[first:count][::-1].copy()
                steps[first + 1 : count] = steps[first + 1 : count][::-1].copy()
    return path, steps
