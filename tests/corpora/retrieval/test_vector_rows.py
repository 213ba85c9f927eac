"""Float16 rows read from memory, from a mapped shard, and from a compressed one."""

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.retrieval.vector_rows import VectorRows, norms, require_finite
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
