"""K-means, assignment and splitting, against plain numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.retrieval.kmeans import assign, centroid_count, split, train_centroids
from corpora.retrieval.vector_rows import VectorRows
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


def test_equally_near_centroids_the_first_wins():
    labels = assign(np.ones((3, 2), np.float16), np.ones((5, 2), np.float32), True)
    assert labels.tolist() == [0, 0, 0]


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
