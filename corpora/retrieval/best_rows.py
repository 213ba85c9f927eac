"""Exact selection of the best candidates of many queries, with a matrix product as a fast filter.

A matrix product is fast, but its last bits depend on the processor and on a vector's index in the matrix. It is
therefore only a filter: ``Proposals`` keeps more candidates than requested, and ``rank`` orders them by their exact
products, equal ones by row. With the error bound of the matrix product, ``rank`` also finds the queries for which a
dropped candidate might be among the best. ``ExactBest`` visits the candidates of these queries again and computes the
exact products of all that are close enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corpora.retrieval.candidate_heaps import Heaps, first_together, keep_best, keep_exactly, rank_exactly, sort_heaps
from corpora.retrieval.vector_rows import EXACT_BELOW, VectorRows, error_bound, norms
from corpora.storage.ragged import Ragged

RANKED_TOGETHER = 1 << 15
"""Maximum number of candidates whose vectors are in memory as float32."""

_QUERIES = 2048


class Block(NamedTuple):
    """A block of products, by a matrix multiplication."""

    products: np.ndarray  # (m, c) float32, ``rows @ columns.T`` up to rounding
    rows: np.ndarray  # (m, d) float32, vectors of the queries
    columns: np.ndarray  # (c, d) float32, vectors of the candidates
    queries: np.ndarray  # (m,) int32
    candidates: np.ndarray  # (c,) int32


@dataclass(frozen=True)
class Neighbours:
    """The best rows of every query."""

    rows: np.ndarray  # (n, k) int32, best first, ties by row; undefined beyond ``counts[i]``
    products: np.ndarray  # (n, k) float32, the exact products rounded, descending
    counts: np.ndarray  # (n,) int32, number of neighbours of each query: k, or fewer if there are fewer candidates

    def ragged(self, first: int, last: int) -> tuple[Ragged, Ragged]:
        """Return rows and products of the queries ``first:last``."""
        valid = np.arange(self.rows.shape[1]) < self.counts[first:last, None]
        lengths = self.counts[first:last]
        return (
            Ragged.from_lengths(self.rows[first:last][valid], lengths),
            Ragged.from_lengths(self.products[first:last][valid], lengths),
        )


@dataclass(frozen=True)
class Bounds:
    """Error bounds of the products in a matrix multiplication."""

    lengths: np.ndarray  # (m,) float64, Euclidean lengths of the queries
    longest: float  # length of the longest candidate
    share: float  # error divided by the product of two lengths

    @classmethod
    def of(cls, vectors: VectorRows, queries: VectorRows) -> Bounds:
        """Compute the bounds for all products of ``queries`` and ``vectors``."""
        lengths = norms(queries).astype(np.float64)
        longest = lengths if queries is vectors else norms(vectors).astype(np.float64)
        return cls(lengths, float(longest.max(initial=0)), error_bound(vectors.dimension))

    @property
    def errors(self) -> np.ndarray:
        """Maximum difference between exact and float32 products, ``(m,)`` float64."""
        return self.share * self.lengths * self.longest

    @property
    def exact(self) -> np.ndarray:
        """``(m,)`` bool: True for queries whose products may be summed in any order."""
        return self.lengths * self.longest < EXACT_BELOW


def proposal_count(k: int) -> int:
    """Return the number of candidates to keep for k results: enough that few queries must be compared again."""
    return k + 8 + k // 8


class Proposals:
    """The ``depth`` candidates with the greatest float32 products so far, in one heap per query."""

    def __init__(self, queries: int, depth: int) -> None:
        products, rows = np.empty((queries, depth), np.float32), np.empty((queries, depth), np.int32)
        self._heaps = Heaps(products, rows, np.zeros(queries, np.int32))

    def see(self, block: Block, itself: np.ndarray) -> None:
        """Add candidates; ``itself``: ``(m,)`` int32, the row of each query, which is left out."""
        if self._heaps.rows.shape[1]:
            keep_best(block.products, block.queries, block.candidates, itself, self._heaps)

    def rank(
        self, vectors: VectorRows, queries: VectorRows, bounds: Bounds, k: int, others: np.ndarray, order: np.ndarray
    ) -> tuple[Neighbours, np.ndarray]:
        """Select the best k by exact products, in place.

        ``others``: ``(m,)`` integers, upper bound of each query's candidates. ``order``: order of processing; adjacent
        queries that share candidates save time. Does not affect the result. Returns the neighbours, and the queries,
        int64, for which a dropped candidate might be among the best.
        """
        sort_heaps(self._heaps)
        stamps = np.full(len(vectors), -1, np.int32)
        certain = self._heaps.counts >= others  # no candidate was dropped
        errors, exact = bounds.errors, bounds.exact
        most = max(RANKED_TOGETHER, self._heaps.rows.shape[1])
        first = 0
        while first < len(order):
            some, rows = first_together(self._heaps, order[first : first + _QUERIES], stamps, most)
            these, theirs = queries.floats(some), vectors.floats(rows)
            rank_exactly(these, theirs, stamps, some, self._heaps, errors, exact, k, certain)
            first += len(some)
        best = Neighbours(
            self._heaps.rows[:, :k], self._heaps.products[:, :k], np.minimum(self._heaps.counts, np.int32(k))
        )
        return best, np.flatnonzero(~certain)


class ExactBest:
    """The k best candidates of some queries by exact products.

    ``known``: result of ``Proposals.rank``; a candidate below its k-th product cannot be among the best.
    """

    def __init__(self, open_queries: np.ndarray, known: Neighbours, bounds: Bounds) -> None:
        k = known.rows.shape[1]
        self._known, self._queries = known, open_queries
        self._place = np.full(len(known.rows), -1, np.int64)
        self._place[open_queries] = np.arange(len(open_queries))
        products, rows = np.empty((len(open_queries), k), np.float64), np.empty((len(open_queries), k), np.int32)
        self._heaps = Heaps(products, rows, np.zeros(len(open_queries), np.int32))
        # float32 rounding of the k-th product is below the error of one sum, of which there are two
        self._least = known.products[open_queries, k - 1] - 2 * bounds.errors[open_queries]
        self._errors, self._exact = bounds.errors[open_queries], bounds.exact[open_queries]

    def wants(self, queries: np.ndarray) -> np.ndarray:
        """Return ``(m,)`` bool: True for those of ``queries`` that must be compared again."""
        return self._place[queries] >= 0

    def see(self, block: Block, itself: np.ndarray) -> None:
        """Add candidates, as ``Proposals.see`` does."""
        products, rows, columns, queries, candidates = block
        # (c,), equal numbers for equal bits: the product with equal candidates is computed once
        kinds = np.unique(np.ascontiguousarray(columns).view(f"V{columns.shape[1] * 4}"), return_inverse=True)[1]
        limits = self._least, self._errors, self._exact
        at = self._place[queries]
        keep_exactly(products, rows, columns, kinds.reshape(-1), at, candidates, itself, *limits, self._heaps)

    def finish(self) -> None:
        """Sort the results and write them into ``known``."""
        sort_heaps(self._heaps)
        self._known.rows[self._queries] = self._heaps.rows
        self._known.products[self._queries] = self._heaps.products
