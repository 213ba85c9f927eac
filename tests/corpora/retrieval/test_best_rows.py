"""Exact products, and the best candidates of each query."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.retrieval.best_rows import Bounds, ExactBest, Neighbours, Proposals
from corpora.retrieval.candidate_heaps import first_together, keep_best, sort_heaps
from corpora.retrieval.vector_rows import VectorRows
from tests.vectors import topic_vectors


def best_of(vectors: np.ndarray, k: int, depth: int, errors: np.ndarray, blocks: int) -> tuple[Neighbours, int]:
    """The best k others of every vector from products with errors of ``errors`` times their bound, block by block; and
    the number of queries that were looked at again."""
    rows = VectorRows.from_array(vectors)
    bounds = Bounds.of(rows, rows)
    own = np.arange(len(vectors), dtype=np.int32)
    wide = vectors.astype(np.float64)
    true = wide @ wide.T
    products = (true + errors * bounds.errors[:, None] * 0.9).astype(np.float32)
    # where rounding to float32 led beyond the bound, no multiplication would give that number
    products = np.where(np.abs(products - true) > bounds.errors[:, None], true.astype(np.float32), products)
    proposals = Proposals(len(vectors), depth)
    for block in np.array_split(own, blocks):
        proposals.see(np.ascontiguousarray(products[:, block]), own, block, own)
    found, unsure = proposals.rank(rows, rows, bounds, k, np.full(len(own), len(own) - 1), own[::-1])
    again = ExactBest(unsure, found, bounds)
    assert np.array_equal(np.flatnonzero(again.wants(own)), unsure)
    for block in np.array_split(own, blocks):
        seen = np.ascontiguousarray(products[np.ix_(unsure, block)])
        again.see(seen, rows.floats(unsure), rows.floats(block), unsure, block, own[unsure])
    again.finish()
    return found, len(unsure)


@given(
    st.integers(2, 80),
    st.integers(1, 20),
    st.integers(1, 12),
    st.integers(0, 12),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 12.0]),
)
def test_errors_within_the_bound_change_nothing(count, dimension, k, more, seed, length):
    """Many equal vectors, few proposals, the worst errors either way; long vectors, whose sums are rounded."""
    rng = np.random.default_rng(seed)
    k = min(k, count - 1)
    some = topic_vectors(max(1, count // 3), dimension, topics=2, spread=0.01, seed=seed)
    vectors = (length * some[rng.integers(0, len(some), count)]).astype(np.float16)
    errors = rng.choice([-1.0, 0.0, 1.0], (count, count))
    found, _ = best_of(vectors, k, min(k + more, count - 1), errors, blocks=rng.integers(1, 4))
    plain, _ = best_of(vectors, k, count - 1, np.zeros((count, count)), blocks=1)
    assert np.array_equal(found.rows, plain.rows)
    assert np.array_equal(found.products, plain.products)
    if length == 1.0:
        wide = vectors.astype(np.float64)
        products = wide @ wide.T
        np.fill_diagonal(products, -np.inf)
        assert np.array_equal(found.rows, np.argsort(-products, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize(("equal", "least", "most"), [(0, 0, 0), (60, 60, 100)])
def test_only_open_cuts_are_looked_at_again(equal, least, most):
    vectors = topic_vectors(300, 64, topics=30, spread=1.0)
    vectors[:equal] = vectors[0]
    _, count = best_of(vectors, 10, 20, np.zeros((300, 300)), blocks=2)
    assert least <= count <= most


@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_the_best_are_kept_whatever_the_order_of_the_blocks(queries, candidates, depth, step, seed):
    """Few products, so that many tie: the lower row is the better one then. A query is no candidate of its own."""
    rng = np.random.default_rng(seed)
    seen = rng.integers(-2, 3, (queries, candidates)).astype(np.float32)
    names, own = rng.permutation(candidates).astype(np.int32), np.arange(queries, dtype=np.int32)
    products = np.empty((queries, depth), np.float32)
    rows, counts = np.full((queries, depth), -1, np.int32), np.zeros(queries, np.int64)
    places = np.arange(queries)
    for begin in range(0, candidates, step):
        part = slice(begin, begin + step)
        keep_best(np.ascontiguousarray(seen[:, part]), places, names[part], own, products, rows, counts)
    sort_heaps(products, rows, counts)
    for query in range(queries):
        others = [(-product, row) for product, row in zip(seen[query], names, strict=True) if row != own[query]]
        best = sorted(others)[:depth]
        assert counts[query] == len(best)
        found = zip(products[query, : len(best)], rows[query, : len(best)], strict=True)
        assert [(-product, row) for product, row in found] == best


@given(st.lists(st.lists(st.integers(0, 9), max_size=4, unique=True), min_size=1, max_size=6), st.integers(1, 12))
def test_queries_come_together_while_their_candidates_are_few(lists, most):
    most = max(most, len(lists[0]))
    rows, counts = np.zeros((len(lists), 4), np.int32), np.array([len(one) for one in lists])
    for query, one in enumerate(lists):
        rows[query, : len(one)] = one
    stamps = np.full(10, 7, np.int64)
    queries, found = first_together(rows, counts, np.arange(len(lists)), stamps, most)
    together = [row for query in queries for row in lists[query]]
    assert queries.tolist() == list(range(len(queries)))
    assert found.tolist() == list(dict.fromkeys(together))
    assert len(queries) >= 1
    assert len(found) <= most
    assert all(stamps[row] == place for place, row in enumerate(found))
    if len(queries) < len(lists):
        assert len(found) + len(lists[len(queries)]) > most
