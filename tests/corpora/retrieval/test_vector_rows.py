"""Float16 rows read from memory, from a mapped shard, and from a compressed one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
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
    batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    found = VectorRows.from_batches(batches, vectors.shape[1], whole)
    mapped = np.shares_memory(found.bits, np.frombuffer(whole, np.uint16, whole.size // 2))
    assert mapped == (compression is None)
    rows = np.array([1023, 0, 99, 100, 100, 501])
    assert np.array_equal(found.floats(rows), vectors[rows].astype(np.float32))
    assert np.array_equal(found[500:].floats(rows[-1:] - 500), vectors[501:502].astype(np.float32))


def test_no_batch_is_no_row():
    assert len(VectorRows.from_batches([], 8, None)) == 0


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
    exact = rational(a, b)
    assert Fraction(dot_exactly(a, b)) == Fraction(dot_in_order(a, b)) == exact
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
