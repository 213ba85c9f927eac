"""K-means over document vectors: centroids from a sample, a label for every vector, and large clusters split again."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from corpora.compiled import compiled
from corpora.errors import from_extra
from corpora.keyed import make_key
from corpora.retrieval.vector_rows import dot_in_order, error_bound, squared_lengths

with from_extra("linked", "clustering vectors"):
    import faiss

POINTS_PER_CENTROID = 39  # FAISS's recommended minimum
# FAISS compares few queries with its slow kernel: by default fewer than 128,000 (12 times slower from 20 on)
faiss.cvar.distance_compute_blas_threshold = 20
_BLOCK = 8192
_SAMPLE_PER_CENTROID = 256
_LOPSIDED = 0.95


class Vectors(Protocol):
    """Rows that can be read by number, e.g. ``corpora.retrieval.vector_rows.VectorRows``."""

    def __len__(self) -> int: ...

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, ``(len(rows), d)`` float32."""


def centroid_count(wanted: int, points: int) -> int:
    """Return the number of centroids to train on ``points`` vectors: at most ``wanted``, at least 1."""
    return max(1, min(wanted, points // POINTS_PER_CENTROID))


def kmeans_seed(seed: int, purpose: str) -> int:
    """Derive the 31-bit seed that FAISS needs from a seed of any size."""
    return int.from_bytes(make_key(seed, purpose)[:4], "little") >> 1


def train_centroids(sample: np.ndarray, clusters: int, spherical: bool, iterations: int, seed: int) -> np.ndarray:
    """Run FAISS's k-means, on a GPU if FAISS has one.

    The caller fixes the number of threads, because it affects the last bits of float32 sums, as the processor does.
    Across processors, centroids agree to about 1e-5, and labels are equal except for vectors on a border.

    ``sample``: ``(m, d)`` float16 or float32, m >= clusters. ``spherical``: True to compare directions only: vectors
    and centroids are normalised to length 1. Returns ``(clusters, d)`` float32.
    """
    sample = np.array(sample, np.float32)
    if spherical:
        lengths = np.linalg.norm(sample, axis=1, keepdims=True)
        sample /= np.where(lengths > 0, lengths, 1)  # zeros stay zeros
    kmeans = faiss.Kmeans(
        sample.shape[1],
        clusters,
        niter=iterations,
        spherical=spherical,
        seed=seed,
        min_points_per_centroid=1,  # checked by centroid_count
        max_points_per_centroid=len(sample),
        gpu=faiss.get_num_gpus() > 0,
    )
    kmeans.train(sample)
    return np.asarray(kmeans.centroids)


def assign(vectors: np.ndarray, centroids: np.ndarray, spherical: bool) -> np.ndarray:
    """Find the nearest centroid of each vector, the first of equally near ones; equal on every processor.

    A matrix product selects the centroids that may be the nearest. Among several, sums in a fixed order decide.

    ``vectors``: ``(n, d)`` float16 or float32. ``centroids``: ``(clusters, d)`` float32, of length 1 if ``spherical``.
    Returns ``(n,)`` int32.
    """
    labels = np.empty(len(vectors), np.int32)
    centroids = np.ascontiguousarray(centroids, np.float32)
    squares = np.empty(len(centroids))
    squared_lengths(centroids, squares)
    longest = float(np.sqrt(squares.max(initial=0)))
    # |x - c|^2 is least where x.c - |c|^2 / 2 is greatest: (clusters,)
    handicaps = np.zeros(len(centroids)) if spherical else squares / 2
    for first in range(0, len(vectors), _BLOCK):
        block = np.ascontiguousarray(vectors[first : first + _BLOCK], np.float32)
        own = np.empty(len(block))
        squared_lengths(block, own)
        products = block @ centroids.T
        errors = error_bound(block.shape[1]) * np.sqrt(own) * longest
        _decide(products, block, centroids, handicaps, errors, labels[first : first + _BLOCK])
    return labels


@compiled
def _decide(
    products: np.ndarray,
    vectors: np.ndarray,
    centroids: np.ndarray,
    handicaps: np.ndarray,
    errors: np.ndarray,
    labels: np.ndarray,
) -> None:
    """Fill ``labels`` from ``(n, clusters)`` products with error bounds ``(n,)``."""
    for i in range(len(products)):
        top = -np.inf
        for j in range(len(centroids)):
            top = max(top, products[i, j] - handicaps[j])
        rivals, best, chosen = 0, -np.inf, 0
        for j in range(len(centroids)):
            if products[i, j] - handicaps[j] >= top - 2 * errors[i]:
                rivals, chosen = rivals + 1, j
        for j in range(len(centroids) if rivals > 1 else 0):
            if products[i, j] - handicaps[j] >= top - 2 * errors[i]:
                score = dot_in_order(vectors[i], centroids[j]) - handicaps[j]
                if score > best:
                    best, chosen = score, j
        labels[i] = chosen


def split(vectors: Vectors, cap: int, spherical: bool, iterations: int, seed: int) -> np.ndarray:
    """Split a cluster into parts of at most ``cap`` vectors, by repeated k-means.

    Vectors that k-means cannot separate, such as equal ones, are split by their order.

    Returns ``(n,)`` int64, the part of each vector; parts are numbered from 0, and none is empty.
    """
    parts = np.zeros(len(vectors), np.int64)
    waiting, finished = [np.arange(len(vectors))], 0
    while waiting:
        rows = waiting.pop()
        if len(rows) <= cap:
            parts[rows] = finished
            finished += 1
            continue
        clusters = -(-len(rows) // cap)
        trained = train_centroids(
            vectors.floats(rows[_draw(len(rows), clusters * _SAMPLE_PER_CENTROID, seed)]),
            clusters,
            spherical,
            iterations,
            seed,
        )
        labels = np.concatenate(
            [
                assign(vectors.floats(rows[first : first + _BLOCK]), trained, spherical)
                for first in range(0, len(rows), _BLOCK)
            ]
        )
        sizes = np.bincount(labels, minlength=clusters)
        if sizes.max() > _LOPSIDED * len(rows):
            labels = np.arange(len(rows)) * clusters // len(rows)
            sizes = np.bincount(labels, minlength=clusters)
        # the last one is taken first, so that parts are numbered in the order of labels
        waiting += [rows[labels == label] for label in range(clusters - 1, -1, -1) if sizes[label]]
    return parts


def _draw(count: int, size: int, seed: int) -> np.ndarray:
    """Draw ``(min(count, size),)`` of the numbers below ``count``, ascending."""
    if size >= count:
        return np.arange(count)
    key = np.frombuffer(make_key(seed, "k-means sample", {"count": count}), np.uint64)
    draws = np.random.Philox(key=key).random_raw(count)
    return np.sort(np.argsort(draws, kind="stable")[:size])
