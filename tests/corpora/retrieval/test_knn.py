"""Neighbours against plain numpy: exactly in small clusters, with high recall in larger ones."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_blocks_change_nothing():
    """More queries and candidates than a block of products holds."""
    vectors = whole_numbers(5000, 4, largest=9)
    found = search(VectorRows.from_array(vectors), Search(k=7))
    some = np.arange(0, 5000, 13)
    rows, products = brute_force(vectors, 7, some)
    assert np.array_equal(found.rows[some], rows)
    assert np.array_equal(found.products[some], products)


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


def test_all_lists_are_an_exact_search():
    vectors = whole_numbers(700, 6)
    found = search(VectorRows.from_array(vectors), Search(k=20, exact_up_to=100, probes=10**6))
    rows, products = brute_force(vectors, 20)
    assert np.array_equal(found.rows, rows)
    assert np.array_equal(found.products, products)


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


def test_on_a_gpu_all_clusters_are_searched_exactly(monkeypatch):
    """The code path alone: a flat index in memory stands in for FAISS's GPU."""
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", lambda index, co: index)
    monkeypatch.setattr(faiss, "GpuMultipleClonerOptions", type("Options", (), {}), raising=False)
    vectors = whole_numbers(3000, 8, largest=200)
    found = search(VectorRows.from_array(vectors), Search(k=9, exact_up_to=10))
    rows, products = brute_force(vectors, 9)
    assert np.array_equal(found.products, products)
    assert np.array_equal(found.rows, rows)
    assert (found.counts == 9).all()
    assert list_count(Search(k=9, exact_up_to=10), 3000) == 1
    assert list_count(Search(k=5000, exact_up_to=10), 3000) > 1  # deeper than FAISS goes there
