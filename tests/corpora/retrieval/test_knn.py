"""Neighbours against plain numpy: exactly in small clusters, with high recall in larger ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.retrieval.best_rows import Block, Bounds, ExactBest, Neighbours, Proposals
from corpora.retrieval.candidate_heaps import Heaps, first_together, keep_best, sort_heaps
from corpora.retrieval.knn import list_count, memory_needed, nearest, search
from corpora.retrieval.options import Search
from corpora.retrieval.vector_rows import VectorRows
from tests.vectors import topic_vectors


def whole_numbers(count, dimension, seed=0, largest=2):
    """Vectors whose products float32 holds exactly, so that ties are ties; many are equal."""
    return np.random.default_rng(seed).integers(-largest, largest + 1, (count, dimension)).astype(np.float16)


def brute_force(vectors, k, queries=slice(None)):
    """Rows of the k nearest others of each query, best first, ties by row."""
    products = vectors[queries].astype(np.float64) @ vectors.astype(np.float64).T
    products[np.arange(len(products)), np.arange(len(vectors))[queries]] = -np.inf
    order = np.argsort(-products, axis=1, kind="stable")[:, : min(k, len(vectors) - 1)]
    return order, np.take_along_axis(products, order, axis=1)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 80), st.integers(0, 3))
def test_small_clusters_are_searched_exactly(count, dimension, k, seed):
    vectors = whole_numbers(count, dimension, seed)
    found = search(VectorRows.from_array(vectors), Search(k=k))
    rows, products = brute_force(vectors, k)
    assert np.array_equal(found.rows, rows)
    assert np.array_equal(found.products, products)
    assert (found.counts == min(k, count - 1)).all()


@given(st.integers(2, 200), st.integers(1, 70), st.integers(1, 60), st.integers(0, 3), st.booleans())
def test_equal_documents_tie_wherever_they_stand(count, dimension, k, seed, lists):
    """Numbers that float32 sums round; a numpy product in float64 is exact for vectors of length 1."""
    rng = np.random.default_rng(seed)
    some = topic_vectors(max(1, count // 4), dimension, topics=3, seed=seed)
    vectors = some[rng.integers(0, len(some), count)]
    found = search(VectorRows.from_array(vectors), Search(k=k, exact_up_to=1 if lists else 1000, probes=10**6))
    rows, products = brute_force(vectors, k)
    assert np.array_equal(found.rows, rows)
    assert np.array_equal(found.products, products.astype(np.float32))


def test_more_equal_documents_than_are_proposed_are_cut_by_row():
    """Several blocks of products, in which equal vectors stand in different places."""
    rng = np.random.default_rng(0)
    vectors = topic_vectors(5000, 33, topics=5, spread=0.2)
    vectors[rng.integers(0, 5000, 2500)] = vectors[7]
    found = search(VectorRows.from_array(vectors), Search(k=40))
    some = np.arange(0, 5000, 13)
    rows, products = brute_force(vectors, 40, some)
    assert np.array_equal(found.rows[some], rows)
    assert np.array_equal(found.products[some], products.astype(np.float32))


@pytest.mark.parametrize("k", [1, 10, 100])
def test_lists_find_nearly_all(k):
    vectors = topic_vectors(6000, 32, topics=40, spread=0.5)
    found = search(VectorRows.from_array(vectors), Search(k=k, exact_up_to=1000))
    some = np.arange(0, 6000, 7)
    rows, _ = brute_force(vectors, k, some)
    assert (found.counts == k).all()
    recall = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found.rows[some], rows, strict=True)]) / k
    assert recall >= 0.95
    owners = np.arange(6000)[:, None]
    assert (found.rows != owners).all()
    assert (np.diff(found.products, axis=1) <= 0).all()
    wide = vectors.astype(np.float64)
    assert np.allclose(found.products, np.einsum("nd,nkd->nk", wide, wide[found.rows]), atol=1e-5)
    assert (np.diff(np.sort(found.rows, axis=1), axis=1) > 0).all()


def test_equal_vectors_find_each_other_whatever_the_lists():
    """Lists stay empty where all vectors are one; ties go by row."""
    found = search(VectorRows.from_array(np.ones((500, 3), np.float16)), Search(k=3, exact_up_to=100, probes=2))
    assert found.rows[0].tolist() == [1, 2, 3]
    assert found.rows[499].tolist() == [0, 1, 2]
    assert (found.counts == 3).all()


def test_fewer_visited_than_k_are_shorter_lists():
    vectors = topic_vectors(400, 16, topics=20, spread=0.1)
    found = search(VectorRows.from_array(vectors), Search(k=300, exact_up_to=100, probes=1))
    assert found.counts.max() < 300
    rows, products = found.ragged(10, 20)
    assert rows.lengths.tolist() == products.lengths.tolist() == found.counts[10:20].tolist()
    assert np.array_equal(rows[3], found.rows[13, : found.counts[13]])


def test_a_search_is_repeatable():
    rows = VectorRows.from_array(topic_vectors(3000, 16))
    options = Search(k=5, exact_up_to=100, probes=2, seed=2**40)
    first, second = search(rows, options), search(rows, options)
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.products, second.products)


def test_nearest_leaves_out_the_query_itself():
    vectors = whole_numbers(5000, 5, seed=1)
    queries = np.array([0, 4999, 7])
    own = np.array([0, 4999, -1], np.int32)
    found = nearest(VectorRows.from_array(vectors), VectorRows.from_array(vectors[queries]), 4, own)
    rows, _ = brute_force(vectors, 4, queries[:2])
    assert np.array_equal(found.rows[:2], rows)
    products = vectors.astype(np.int64) @ vectors[7].astype(np.int64)
    assert found.rows[2].tolist() == np.argsort(-products, kind="stable")[:4].tolist()


def test_progress_ends_at_the_whole():
    shares = []
    for options in (Search(k=3), Search(k=3, exact_up_to=10)):
        search(VectorRows.from_array(topic_vectors(300, 4)), options, shares.append)
        assert shares[-1] == pytest.approx(1)
    assert all(0 < share <= 1.0001 for share in shares)


def test_memory_grows_with_depth_and_cluster():
    assert memory_needed(Search(k=100), 1_400_000, 768) < 8 << 30
    assert memory_needed(Search(k=2048), 1_400_000, 768) > 17e9
    assert memory_needed(Search(k=100), 100, 768) < 64 << 20


def test_no_cluster_needs_to_be_searched_exactly_but_one_of_a_single_vector():
    assert [list_count(Search(exact_up_to=0), count) for count in (1, 2, 3)] == [1, 2, 3]
    for count in (1, 2, 3):
        found = search(VectorRows.from_array(np.eye(3, dtype=np.float16)[:count]), Search(k=2, exact_up_to=0))
        assert found.counts.tolist() == [count - 1] * count


# Exact products, and the best candidates of each query.
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
        seen = np.ascontiguousarray(products[:, block])
        proposals.see(Block(seen, rows.floats(own), rows.floats(block), own, block), own)
    found, unsure = proposals.rank(rows, rows, bounds, k, np.full(len(own), len(own) - 1), own[::-1])
    again = ExactBest(unsure, found, bounds)
    assert np.array_equal(np.flatnonzero(again.wants(own)), unsure)
    for block in np.array_split(own, blocks):
        seen = np.ascontiguousarray(products[np.ix_(unsure, block)])
        again.see(Block(seen, rows.floats(unsure), rows.floats(block), unsure, block), own[unsure])
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
    found, _ = best_of(vectors, k, min(k + more, count - 1), errors, blocks=int(rng.integers(1, 4)))
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
    rows, counts = np.full((queries, depth), -1, np.int32), np.zeros(queries, np.int32)
    heaps = Heaps(products, rows, counts)
    places = np.arange(queries)
    for begin in range(0, candidates, step):
        part = slice(begin, begin + step)
        keep_best(np.ascontiguousarray(seen[:, part]), places, names[part], own, heaps)
    sort_heaps(heaps)
    for query in range(queries):
        others = [(-product, row) for product, row in zip(seen[query], names, strict=True) if row != own[query]]
        best = sorted(others)[:depth]
        assert counts[query] == len(best)
        found = zip(products[query, : len(best)], rows[query, : len(best)], strict=True)
        assert [(-product, row) for product, row in found] == best


@given(st.lists(st.lists(st.integers(0, 9), max_size=4, unique=True), min_size=1, max_size=6), st.integers(1, 12))
def test_queries_come_together_while_their_candidates_are_few(lists, most):
    most = max(most, len(lists[0]))
    rows, counts = np.zeros((len(lists), 4), np.int32), np.array([len(one) for one in lists], np.int32)
    for query, one in enumerate(lists):
        rows[query, : len(one)] = one
    heaps, stamps = Heaps(np.zeros((len(lists), 4), np.float32), rows, counts), np.full(10, 7, np.int32)
    queries, found = first_together(heaps, np.arange(len(lists)), stamps, most)
    together = [row for query in queries for row in lists[query]]
    assert queries.tolist() == list(range(len(queries)))
    assert found.tolist() == list(dict.fromkeys(together))
    assert len(queries) >= 1
    assert len(found) <= most
    assert all(stamps[row] == place for place, row in enumerate(found))
    if len(queries) < len(lists):
        assert len(found) + len(lists[len(queries)]) > most
