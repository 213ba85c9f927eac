"""Rows of many record batches under one numbering."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.schemas.vectors import vector_column, vectors_schema
from pipelines.engine.handed_on import write_batches
from pipelines.retrieval.spilled_vectors import SpilledVectors

SCHEMA = vectors_schema(3)


def batch(rows: range) -> pa.RecordBatch:
    columns = {
        "document_id": pa.array([f"made:{row}" for row in rows], pa.string()),
        "document_row": pa.array(rows, pa.int64()),
        "document_tokens": pa.array([row + 1 for row in rows], pa.int32()),
        "shingles": pa.array([[row] for row in rows], pa.list_(pa.uint32())),
        "vector": vector_column(np.array([[row, 0, -row] for row in rows], np.float16).reshape(-1, 3)),
    }
    return pa.record_batch([columns[name] for name in SCHEMA.names], schema=SCHEMA)


@pytest.fixture
def vectors(tmp_path):
    """Cluster 1 of three spill files, one of which holds nothing of it."""
    paths = [str(tmp_path / f"{number}.arrow") for number in range(3)]
    for path, rows in zip(paths, (range(5), range(0), range(5, 9)), strict=True):
        write_batches(path, SCHEMA, [batch(range(100, 103)), batch(rows)])
    return SpilledVectors.read(paths, 1)


def test_rows_are_numbered_over_all_files(vectors):
    assert len(vectors) == 9
    assert vectors.document_rows.tolist() == list(range(9))


@pytest.mark.parametrize("rows", [[], [8], [7, 0, 5, 4], list(range(8, -1, -1))])
def test_rows_are_taken_in_the_order_asked_for(vectors, rows):
    rows = np.array(rows, np.int64)
    assert np.array_equal(vectors.floats(rows), np.stack([rows, 0 * rows, -rows], axis=1))
    if len(rows):
        taken = vectors.take(rows)
        assert taken.column("document_row").to_pylist() == rows.tolist()
        assert taken.column("document_id").to_pylist() == [f"made:{row}" for row in rows]
