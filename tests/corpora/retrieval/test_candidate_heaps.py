"""Bounded heaps of candidates against sorting all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.retrieval.candidate_heaps import first_together, keep_best, sort_heaps


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
