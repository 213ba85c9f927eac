"""Synthetic vectors: drawn by key, of length 1, around topics, with near-repetitions."""

from __future__ import annotations

import numpy as np

from benchmarks.synthetic import DIMENSION, Topics, blocks, ids, sketches, token_lengths


def test_blocks_cover_every_document_once():
    assert [size for _, size in blocks(40_000)] == [16_384, 16_384, 7_232]
    assert blocks(1) == [(0, 1)]
    assert ids(3, 2).to_pylist() == ["synthetic:00003:0", "synthetic:00003:1"]


def test_vectors_have_length_1_and_some_repeat_the_one_before():
    topics = Topics(5_000)
    vectors, repeats = topics.vectors(0, 2_000)
    again, _ = Topics(5_000).vectors(0, 2_000)
    assert np.array_equal(vectors, again)
    assert not np.array_equal(vectors, topics.vectors(1, 2_000)[0])
    assert (vectors.shape, vectors.dtype) == ((2_000, DIMENSION), np.float16)
    wide = vectors.astype(np.float32)
    assert np.allclose(np.linalg.norm(wide, axis=1), 1, atol=2e-3)
    cosines = (wide[1:] * wide[:-1]).sum(axis=1)
    assert 15 < repeats.sum() < 70
    assert not repeats[0]
    near = repeats[1:] & ~repeats[:-1]  # a document repeats the one before as that was drawn, before it repeated one
    assert cosines[near].min() > 0.95 > np.median(cosines[~repeats[1:]])


def test_documents_that_repeat_have_the_sketch_before():
    repeats = np.array([False, False, True, False])
    rows = sketches(0, repeats)
    assert np.array_equal(rows[2], rows[1])
    assert not np.array_equal(rows[3], rows[1])
    assert all((np.diff(rows[row].astype(np.int64)) > 0).all() for row in range(4))
    lengths = token_lengths(0, 5_000)
    assert (lengths.min() >= 20) & (lengths.max() <= 4_000)
    assert 300 < lengths.mean() < 400
