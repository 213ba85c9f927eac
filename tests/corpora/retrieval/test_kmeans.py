"""Centroids, and the vectors that they are computed from."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.retrieval.kmeans import assign, centroid_count, split, train_centroids
from corpora.retrieval.vector_rows import (
    EXACT_BELOW,
    VectorRows,
    dot_exactly,
    dot_in_order,
    error_bound,
    norms,
    require_finite,
    squared_lengths,
)
from corpora.schemas.vectors import vector_column, vectors_schema
from corpora.storage.shards import map_shard, write_shard
from tests.vectors import topic_vectors


@pytest.mark.parametrize(("wanted", "points", "expected"), [(256, 10**6, 256), (256, 100, 2), (256, 1, 1), (1, 0, 1)])
def test_a_centroid_has_39_points(wanted, points, expected):
    assert centroid_count(wanted, points) == expected


@pytest.mark.parametrize("spherical", [True, False])
def test_assignment_is_to_the_nearest(spherical):
    rng = np.random.default_rng(0)
    vectors, centroids = rng.standard_normal((9000, 6)).astype(np.float16), rng.standard_normal((17, 6))
    centroids = centroids / np.linalg.norm(centroids, axis=1, keepdims=True) if spherical else 2 * centroids
    labels = assign(vectors, centroids.astype(np.float32), spherical)
    wide = vectors.astype(np.float64)
    distances = -wide @ centroids.T if spherical else ((wide[:, None] - centroids) ** 2).sum(axis=2)
    chosen = np.take_along_axis(distances, labels[:, None].astype(np.int64), axis=1)[:, 0]
    assert (chosen <= distances.min(axis=1) + 1e-5).all()
    assert not assign(np.ones((3, 2), np.float16), np.ones((5, 2), np.float32), spherical).any()  # the first of equals


@pytest.mark.parametrize("spherical", [True, False])
def test_training_finds_the_topics(spherical):
    """With well separated topics, a cluster is a topic."""
    rng = np.random.default_rng(1)
    topics = rng.integers(0, 5, 2000)
    centres = 10 * np.eye(5, 12, dtype=np.float32)
    sample = centres[topics] + rng.standard_normal((2000, 12)).astype(np.float32)
    centroids = train_centroids(sample, 5, spherical, 20, seed=3)
    pairs = {*zip(topics.tolist(), assign(sample, centroids, spherical).tolist(), strict=True)}
    assert len(pairs) == len({topic for topic, _ in pairs}) == len({label for _, label in pairs}) == 5
    assert np.array_equal(centroids, train_centroids(sample, 5, spherical, 20, seed=3))
    if spherical:
        assert np.allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)


def test_spherical_training_does_not_see_lengths():
    rng = np.random.default_rng(2)
    sample = topic_vectors(500, 8).astype(np.float32)
    longer = sample * 2.0 ** rng.integers(-3, 4, (500, 1)).astype(np.float32)
    labels = [assign(sample, train_centroids(x, 4, True, 10, 0), True) for x in (sample, longer)]
    assert (labels[0] == labels[1]).mean() > 0.99


def test_vectors_of_zeros_are_no_trouble_and_the_sample_is_left_alone():
    sample = np.concatenate([np.zeros((50, 3)), np.full((50, 3), 2.0)]).astype(np.float16)
    before = sample.copy()
    assert np.isfinite(train_centroids(sample, 2, True, 5, 0)).all()
    assert np.array_equal(sample, before)


@given(st.integers(1, 400), st.integers(1, 60), st.sampled_from(["topics", "equal", "one apart"]), st.booleans())
def test_parts_are_under_the_cap_and_none_is_empty(count, cap, kind, spherical):
    vectors = topic_vectors(count, 4) if kind == "topics" else np.ones((count, 4), np.float16)
    if kind == "one apart":
        vectors[0] = -1
    parts = split(VectorRows.from_array(vectors), cap, spherical, 3, seed=0)
    sizes = np.bincount(parts)
    assert len(parts) == count
    assert sizes.max() <= cap
    assert sizes.min() >= 1
    if count <= cap:
        assert len(sizes) == 1


def test_what_fits_together_stays_together():
    """Two topics below the cap: parts are the topics, not halves by order."""
    vectors = np.repeat(np.eye(2, 8, dtype=np.float16), 300, axis=0)
    vectors = np.random.default_rng(0).permutation(vectors)
    parts = split(VectorRows.from_array(vectors), 400, True, 10, seed=0)
    assert np.array_equal(parts == parts[0], vectors[:, 0] == vectors[0, 0])


def test_a_split_is_repeatable():
    rows = VectorRows.from_array(topic_vectors(3000, 8))
    first = split(rows, 100, True, 5, seed=1)
    assert np.array_equal(first, split(rows, 100, True, 5, seed=1))
    assert not np.array_equal(first, split(rows, 100, True, 5, seed=2))


def record_batch(vectors):
    count = len(vectors)
    return pa.record_batch(
        [
            pa.array([f"made:{row}" for row in range(count)]),
            pa.array(np.arange(count)),
            pa.array(np.ones(count, np.int32)),
            pa.array([[1]] * count, pa.list_(pa.uint32())),
            vector_column(vectors),
        ],
        schema=vectors_schema(vectors.shape[1]),
    )


def every_half():
    """``(1024, 62)``: every float16 that is a number, subnormals and both zeros too."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves[np.isfinite(halves)].reshape(1024, -1)


def test_every_float16_keeps_its_value():
    vectors = every_half()
    rows = np.random.default_rng(0).permutation(1024)
    found = VectorRows.from_array(vectors).floats(rows)
    assert np.array_equal(found.view(np.uint32), vectors[rows].astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_rows_of_a_shard(tmp_path, compression):
    vectors, path = every_half(), str(tmp_path / "shard.arrow")
    with write_shard(path, vectors_schema(vectors.shape[1]), 100, compression) as (writer, _):
        writer.write(record_batch(vectors))
    whole, reader = map_shard(path)
    assert len(VectorRows.from_batches([], vectors.shape[1], whole)) == 0
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    found = VectorRows.from_batches(batches, vectors.shape[1], whole)
    mapped = np.shares_memory(found.bits, np.frombuffer(whole, np.uint16, whole.size // 2))
    assert mapped == (compression is None)
    rows = np.array([1023, 0, 99, 100, 100, 501])
    assert np.array_equal(found.floats(rows), vectors[rows].astype(np.float32))
    assert np.array_equal(found[500:].floats(rows[-1:] - 500), vectors[501:502].astype(np.float32))


def test_norms():
    vectors = np.random.default_rng(0).standard_normal((9000, 5)).astype(np.float16)
    vectors[7] = np.nan
    expected = np.linalg.norm(vectors.astype(np.float64), axis=1)
    assert np.allclose(norms(VectorRows.from_array(vectors)), expected, equal_nan=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_named(bad):
    vectors = np.ones((4, 3), np.float16)
    assert np.array_equal(require_finite(record_batch(vectors), 3, "a shard"), vectors)
    vectors[2, 1] = bad
    with pytest.raises(FarspanError, match="a shard: the vector of document 'made:2' holds NaN or infinity"):
        require_finite(record_batch(vectors), 3, "a shard")


def test_another_dimension_is_refused():
    with pytest.raises(FarspanError, match="a shard: vectors of 3 numbers where the manifest says 4"):
        require_finite(record_batch(np.ones((4, 3), np.float16)), 4, "a shard")


def halves(rng: np.random.Generator, dimension: int, largest: float) -> np.ndarray:
    """float32 numbers of all sizes that float16 holds, subnormal ones too."""
    numbers = rng.standard_normal(dimension) * 2.0 ** rng.integers(-24, 1, dimension)
    return (largest * numbers / np.linalg.norm(numbers)).astype(np.float16).astype(np.float32)


def rational(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0))


@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(0.01, EXACT_BELOW**0.5 - 0.01))
def test_vectors_that_are_not_long_have_exact_products(seed, dimension, length):
    rng = np.random.default_rng(seed)
    a, b = halves(rng, dimension, length), halves(rng, dimension, length)
    assert Fraction(dot_exactly(a, b)) == Fraction(dot_in_order(a, b)) == rational(a, b)
    order = rng.permutation(dimension)
    assert dot_exactly(a[order], b[order]) == dot_exactly(a, b)


@given(st.integers(0, 2**32), st.integers(1, 300), st.sampled_from([1.0, 100.0]))
def test_matrix_products_stay_within_the_bound(seed, dimension, length):
    rng = np.random.default_rng(seed)
    a, b = (np.stack([halves(rng, dimension, length) for _ in range(5)]) for _ in range(2))
    lengths = np.empty(5), np.empty(5)
    squared_lengths(a, lengths[0])
    squared_lengths(b, lengths[1])
    bound = error_bound(dimension) * np.sqrt(np.outer(*lengths))
    exact = np.array([[float(rational(x, y)) for y in b] for x in a])
    assert (np.abs((a @ b.T).astype(np.float64) - exact) <= bound).all()


def test_long_vectors_are_summed_from_left_to_right():
    a = np.array([60000.0, 2.0**-24, -60000.0], np.float32)
    b = np.array([60000.0, 2.0**-24, 60000.0], np.float32)
    assert dot_in_order(a, b) == 0.0
    assert dot_in_order(a[[0, 2, 1]], b[[0, 2, 1]]) == 2.0**-48
