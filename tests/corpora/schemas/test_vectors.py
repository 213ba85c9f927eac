"""Vectors keep their bits on the way to disk and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.schemas.vectors import clusters_schema, neighbours_schema, vector_column, vector_rows, vectors_schema
from corpora.storage.shards import read_shard, write_shard


@pytest.mark.parametrize("cuts", [[50], [1, 9, 40], [16, 16, 18]])
def test_a_shard_has_the_same_bytes_however_its_rows_arrived(tmp_path, cuts):
    vectors = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float16)
    schema = vectors_schema(7)
    everything = pa.record_batch(
        [
            pa.array([f"d:{row}" for row in range(50)]),
            pa.array(np.arange(50)),
            pa.array(np.arange(50, dtype=np.int32)),
            pa.array([[row, row + 1] for row in range(50)], pa.list_(pa.uint32())),
            vector_column(vectors),
        ],
        schema=schema,
    )
    digests = set()
    for name, parts in {"once": [50], "cut": cuts}.items():
        with write_shard(str(tmp_path / name), schema, 16) as (writer, info):
            start = 0
            for size in parts:
                writer.write(everything.slice(start, size))
                start += size
        digests.add(info[0].sha256)
    assert len(digests) == 1
    batches = list(read_shard(str(tmp_path / "cut")))
    assert [len(batch) for batch in batches] == [16, 16, 16, 2]
    assert np.concatenate([vector_rows(batch.column("vector")) for batch in batches]).tobytes() == vectors.tobytes()


def test_rows_of_a_slice_are_its_own():
    vectors = np.arange(12, dtype=np.float16).reshape(4, 3)
    assert vector_rows(vector_column(vectors).slice(1, 2)).tolist() == vectors[1:3].tolist()
    assert vector_rows(vector_column(vectors[:0])).shape == (0, 3)


def test_clusters_are_vectors_with_a_cluster():
    vectors, clusters = vectors_schema(4), clusters_schema(4)
    assert [field for field in clusters if field.name != "cluster_id"] == list(vectors)
    assert [field.name for field in neighbours_schema()][:4] == [field.name for field in clusters][:4]
