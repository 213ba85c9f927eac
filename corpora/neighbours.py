"""The k nearest others of every vector of a cluster, by inner product.

Small clusters are searched exactly. Larger ones are cut into lists by k-means, and each vector meets the members of the
lists nearest to it (an inverted file, as in Jégou, Douze, Schmid 2011, "Product quantization for nearest neighbor
search", without the quantization). Since every vector is a query, all that probe a list are compared with it at once:
one matrix product a list, where an index answers query by query. At 100,000 x 768 on one core this gives the recall of
FAISS's IndexIVFFlat in an eighth of its time, and of its float16 IndexIVFScalarQuantizer in a sixth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import faiss
import numba
import numpy as np

from corpora.clustering import kmeans_seed, train_centroids
from corpora.errors import FarspanError
from corpora.ragged import Ragged
from corpora.vector_rows import VectorRows
from corpora.word_ngrams import SKETCH_SIZE

_QUERIES, _CANDIDATES = 2048, 4096  # a block of products: 32 MiB
_POINTS_PER_LIST = 64
_ITERATIONS = 10
_GPU_DEEPEST = 2047  # FAISS's limit on a GPU, less the vector itself
Visits = Iterator[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Search:
    """How neighbours are sought.

    Attributes:
        k: neighbours of a vector.
        exact_up_to: clusters of at most this many vectors are searched exactly. At 20,000 a vector costs no more than
            with lists in a cluster of a million.
        probes: lists that each vector visits in larger ones. Of the nearest ten in a cluster of 1.4 million, 16 lists
            find 92 %, 32 find 95 % in 1.6 times the time.
        seed: of the lists.
    """

    k: int = 100
    exact_up_to: int = 20_000
    probes: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("exact_up_to", 0), ("probes", 1)):
            if getattr(self, name) < least:
                flag = name.replace("_", "-")
                raise FarspanError(f"--{flag} {getattr(self, name)}: give a number of at least {least}")

    @property
    def on_gpu(self) -> bool:
        """Whether FAISS has a GPU here that goes as deep: it searches all clusters exactly."""
        return faiss.get_num_gpus() > 0 and self.k <= _GPU_DEEPEST

    def lists(self, count: int) -> int:
        """Lists of a cluster; 1 is an exact search. Training them costs as their square, which bounds their number."""
        return 1 if count <= max(self.exact_up_to, 1) or self.on_gpu else max(2, round(1.5 * count**0.5))

    def memory(self, count: int, dimension: int) -> int:
        """Bytes that the search of a cluster of ``count`` vectors takes, mapped pages of its shard included."""
        lists = self.lists(count)
        probing = 30 * count * min(self.probes, lists) if lists > 1 else 0
        training = 8 * dimension * _POINTS_PER_LIST * lists if lists > 1 else 0
        blocks = 4 * (_QUERIES * _CANDIDATES + (_QUERIES + _CANDIDATES) * dimension)
        return count * (2 * dimension + 8 * self.k + 8 * SKETCH_SIZE) + probing + training + blocks


@dataclass(frozen=True)
class Neighbours:
    """What was found.

    Attributes:
        rows: ``(n, k)`` int32, best first, ties by row; beyond ``counts[i]`` unset.
        products: ``(n, k)`` float32, descending.
        counts: ``(n,)`` int32, neighbours of each vector: k, or fewer where there are no more to visit.
    """

    rows: np.ndarray
    products: np.ndarray
    counts: np.ndarray

    def ragged(self, first: int, last: int) -> tuple[Ragged, Ragged]:
        """Rows and products of the vectors ``first:last``."""
        given = np.arange(self.rows.shape[1]) < self.counts[first:last, None]
        lengths = self.counts[first:last]
        return (
            Ragged.from_lengths(self.rows[first:last][given], lengths),
            Ragged.from_lengths(self.products[first:last][given], lengths),
        )


def search(vectors: VectorRows, options: Search, progress: Callable[[float], None] = lambda share: None) -> Neighbours:
    """The neighbours of every vector among the others, never itself.

    On one machine the result is one and the same; the caller pins the threads of BLAS. Machines differ in the last bits
    of float32 sums: products agree to 1e-6 for vectors of length 1, and so do neighbours, but for those whose products
    differ by less. With lists, a vector on a border may also visit another list: 99.999 % of 3 million neighbours were
    the same with another processor's kernels.

    Args:
        vectors: n rows, all finite.
        progress: called with the share of the work done.
    """
    if options.on_gpu:
        return _search_on_gpu(vectors, options.k, progress)
    count = len(vectors)
    lists = options.lists(count)
    if lists > 1:
        probed = probed_lists(vectors, lists, min(options.probes, lists), options.seed)
        visits, work = _list_visits(probed, lists), _list_work(probed, lists)
    else:
        rows = np.arange(count, dtype=np.int32)
        visits, work = iter([(rows, rows)]), float(count) ** 2
    best = _Best(count, min(options.k, max(count - 1, 0)))
    done = 0.0
    for queries, candidates in visits:
        for first in range(0, len(candidates), _CANDIDATES):
            block = candidates[first : first + _CANDIDATES]
            columns = vectors.floats(block)
            for start in range(0, len(queries), _QUERIES):
                some = queries[start : start + _QUERIES]
                best.see(vectors.floats(some) @ columns.T, some, block, some)
                done += len(some) * len(block)
                progress(done / work)
    return best.sorted()


def nearest(vectors: VectorRows, queries: np.ndarray, k: int, own: np.ndarray) -> Neighbours:
    """The k of ``vectors`` with the greatest products with each query, exactly.

    Args:
        queries: ``(m, d)`` float32.
        own: ``(m,)`` int32, the row that is the query itself and does not count; -1 for none.
    """
    best = _Best(len(queries), k)
    places = np.arange(len(queries), dtype=np.int32)
    for first in range(0, len(vectors), _CANDIDATES):
        block = np.arange(first, min(first + _CANDIDATES, len(vectors)), dtype=np.int32)
        columns = vectors.floats(block)
        for start in range(0, len(queries), _QUERIES):
            some = slice(start, start + _QUERIES)
            best.see(queries[some] @ columns.T, places[some], block, own[some])
    return best.sorted()


def probed_lists(vectors: VectorRows, lists: int, probes: int, seed: int) -> np.ndarray:
    """``(n, probes)`` uint16 or int32: the lists nearest to each vector, its own first."""
    count = len(vectors)
    # every (n / size)-th: neither order nor clusters of documents have such a period
    size = min(count, lists * _POINTS_PER_LIST)
    sample = vectors.floats(np.arange(size) * count // size)
    centroids = VectorRows.from_array(
        train_centroids(sample, lists, True, _ITERATIONS, kmeans_seed(seed, "lists")).astype(np.float16)
    )
    probed = np.empty((count, probes), np.uint16 if lists < 1 << 16 else np.int32)
    for first in range(0, count, _QUERIES):
        rows = np.arange(first, min(first + _QUERIES, count))
        probed[rows] = nearest(centroids, vectors.floats(rows), probes, np.full(len(rows), -1, np.int32)).rows
    return probed


def _list_visits(probed: np.ndarray, lists: int) -> Visits:
    """Queries and candidates, list by list: first a list's members among themselves, so that later visits have little
    to improve."""
    members = _by_list(probed[:, :1], lists)
    for rows in members:
        yield rows, rows
    if probed.shape[1] > 1:
        yield from zip(_by_list(probed[:, 1:], lists), members, strict=True)


def _list_work(probed: np.ndarray, lists: int) -> float:
    sizes = np.bincount(probed[:, 0], minlength=lists)
    return float(np.bincount(probed.reshape(-1), minlength=lists) @ sizes)


def _by_list(probed: np.ndarray, lists: int) -> list[np.ndarray]:
    """Which rows name each list: int32, ascending. ``probed``: ``(n, p)``."""
    flat = np.ascontiguousarray(probed).reshape(-1)
    rows = (np.argsort(flat, kind="stable") // probed.shape[1]).astype(np.int32)
    return np.split(rows, np.cumsum(np.bincount(flat, minlength=lists))[:-1])


def _search_on_gpu(vectors: VectorRows, k: int, progress: Callable[[float], None]) -> Neighbours:
    """Exact, with all vectors on every GPU in float16."""
    options = faiss.GpuMultipleClonerOptions()
    options.useFloat16 = True
    index = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(vectors.dimension), co=options)
    count = len(vectors)
    blocks = [np.arange(first, min(first + _QUERIES, count)) for first in range(0, count, _QUERIES)]
    for rows in blocks:
        index.add(vectors.floats(rows))
    best = _Best(count, min(k, max(count - 1, 0)))
    for rows in blocks:
        products, found = index.search(vectors.floats(rows), best.rows.shape[1] + 1)  # one more: itself
        products[found == rows[:, None]] = -np.inf
        order = np.lexsort((found, -products))[:, :-1]
        best.rows[rows] = np.take_along_axis(found, order, axis=1)
        best.products[rows] = np.take_along_axis(products, order, axis=1)
        best.counts[rows] = best.rows.shape[1]
        progress((rows[-1] + 1) / count)
    return Neighbours(best.rows, best.products, best.counts)


class _Best:
    """The k best candidates of every query so far: a heap a query, its worst on top."""

    def __init__(self, queries: int, k: int) -> None:
        self.rows = np.empty((queries, k), np.int32)
        self.products = np.empty((queries, k), np.float32)
        self.counts = np.zeros(queries, np.int32)

    def see(self, products: np.ndarray, places: np.ndarray, candidates: np.ndarray, own: np.ndarray) -> None:
        """Take in ``products``, ``(m, c)``, of the queries at ``places`` with ``candidates``, leaving out ``own``."""
        if self.rows.shape[1]:
            _keep_best(products, places, candidates, own, self.products, self.rows, self.counts)

    def sorted(self) -> Neighbours:
        _sort_heaps(self.products, self.rows, self.counts)
        return Neighbours(self.rows, self.products, self.counts)


@numba.njit(inline="always")
def _worse(product: np.float32, row: np.int32, other_product: np.float32, other_row: np.int32) -> np.bool_:
    return product < other_product or (product == other_product and row > other_row)


@numba.njit(cache=True, nogil=True)
def _sink(products: np.ndarray, rows: np.ndarray, end: int, product: np.float32, row: np.int32) -> None:
    """Put a candidate in place of the worst, the top of the heap of the first ``end`` entries."""
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


@numba.njit(cache=True, nogil=True)
def _rise(products: np.ndarray, rows: np.ndarray, place: int, product: np.float32, row: np.int32) -> None:
    """Add a candidate at the end of a heap that is not full."""
    while place > 0:
        parent = (place - 1) // 2
        if not _worse(product, row, products[parent], rows[parent]):
            break
        products[place], rows[place] = products[parent], rows[parent]
        place = parent
    products[place], rows[place] = product, row


@numba.njit(cache=True, nogil=True)
def _keep_best(
    seen: np.ndarray,
    places: np.ndarray,
    candidates: np.ndarray,
    own: np.ndarray,
    products: np.ndarray,
    rows: np.ndarray,
    counts: np.ndarray,
) -> None:
    k = rows.shape[1]
    for i in range(len(places)):
        heap, names, count = products[places[i]], rows[places[i]], counts[places[i]]
        for j in range(len(candidates)):
            product, row = seen[i, j], candidates[j]
            if (count == k and product < heap[0]) or row == own[i]:
                continue
            if count < k:
                _rise(heap, names, count, product, row)
                count += 1
            elif _worse(heap[0], names[0], product, row):
                _sink(heap, names, k, product, row)
        counts[places[i]] = count


@numba.njit(cache=True, nogil=True)
def _sort_heaps(products: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> None:
    """Best first: the worst goes to the end of the heap, which shrinks by it."""
    for i in range(len(rows)):
        for end in range(counts[i] - 1, 0, -1):
            product, row = products[i, end], rows[i, end]
            products[i, end], rows[i, end] = products[i, 0], rows[i, 0]
            _sink(products[i], rows[i], end, product, row)
