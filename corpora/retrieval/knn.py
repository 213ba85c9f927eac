"""Search for the k nearest neighbours of every vector of a cluster among the other vectors, by inner product.

Small clusters are searched exactly. Larger ones are divided into lists by k-means, and each vector is compared with the
members of the lists nearest to it (an inverted file, as in Jégou, Douze, Schmid 2011, "Product quantization for nearest
neighbor search", without the quantization). Since every vector is a query, all queries that probe a list are compared
with it at once, by one matrix product per list, where an index answers query by query. For 100,000 vectors of dimension
768 on one core, this has the recall of FAISS's IndexIVFFlat in an eighth of its time, and of its float16
IndexIVFScalarQuantizer in a sixth.

Floating-point matrix products choose candidates, and exact products rank them (``corpora.retrieval.best_rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from corpora.retrieval.best_rows import RANKED_TOGETHER, Block, Bounds, ExactBest, Neighbours, Proposals, proposal_count
from corpora.retrieval.kmeans import kmeans_seed, train_centroids
from corpora.retrieval.options import Search
from corpora.retrieval.vector_rows import VectorRows
from corpora.text.word_ngrams import SKETCH_SIZE

_QUERIES, _CANDIDATES = 2048, 4096  # a block of products: 32 MiB
_OPEN = 1 << 22  # neighbours of the queries that are compared again in one pass
_POINTS_PER_LIST = 64
_ITERATIONS = 10


class Visit(NamedTuple):
    """Queries that are compared with all of some candidates."""

    queries: np.ndarray  # (m,) int32
    candidates: np.ndarray  # (c,) int32
    mutual: bool  # True if both are the same rows of the same vectors, so that each product is used for both


def list_count(options: Search, count: int) -> int:
    """Return the number of lists of a cluster of ``count`` vectors; 1 means an exact search.

    The time to train the lists grows with the square of their number, which limits it.
    """
    return 1 if count <= max(options.exact_up_to, 1) else max(2, round(1.5 * count**0.5))


def memory_needed(options: Search, count: int, dimension: int) -> int:
    """Return the bytes of memory that a search of ``count`` vectors needs, including the mapped pages of its shard."""
    lists = list_count(options, count)
    probing = 30 * count * min(options.probes, lists) if lists > 1 else 0
    training = 8 * dimension * _POINTS_PER_LIST * lists if lists > 1 else 0
    blocks = 4 * (_QUERIES * _CANDIDATES + (_QUERIES + _CANDIDATES) * dimension)
    ranking = 4 * dimension * min(RANKED_TOGETHER, 2 * count) + 12 * min(_OPEN, count * options.k)
    each = 2 * dimension + 8 * proposal_count(options.k) + 32 + 8 * SKETCH_SIZE
    return count * each + probing + training + blocks + ranking


def search(vectors: VectorRows, options: Search, progress: Callable[[float], None] = lambda share: None) -> Neighbours:
    """Find the neighbours of every vector among the other vectors.

    An exact search gives the same bits on every processor: products are exact, and ties are ordered by row. So does a
    search with the same lists. But lists come from k-means, whose sums depend on the processor, so a vector on the
    border of two lists may probe the other one: with the kernels of another processor, 99.999 % of 3 million neighbours
    were the same.
    """
    count = len(vectors)
    lists = list_count(options, count)
    rows = np.arange(count, dtype=np.int32)
    k = min(options.k, max(count - 1, 0))
    if lists == 1:
        return _find(vectors, vectors, rows, k, lambda: [Visit(rows, rows, True)], float(count) ** 2, progress)
    probed = find_lists(vectors, lists, min(options.probes, lists), options.seed)
    sizes = np.bincount(probed[:, 0], minlength=lists)
    work = float(np.bincount(probed.reshape(-1), minlength=lists) @ sizes)  # products
    order = np.argsort(probed[:, 0], kind="stable")
    return _find(vectors, vectors, rows, k, lambda: _list_visits(probed, lists), work, progress, order)


def nearest(vectors: VectorRows, queries: VectorRows, k: int, itself: np.ndarray) -> Neighbours:
    """Return the k of ``vectors`` with the greatest inner products with each query, by an exact search.

    ``itself``: ``(m,)`` int32, the row that is the query itself and is left out; -1 for none.
    """
    visit = Visit(np.arange(len(queries), dtype=np.int32), np.arange(len(vectors), dtype=np.int32), False)
    return _find(vectors, queries, itself, k, lambda: [visit])


def _find(
    vectors: VectorRows,
    queries: VectorRows,
    itself: np.ndarray,
    k: int,
    visits: Callable[[], Iterable[Visit]],
    work: float = 1,
    progress: Callable[[float], None] = lambda share: None,
    order: np.ndarray | None = None,
) -> Neighbours:
    """Return the best k of the candidates of each query; those that may have better ones are compared again.

    ``itself``: ``(m,)`` int32, as in ``nearest``. ``order``: order of the queries in which those with common candidates
    are adjacent; None for the order of rows.
    """
    proposals = Proposals(len(queries), min(proposal_count(k), max(k, len(vectors))))
    done = 0.0
    for block in _blocks(vectors, queries, visits()):
        proposals.see(block, itself[block.queries])
        done += block.products.size
        progress(done / work)
    bounds = Bounds.of(vectors, queries)
    order = np.arange(len(queries)) if order is None else order
    neighbours, unsure = proposals.rank(vectors, queries, bounds, k, len(vectors) - (itself >= 0), order)
    step = max(1, _OPEN // max(k, 1))
    for first in range(0, len(unsure), step):
        best = ExactBest(unsure[first : first + step], neighbours, bounds)
        again = (
            Visit(batch[best.wants(batch)], candidates, False)
            for batch, candidates, _ in visits()
            if best.wants(batch).any()
        )
        for block in _blocks(vectors, queries, again):
            best.see(block, itself[block.queries])
        best.finish()
    return neighbours


def _blocks(vectors: VectorRows, queries: VectorRows, visits: Iterable[Visit]) -> Iterator[Block]:
    for all_queries, candidates, mutual in visits:
        width = _QUERIES if mutual else _CANDIDATES
        for first in range(0, len(candidates), width):
            block = candidates[first : first + width]
            columns = vectors.floats(block)
            for start in range(0, first + 1 if mutual else len(all_queries), _QUERIES):
                some = all_queries[start : start + _QUERIES]
                same = mutual and start == first
                rows = columns if same else queries.floats(some)
                products = rows @ columns.T
                yield Block(products, rows, columns, some, block)
                if mutual and not same:
                    yield Block(np.ascontiguousarray(products.T), columns, rows, block, some)


def find_lists(vectors: VectorRows, lists: int, probes: int, seed: int) -> np.ndarray:
    """Return ``(n, probes)`` uint16 or int32, the lists nearest to each vector, its own first."""
    count = len(vectors)
    # every (n / size)-th vector: neither the order nor the clusters of documents have such a period
    size = min(count, lists * _POINTS_PER_LIST)
    sample = vectors.floats(np.arange(size) * count // size)
    centroids = VectorRows.from_array(
        train_centroids(sample, lists, True, _ITERATIONS, kmeans_seed(seed, "lists")).astype(np.float16)
    )
    probed = np.empty((count, probes), np.uint16 if lists < 1 << 16 else np.int32)
    for first in range(0, count, _QUERIES):
        rows = np.arange(first, min(first + _QUERIES, count))
        probed[rows] = nearest(centroids, vectors[rows], probes, np.full(len(rows), -1, np.int32)).rows
    return probed


def _list_visits(probed: np.ndarray, lists: int) -> Iterator[Visit]:
    """Yield queries and candidates, list by list.

    The members of a list are compared with each other first, so that later visits change few proposals.
    """
    members = _by_list(probed[:, :1], lists)
    for rows in members:
        yield Visit(rows, rows, True)
    if probed.shape[1] > 1:
        for queries, rows in zip(_by_list(probed[:, 1:], lists), members, strict=True):
            yield Visit(queries, rows, False)


def _by_list(probed: np.ndarray, lists: int) -> list[np.ndarray]:
    """Return the rows that probe each list, int32, ascending; ``probed`` is ``(n, p)``."""
    flat = np.ascontiguousarray(probed).reshape(-1)
    rows = (np.argsort(flat, kind="stable") // probed.shape[1]).astype(np.int32)
    return np.split(rows, np.cumsum(np.bincount(flat, minlength=lists))[:-1])
